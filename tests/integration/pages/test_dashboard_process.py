"""The command `tailorbird dashboard` as a process: its start, its refusals, its exit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import OPEN, answers
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

TOPOLOGY = """\
name: quiet
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [t], server_id: 1}}
solr: {{url: "http://127.0.0.1:{port}/solr"}}
tables:
  t: {{query: "SELECT * FROM s.t", row_key: [id]}}
indexes:
  t: {{table: t}}
dashboards:
  first: {{index: t, title: First, refresh: 200ms}}
  second: {{index: t, title: Second, refresh: 200ms}}
"""


def test_without_solr_the_page_reports_it_and_sigterm_ends_it(browser: Browser, tmp_path: Path) -> None:
    """The page works before Solr does and shows the remedy. Another process at its port exits with 2 and one line with
    the fault and the remedy. SIGTERM while a browser is open exits with 0 and no traceback.
    """
    topology = tmp_path / "quiet.yml"
    topology.write_text(TOPOLOGY.format(port=free_port()))
    port = free_port()
    url, command = f"http://127.0.0.1:{port}/", [sys.executable, "-m", "tailorbird", "dashboard", str(topology)]
    command += ["--port", str(port), "--dashboard", "second"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: process.poll() is not None or answers(url), "the page is not served", 60)
        with pytest.raises(HTTPError, match="400"):
            # another site whose host name resolves to this machine gets no answer
            OPEN.open(Request(url, headers={"Host": "evil.example"}), timeout=5)
        with pytest.raises(HTTPError, match="404"):
            OPEN.open(url + "openapi.json", timeout=5)
        page = browser.new_page()
        page.goto(url)
        expect(page.get_by_test_id("title")).to_have_text("Second")
        expect(page.get_by_test_id("banner")).to_contain_text("does not answer; start it: tailorbird stack up")
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 2
        fault = f"127.0.0.1:{port} cannot be served: the port is in use; try --port {port + 1}"
        assert second.stderr + second.stdout == f"tailorbird: {fault}\n"
        process.terminate()
        output, _ = process.communicate(timeout=20)
        page.close()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, output
    assert f"url={url}" in output
    assert "dashboard stopped" in output
    assert "Traceback" not in output
