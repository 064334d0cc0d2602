"""What befalls the joins of a running topology: kills and lost state. And how the tables are compared then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cdc.process.file_running import running
from tailorbird.operate.wait.run_wait import wait
from tests.support.changing_topology import ChangingTopology
from tests.support.waiting import wait_for


def kill_join(evolving: ChangingTopology) -> None:
    """Kill the process of the joins at once, and wait until another one runs."""
    (pid,) = {one.pid for one in running(evolving.name) if one.part.startswith("join") and not one.dead}
    os.kill(pid, signal.SIGKILL)
    wait_for(
        lambda: any(one.pid != pid for one in running(evolving.name) if one.part.startswith("join") and not one.dead),
        "the join does not start again",
        120,
    )


def equal(evolving: ChangingTopology) -> bool:
    """Wait until the table contains all that was committed, and return whether `verify` calls it equal."""
    for source in ("shop", "crm"):
        wait(str(evolving.file), source, until="table", timeout=400)
    return set(evolving.outcomes().values()) == {"equal"}


def forget_state(evolving: ChangingTopology) -> None:
    """Remove the state of the joins, as after the loss of a disk."""
    for folder in sorted((Path(evolving.environ["TAILORBIRD_HOME"]) / "checkpoints").rglob("*"), reverse=True):
        folder.rmdir() if folder.is_dir() else folder.unlink()
