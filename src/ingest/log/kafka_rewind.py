"""Set the capture of a source back to one of its marks, with the schema history as of that mark (`tailorbird
rewind`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cdc.model.errors import UsageError
from cdc.topology.topology import Source, Topology
from ingest.capture.marks import is_ahead, is_up_to, marks_of, rewound
from ingest.events.log_place import LogPlace, time_text
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import Recorder


def kept_positions(topology: Topology, source: Source) -> list[Checkpoint]:
    """Return the marks to which a capture can be set back, oldest first; none for sources without a binary log. A
    running capture is not disturbed."""
    if _refusal(source) is not None:
        return []
    with _log(topology, source) as log:
        return marks_of(log.peek().history, source.name)


def set_back(
    topology: Topology, source: Source, sequence: int | None, ts_ms: float | None, place: LogPlace | None = None
) -> Checkpoint:
    """Set a capture back to its newest mark with at most this sequence number, a commit time before `ts_ms`, and
    nothing of the log from `place` on.

    Returns the mark. This is one Kafka transaction, which fences a running capture. Raises UsageError if no mark is old
    enough, the capture has not reached the time or place, or the source has no binary log.
    """
    refusal = _refusal(source)
    if refusal is not None:
        raise refusal
    now_ms = time.time() * 1000
    if ts_ms is not None and place is None:
        micros = round(ts_ms * 1000)
        place = LogPlace(micros=micros, text=time_text(micros))
    with _log(topology, source) as log:
        recovered = log.recover()
        if recovered.checkpoint is None:
            raise UsageError(f"source {source.name} was never captured", "tailorbird capture")
        known = marks_of(recovered.history, source.name)
        if place is not None and is_ahead(place, recovered.checkpoint, now_ms):
            at = recovered.checkpoint.position
            what = f"source {source.name} has not reached {place.text}: it is at {at.gtid_set or f'{at.file}:{at.pos}'}"
            raise UsageError(what, f"choose an earlier place or time; {_held(known)}")
        marks = [
            mark
            for mark in known
            if (sequence is None or mark.position.sequence <= sequence) and (place is None or is_up_to(mark, place))
        ]
        if not marks:
            what = f"source {source.name} has no kept position that is old enough; {_held(known)}"
            remedy = "run the command without a position to list them, or capture under a new topology name with --from"
            raise UsageError(what, remedy)
        back = rewound(recovered.history, source.name, recovered.checkpoint, marks[-1])
        recorder = Recorder(topology.name, source.type)
        log.extend(recorder.history(back.history.gone))
        log.restate(recorder.history(back.history.records))
        log.commit(back.checkpoint)
        return back.checkpoint


def _refusal(source: Source) -> UsageError | None:
    """Return why a source can never be set back; None if it can."""
    again = "read its tables again: tailorbird snapshot, or tailorbird fleet dump"
    if source.type == "postgresql":
        return UsageError(
            f"source {source.name} is PostgreSQL: its slot has released the log before its position", again
        )
    if source.poll is not None:
        return UsageError(f"source {source.name} is polled: it has no log", again)
    if source.is_only_reported:
        what = f"source {source.name} is of type {source.type}, and its older positions are not stored"
        return UsageError(what, "choose a source that is captured from its log")
    return None


def _held(known: Sequence[Checkpoint]) -> str:
    if not known:
        return "no position is kept"
    return "kept positions are from {} to {}".format(
        *(time_text(mark.ts_ms * 1000) if mark.ts_ms else "the beginning" for mark in (known[0], known[-1]))
    )


@contextmanager
def _log(topology: Topology, source: Source) -> Iterator[KafkaLog]:
    log = KafkaLog(topology, source, make_topics(topology, source))
    try:
        yield log
    finally:
        log.close()
