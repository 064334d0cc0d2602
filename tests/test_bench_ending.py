"""A benchmark that is killed leaves nothing running: SIGTERM ends it as Ctrl-C does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_a_signal_stops_what_was_started(number: signal.Signals) -> None:
    """However often it comes: `make` and a person's shell may both send it."""
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


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_benchmark_ends_so(path: Path) -> None:
    """Whichever starts servers or processes: `end` around its main, or `sit`, which has it."""
    text = path.read_text()
    assert "sys.exit(end(main))" in text or "import facts_of, options_of, output_of, report, sit" in text
