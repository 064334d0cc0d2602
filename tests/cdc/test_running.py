"""Files in which processes announce themselves to `status`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cdc.model.errors import Fatal
from cdc.process.file_running import announced, ended, family, running
from tests.support.waiting import wait_for

CHILD = """
import subprocess
import time
from cdc.process.file_running import announced
with announced("t", "join wide", 9):
    subprocess.Popen(["sleep", "60"])
    print("here", flush=True)
    time.sleep(60)
"""


def reports(stopped: tuple[int, ...]) -> bool:
    """Return whether exactly those processes of the running part are reported as stopped."""
    return [one.stopped for one in running("t")] == [stopped]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))


def test_a_process_is_there_while_it_runs() -> None:
    """A process is listed while it runs, however it was started. Its error is kept after its end."""
    with announced("t", "capture shop", 0):
        assert [(one.part, one.pid, one.port) for one in running("t")] == [("capture shop", os.getpid(), 0)]
        assert running("other") == []
    assert running("t") == []
    assert ended("t") == {}
    with pytest.raises(Fatal), announced("t", "capture shop", 0):
        raise Fatal("the position is purged", "position_lost: resnapshot")
    reported = ended("t")["capture shop"]
    assert (reported.kind, reported.message) == ("Fatal", "the position is purged; position_lost: resnapshot")


def test_a_killed_process_is_gone_and_a_stopped_one_is_reported() -> None:
    """SIGKILL leaves the file. SIGSTOP leaves the process, which does nothing."""
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    assert [(one.part, one.stopped) for one in running("t")] == [("join wide", ())]
    (grandchild,) = map(int, Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split())
    for pids in ((child.pid,), (child.pid, grandchild)):
        os.kill(pids[-1], signal.SIGSTOP)
        wait_for(partial(reports, pids), "it is not reported as stopped", 20)
    os.kill(child.pid, signal.SIGCONT)
    wait_for(partial(reports, (grandchild,)), "its child is not reported alone", 20)
    os.kill(grandchild, signal.SIGKILL)
    child.kill()
    child.wait(20)
    child.stdout.close()
    assert [(one.part, one.dead) for one in running("t")] == [("join wide", True)]
    with announced("t", "join wide", 0):
        assert [(one.pid, one.dead) for one in running("t")] == [(os.getpid(), False)]
    assert running("t") == []


def test_the_family_of_an_ended_process_is_itself() -> None:
    """A process can end while its family is listed: `tailorbird run` must not end with it."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert family(process.pid) == [process.pid]


def test_a_later_process_with_the_same_number_is_another(tmp_path: Path) -> None:
    """A pid may be reused after a restart of the machine."""
    (tmp_path / "run" / "t").mkdir(parents=True)
    file = tmp_path / "run" / "t" / f"join-x.{os.getpid()}.json"
    file.write_text(f'{{"part": "join x", "pid": {os.getpid()}, "port": 0, "began_ms": 1, "ticks": 1}}')
    assert [one.dead for one in running("t")] == [True]
    file.unlink()
    (tmp_path / "run" / "t" / "join-y.1.json").write_text("{")
    assert running("t") == []
