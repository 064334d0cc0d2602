"""Commit the records of one session with checkpoints, and keep the schema history short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cdc.model.history import Record as HistoryRecord
from ingest.capture.capture_parts import CaptureParts
from ingest.capture.marks import SLACK, Marks, least_records, rewrite_history
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import FROM, REREAD, Checkpoint
from ingest.records.waiting import WAITS, keep, reasons
from ingest.repair.rounds import RepairRunner


class Commits:
    """Commits what a session has appended to the log.

    `last` is the session's last checkpoint, as written. `marks` are the positions noted in the schema history.
    """

    def __init__(self, parts: CaptureParts, marks: Marks) -> None:
        self._parts, self.marks = parts, marks
        self.last: Checkpoint | None = None

    def tidy(
        self, checkpoint: Checkpoint, found: Sequence[HistoryRecord], tables: Tables, repairs: RepairRunner
    ) -> Checkpoint:
        """Remove marks whose log is gone. Rewrite the history if most of it is superfluous, or if it contains what the
        host's policy keeps on the host."""
        forgotten = self.marks.forget(self._parts.source.holds)
        self._parts.log.extend(self._parts.recorder.history(forgotten))
        known, tables.written = self.marks.known, 0
        oldest = known[0].position if known else checkpoint.position
        limit = tables.restriction
        allowed = [limit.record(one) for one in found] if limit else found
        leaks = limit is not None and any(was != now for was, now in zip(found, allowed, strict=True))
        # decoding all tables takes seconds, so their number is compared first
        if leaks or len(found) > 2 * least_records(allowed, tables.source) + SLACK:
            again = rewrite_history(allowed, tables.source, oldest, known)
        else:
            again = None
        if again is None or (not leaks and len(found) <= 2 * len(again.records) + SLACK):
            # commit at once: an idle source might commit next after Kafka's transaction timeout
            return self.commit(checkpoint, repairs, checkpoint.state.get("signals")) if forgotten else checkpoint
        self._parts.observer.phase("history rewritten", records=len(found), now=len(again.records))
        removed = [record for record in allowed if record[1] is None]
        self._parts.log.extend(self._parts.recorder.history([*removed, *again.gone]))
        self._parts.log.restate(self._parts.recorder.history(again.records))
        tables.forget(oldest)
        return self.commit(checkpoint, repairs, checkpoint.state.get("signals"))

    def commit(self, checkpoint: Checkpoint, repairs: RepairRunner, signals: int | None = None) -> Checkpoint:
        """Commit the appended records with the state of snapshots and repairs. Returns the complete checkpoint."""
        snapshots = repairs.snapshots
        state: dict[str, Any] = {**checkpoint.state, "snapshots": snapshots.state, "partial": snapshots.incomplete}
        state.pop("mends", None)
        state.pop("left_out", None)
        state.pop(WAITS, None)
        if snapshots.waits:
            if keep(snapshots.waits, (*snapshots.state, *(table.name for table in repairs.open))):
                self._parts.observer.waits(reasons(snapshots.waits))
            state |= {WAITS: dict(snapshots.waits)} if snapshots.waits else {}
        if not repairs.snapshots:
            state.pop(REREAD, None)
        if repairs.tables.passed:
            state["left_out"] = dict(repairs.tables.passed)
        if repairs.state:
            state["mends"] = repairs.state
        if signals is not None:
            state["signals"] = signals
        state = self._parts.recorder.phases.state(state)
        state = self._parts.recorder.truncation_points.state(state)
        reading = repairs.snapshots.initial or FROM in state
        checkpoint = replace(checkpoint, snapshot="running" if reading else "done", state=state)
        self._parts.log.extend(self._parts.recorder.history(self.marks.due(checkpoint, self._parts.clock())))
        self._parts.log.commit(checkpoint)
        self.last = checkpoint
        self._parts.source.release(checkpoint.position)
        repairs.committed()
        self._parts.observer.committed(checkpoint)
        return checkpoint
