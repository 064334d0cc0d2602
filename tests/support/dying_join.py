"""Run a join whose driver dies by SIGKILL: `python -m tests.support.dying_join BATCH [OPTION…] TOPOLOGY`.

It dies right after the writes of the first batch that is not below BATCH, before any of them is committed.
"""

from __future__ import annotations

import os
import signal
import sys

from joins.__main__ import main
from joins.engine.spark_query import BatchSink
from joins.runtime.sink import Report


def dying_at(wanted: int) -> None:
    """Kill the process after the writes of the first batch that is not below `wanted`."""
    keep = BatchSink.keep

    def dies(self: BatchSink, batch: int, report: Report) -> None:
        if batch < wanted:
            keep(self, batch, report)
            return
        print(f"dying after the writes of batch {batch}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    BatchSink.keep = dies  # type: ignore[method-assign]


if __name__ == "__main__":
    dying_at(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
