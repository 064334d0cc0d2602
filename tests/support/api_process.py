"""`tailorbird api` in a process, with a token of a new operator."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.commands import tailorbird
from tests.support.ports import free_port
from tests.support.waiting import wait_for


@contextmanager
def api_process(file: str, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the variables of a client of an API over the topology in `file`, which serves while the block runs."""
    issued = tailorbird("fleet", "token", "issue", "ops", "--role", "admin", "--topology", file, environ=environ)
    assert issued.returncode == 0, issued.stderr
    port = free_port()
    command = [sys.executable, "-m", "tailorbird", "api", file, "--port", str(port)]
    process = subprocess.Popen(command, env={**os.environ, **environ})
    url = f"http://127.0.0.1:{port}"

    def serves() -> bool:
        assert process.poll() is None, "the API has ended"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return int(answer.status) == 200
        except urllib.error.URLError:
            return False

    try:
        wait_for(serves, "the API does not serve", 60)
        yield {"TAILORBIRD_API": url, "TAILORBIRD_API_TOKEN": issued.stdout.strip()}
    finally:
        process.terminate()
        assert process.wait(30) == 0
