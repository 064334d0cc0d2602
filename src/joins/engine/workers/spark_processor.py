"""Define a stateful operator of the portable engine that starts fast.

Before the first batch of a query Spark starts a process per stateful operator, one after the other, only to ask for its
states, and allows each ten seconds to start. So this module imports only what that process has anyway, and the
operator's work stays pickled until rows arrive.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

# (the map of states, frames of rows) → frames
Work = Callable[[Any, Iterator[Any]], Iterator[Any]]


class StepProcessor(StatefulProcessor):
    """Runs pickled work on the rows of a bucket; the entries of its keys are values of a map."""

    def __init__(self, work: Work) -> None:
        self._pickled: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]  # as it is published

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = handle.getMapState("states", "k binary", "state binary")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        return self._work(self._states, rows)

    @cached_property
    def _work(self) -> Work:
        work: Work = pickle.loads(self._pickled)
        return work
