"""The JVM's output stays out of our log, and none of our lines is lost in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OURS = "timestamp=2026-11-24T13:29:39.409135Z level=info event=joining table=wide"
SPEAKS = f"""
import os, sys, threading
from pathlib import Path
from joins.engine.proc_jvm import apart
with apart(Path(sys.argv[1])):
    for piece in (b'Setting the level to "', b"{OURS}\\n", b'WARN".\\n', b"{OURS} more\\n", b"timestamp=none\\n"):
        os.write(2, piece)
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(20)
"""


def test_our_lines_come_out_whole_wherever_the_jvm_is_in_its_own(tmp_path: Path) -> None:
    """One of our threads may log while the JVM has written half a line."""
    file = tmp_path / "spark.log"
    done = subprocess.run([sys.executable, "-c", SPEAKS, str(file)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [OURS, f"{OURS} more"]
    assert file.read_text() == 'Setting the level to "WARN".\ntimestamp=none\n'


def test_a_full_disk_of_the_log_drops_lines_only() -> None:
    """The pipe stays open: a worker whose log line cannot be written must not fail its task."""
    done = subprocess.run([sys.executable, "-c", SPEAKS, "/dev/full"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
