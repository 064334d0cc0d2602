"""A change log that traces sampled changes: from the COMMIT at the source to the commit in the log it wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import orjson

from cdc.otel.stages import CAPTURE, GATEWAY, Stage, TracedChange
from ingest.log.passing_log import L, PassingLog
from ingest.records.capture_interfaces import Checkpoint, Record, SessionLog

_SEQUENCE = b'"sequence":'
_MOST = 1000  # traced changes of one commit
_OPS = ("c", "u", "d")  # rows of snapshots have no COMMIT


class SpanSender(Protocol):
    """Sends spans; `cdc.otel.http_spans.Tracer` implements it."""

    @property
    def sampling(self) -> Any: ...

    def span(
        self,
        change: TracedChange,
        stage: Stage,
        *,
        parent: Stage | None,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, str | int],
    ) -> None: ...


class TracedLog(PassingLog[L]):
    """Passes every call to `log`. After a commit it sends the span of each sampled change.

    The span of `capture` begins at the COMMIT, that of `gateway` when the gateway has received the change."""

    def __init__(
        self, log: L, source: str, tracer: SpanSender, clock_ns: Callable[[], int], stage: Stage = CAPTURE
    ) -> None:
        super().__init__(log)
        self._source, self._tracer, self._clock_ns, self._stage = source, tracer, clock_ns, stage
        self._traced = dict[int, tuple[TracedChange, int, str]]()

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`."""
        listed = list(records)
        if len(self._traced) < _MOST:
            for record in listed:
                self._look(record)
        self.log.extend(listed)

    def _look(self, record: Record) -> None:
        value = record.value
        # the envelope writes it after both images of the row
        if value is None or (at := value.rfind(_SEQUENCE)) < 0:
            return
        start = at + len(_SEQUENCE)
        digits = value[start : start + 20].split(b"}")[0].split(b",")[0]
        if not digits.isdigit() or (change := self._tracer.sampling.change(self._source, int(digits))) is None:
            return
        envelope = orjson.loads(value)
        origin = envelope.get("source")
        if envelope.get("op") not in _OPS or not isinstance(origin, dict) or origin.get("sequence") != change.sequence:
            return
        began = self._clock_ns() if self._stage == GATEWAY else int(origin["ts_ms"]) * 1_000_000
        self._traced.setdefault(change.sequence, (change, began, record.topic))

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`."""
        self.log.commit(checkpoint)
        if not self._traced:
            return
        ended = self._clock_ns()
        for change, began, topic in self._traced.values():
            position = checkpoint.position
            self._tracer.span(
                change, self._stage,
                parent=None if self._stage == CAPTURE else CAPTURE,
                began_ns=began, ended_ns=ended,
                attributes={
                    "messaging.system": "kafka", "messaging.destination.name": topic,
                    "tailorbird.commit.file": position.file, "tailorbird.commit.pos": position.pos,
                    "tailorbird.commit.sequence": position.sequence,
                },
            )  # fmt: skip
        self._traced.clear()

    def abort(self) -> None:
        """Implements `ChangeLog.abort`."""
        self._traced.clear()
        self.log.abort()


class TracedSessionLog(TracedLog[SessionLog]):
    """The same for a gateway's session."""

    def undelivered(self, seconds: float = 0.0) -> int:
        """Pass the call to the log."""
        return self.log.undelivered(seconds)
