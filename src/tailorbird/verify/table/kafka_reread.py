"""Let captures publish source rows again, and wait until the join has written the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdc.model.event import Position
from cdc.topology.topology import Topology
from ingest.capture.signals import signal_value
from ingest.log.kafka_signals import send
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.operate.wait.goal import Goal, shows
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.rereads import TableReread
from tailorbird.verify.table.table_stage import Row

_POLL = 0.1
Reached = Callable[[], Mapping[str, Mapping[str, Any]]]


class RereadRequester:
    """Requests re-reads for one joined table (implements `table_repair.RereadRequests`).

    `plan` returns the source rows to read for some rows of the table. `reached` returns the positions in the table's
    barrier. Raises Retriable while Kafka or HBase is unavailable."""

    def __init__(
        self,
        topology: Topology,
        plan: Callable[[Sequence[Row]], Sequence[TableReread]],
        reached: Reached,
        *,
        settling: SettlingPolicy,
    ) -> None:
        self._topology, self._plan, self._reached, self._settling = topology, plan, reached, settling

    def report(self, rows: Sequence[Row]) -> str:
        """Request the source rows of some rows, and wait until the table contains the results. Return why not, or an
        empty text."""
        with PositionsReader(self._topology) as log:
            for one in self._plan(rows):
                name = one.table.name
                signal = send(self._topology, one.table.source, signal_value("execute-snapshot", (name,), one.where))
                if reason := self._reported(log, one.table.source, name, signal):
                    return reason
        return ""

    def _reported(self, log: PositionsReader, source: str, name: str, signal: int) -> str:
        """Wait until the table contains the rows that a signal requested. Return the reason if it does not, or an
        empty text."""
        record: CapturedPosition | None = None
        self._settling.begin(time.monotonic())
        while True:
            if record is None:
                captured = log.read().get(source)
                under_way = captured and captured.snapshots.get(name)
                if captured is not None and captured.signals > signal and under_way is None:
                    record = captured
                moved: object = captured and (captured.signals, repr(under_way))
                what = f"the capture of {source} has not read {name} again: check it with `tailorbird status`"
            else:
                positions = self._reached()
                at = Position(file=record.file, pos=record.pos, gtid_set=record.gtid_set, sequence=record.sequence)
                if shows(positions, Goal(source=source, position=at), record):
                    return ""
                moved = positions.get(source)
                what = f"the join has not written the rows that {source} sent again: check it with `tailorbird status`"
            if self._settling.used_up(moved, time.monotonic()):
                return what
            time.sleep(_POLL)
