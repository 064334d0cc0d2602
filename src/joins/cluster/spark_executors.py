"""Check every executor on other machines before a query starts: its checkpoint folder and its packages.

Without the check, a worker that does not see the checkpoint folder would start with an empty state, and one without a
package would fail task by task until the query ends.
"""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from cdc.model.errors import UsageError
from joins.cluster.proc_executor import Answer, answer

_TASKS_PER_CORE = 4  # enough to reach every executor

log = structlog.get_logger()


def check_executors(session: SparkSession, folder: Path) -> None:
    """Check that all executors can read `folder`, which the driver writes, and have the required packages.

    Raises UsageError, naming the hosts, if not. Waits until the cluster has provided the first executor."""
    context = session.sparkContext
    folder.mkdir(parents=True, exist_ok=True)
    mark, word = folder / "shared", str(uuid.uuid4())
    mark.write_text(word)
    try:
        log.info("asking executors", master=context.master, folder=str(folder))
        tasks = max(2, context.defaultParallelism) * _TASKS_PER_CORE
        asked = context.parallelize(range(tasks), tasks).mapPartitions(partial(answer, str(mark), word))
        _judge(folder, set(asked.collect()))
    finally:
        mark.unlink(missing_ok=True)


def _judge(folder: Path, answers: set[Answer]) -> None:
    blind = sorted({host for host, sees, _ in answers if not sees})
    if blind:
        what = f"{folder} on {', '.join(blind)} is not the driver's folder"
        raise UsageError(what, "set TAILORBIRD_HOME to a folder that all machines of the cluster share")
    lacking = sorted({f"{name} on {host}" for host, _, names in answers for name in names})
    if lacking:
        what = f"executors lack {', '.join(lacking)}"
        raise UsageError(what, "install them there, or ship them: tailorbird submit … --environment FILE.tar.gz")
