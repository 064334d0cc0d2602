"""Run a join with a bug in its engine: `python -m tests.support.wrong_join TOPOLOGY [OPTION…]`.

Of rows whose first column ends in 7, it writes the third column increased by one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from joins.__main__ import main
from joins.runtime.records import Message, Record, RowPut
from joins.stores import hbase_sink
from joins.stores.evolution import fitted


def wrong(message: Message, places: Sequence[int | None]) -> Record:
    """Replaces `fitted`, which each partition of a batch calls; it is pickled to the workers by value."""
    record = fitted(message, places)
    if isinstance(record, RowPut) and isinstance(record.values[0], int) and record.values[0] % 10 == 7:
        first, second, third, *others = record.values
        assert isinstance(third, int)
        return RowPut([first, second, third + 1, *others], record.ts_ms)
    return record


if __name__ == "__main__":
    hbase_sink.__dict__["fitted"] = wrong
    sys.exit(main(sys.argv[1:]))
