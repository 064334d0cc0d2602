"""A benchmark that is killed leaves no process running: SIGTERM ends it like Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ending import end
from cdc.model.errors import UsageError

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted(
    path
    for path in (ROOT / "benchmarks").glob("*.py")
    if re.search(r"sys\.exit\(", path.read_text().partition("__main__")[2])
)
PROGRAM = """
import subprocess, sys
from benchmarks.ending import end

def main():
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        print(server.pid, flush=True)
        return server.wait()
    finally:
        server.terminate()
        print("stopped", server.wait(), flush=True)

sys.exit(end(main))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_started_processes(number: signal.Signals) -> None:
    """The signal may arrive several times: `make` and the shell may both send it."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    server = int(process.stdout.readline())
    for _ in range(2):
        process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, f"stopped {-signal.SIGTERM}\n")
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_an_expected_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise UsageError("no server at 127.0.0.1:3307", "tailorbird stack up")

    assert end(main) == UsageError.exit_code
    assert capsys.readouterr().err == "no server at 127.0.0.1:3307; tailorbird stack up\n"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_benchmark_stops_its_processes(path: Path) -> None:
    """Each benchmark that starts servers or processes uses `end` around its main, or `sit`, which contains it."""
    text = path.read_text()
    assert "sys.exit(end(main))" in text or "import options_of, output_of, report, run_benchmark, run_facts" in text
