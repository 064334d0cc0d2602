"""Set how often a process that handles many records collects garbage."""

from __future__ import annotations

import gc

# objects until a collection, collections until one of older objects, and those until one of all objects
_THRESHOLDS = (50_000, 20, 100)


def collect_rarely() -> None:
    """Let Python look for cycles of garbage only every 50,000 objects, for the rest of the process.

    With Python's own numbers, a batch of ten thousand records is traversed several times while it is processed, which
    takes a tenth of the ledger's time. A capture that starts with thousands of tables traverses them again and again,
    which takes a third of its time.
    """
    gc.set_threshold(*_THRESHOLDS)
