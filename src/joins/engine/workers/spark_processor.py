"""A stateful operator of the Python engine that starts fast.

Before the first batch, Spark starts a process for each stateful operator, one after the other, to ask for its state
variables. So this module imports only what that process has already. The operator's work stays pickled until rows
arrive."""

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
    """Runs pickled work on the rows of a bucket. The state of its keys is one map variable."""

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
