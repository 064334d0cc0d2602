"""The command `tailorbird dashboard` as a process: its start, its refusals, its exit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from playwright.sync_api import expect, sync_playwright

from tailorbird.operate.probes.tcp_probe import port_is_free

pytestmark = pytest.mark.integration

OPEN = build_opener(ProxyHandler({}))
PORTS = range(18_600, 18_700)
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


def free_ports() -> Iterator[int]:
    return (port for port in PORTS if port_is_free("127.0.0.1", port))


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Declare two dashboards over a Solr that does not run."""
    file = tmp_path / "quiet.yml"
    file.write_text(TOPOLOGY.format(port=list(free_ports())[-1]))
    return file


@pytest.fixture
def serve(topology: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command with options; processes that still run at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tailorbird", "dashboard", str(topology), *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


def served(url: str, process: subprocess.Popen[str]) -> bool:
    """Return whether the page answers before the deadline."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with OPEN.open(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.1)
    return False


def test_without_solr_the_page_reports_it_and_sigterm_ends_it(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """The page works before Solr does and shows the remedy; SIGTERM while a browser is open exits with 0 and no
    traceback.
    """
    port = next(free_ports())
    process = serve("--port", str(port), "--dashboard", "second")
    url = f"http://127.0.0.1:{port}/"
    assert served(url, process)
    with pytest.raises(URLError, match="400"):
        # another site whose host name resolves to this machine gets no answer
        OPEN.open(Request(url, headers={"Host": "evil.example"}), timeout=5)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(url)
        expect(page.get_by_test_id("title")).to_have_text("Second")
        expect(page.get_by_test_id("banner")).to_contain_text("does not answer; start it: tailorbird stack up")
        process.terminate()
        output, _ = process.communicate(timeout=20)
        browser.close()
    assert process.returncode == 0, output
    assert f"url={url}" in output
    assert "dashboard stopped" in output
    assert "Traceback" not in output


def test_a_port_in_use_ends_in_one_line(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """It exits with 2 and reports the fault and the remedy."""
    port = next(free_ports())
    first = serve("--port", str(port))
    assert served(f"http://127.0.0.1:{port}/", first)
    second = serve("--port", str(port))
    output, _ = second.communicate(timeout=60)
    assert second.returncode == 2
    assert output == f"tailorbird: 127.0.0.1:{port} cannot be served: the port is in use; try --port {port + 1}\n"


def test_an_unknown_dashboard_ends_in_one_line(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """It exits with 2 and lists the existing dashboards."""
    process = serve("--dashboard", "third")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output == "tailorbird: unknown dashboard third; one of first, second\n"


def test_an_address_of_another_machine_ends_in_one_line(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """An address that this machine does not have is reported."""
    process = serve("--host", "192.0.2.1")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output == (
        "tailorbird: 192.0.2.1 cannot be served: it is not an IPv4 address of this machine; try --host 127.0.0.1\n"
    )
