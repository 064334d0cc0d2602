"""Older positions that a capture can be set back to, each with the sequence number that held there; pure.

A mark is a checkpoint kept in the topic of the schema history. Set back to one, a capture reads the log again and gives
every change the number that it had before, so that whoever orders by `source.sequence` drops the replay. Where the
numbers cannot be the same (rows that were decoded late, a table that the topology names since), they may run behind or
ahead for a while; behind the place that was reached before they go on above all that was given (`REPLAYED`), so that a
new change always wins.

Marks live as long as the source's log can be read from them. The history keeps what happened since the oldest one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from cdc.model.errors import Fatal, UsageError
from cdc.model.event import Position
from cdc.model.history import Record, checkpoint, history_from_records
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import checkpoint_value, read_checkpoint

KIND = "mark"
MOST = 200  # marks of one source; beyond, every second one of the older half is forgotten
REPLAYED = "replayed"  # in a checkpoint's state: the position that was reached before the capture was set back
SLACK = 500  # records of the history that may be superfluous before it is written anew


@dataclass(slots=True, kw_only=True)
class Marks:
    """The marks of one source. A new one is due after so many changes, or so many seconds if there were any."""

    source: str = ""
    changes: int = 100_000
    seconds: float = 300.0
    known: list[Checkpoint] = field(default_factory=list)
    _last: float = 0.0

    def restore(self, source: str, found: Iterable[Record]) -> None:
        """Take those that a log holds."""
        self.source, self.known = source, marks_of(found, source)

    def due(self, checkpoint: Checkpoint, now: float) -> list[Record]:
        """Records of a mark at a checkpoint about to be committed, if it is time; and of those that are forgotten."""
        number = checkpoint.position.sequence
        last = self.known[-1].position.sequence if self.known else -self.changes
        late = now - self._last >= self.seconds and number > last
        if checkpoint.open is not None or not (late or number - last >= self.changes):
            return []
        self._last = now
        self.known.append(checkpoint)
        forgotten: list[Checkpoint] = []
        if len(self.known) > MOST:
            forgotten = self.known[1 : MOST // 2 : 2]
            self.known = [mark for mark in self.known if mark not in forgotten]
        return [_record(checkpoint, self.source), *(_tombstone(mark, self.source) for mark in forgotten)]

    def forget(self, held: Callable[[Position], bool]) -> list[Record]:
        """Records that forget the marks, oldest first, from which the source's log cannot be read any more."""
        gone: list[Record] = []
        while self.known and not held(self.known[0].position):
            gone.append(_tombstone(self.known.pop(0), self.source))
        return gone


def _key(source: str, number: int) -> str:
    return json.dumps([KIND, source, number])


def _record(mark: Checkpoint, source: str) -> Record:
    return _key(source, mark.position.sequence), orjson.loads(checkpoint_value(mark, source, {}))


def _tombstone(mark: Checkpoint, source: str) -> Record:
    return _key(source, mark.position.sequence), None


def _kind(key: str) -> str:
    return str(json.loads(key)[0])


def marks_of(found: Iterable[Record], source: str) -> list[Checkpoint]:
    """The marks among records of the history, oldest first."""
    marks = [
        read_checkpoint(orjson.dumps(value))[0]
        for key, value in dict(found).items()
        if value is not None and json.loads(key)[:2] == [KIND, source]
    ]
    return sorted(marks, key=lambda mark: mark.position.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restated:
    """A history written anew. Whoever reads from the first of `records` on knows all; `gone` are tombstones that let
    Kafka's compaction forget what stands before, to be written first, in the same commit."""

    gone: list[Record]
    records: list[Record]


def restated(found: Iterable[Record], source: str, position: Position, marks: Iterable[Checkpoint]) -> Restated:
    """A history and its marks anew: one state of each table as of `position`, then what happened since.

    Nobody returns to a place before `position` afterwards.
    """
    records = {key: value for key, value in found if value is not None}
    history = history_from_records(records.items(), source)
    states = list(checkpoint(history, position))
    gone = {key for key, value in states if value is None}
    changes = [
        (key, value)
        for key, value in records.items()
        if _kind(key) == "change" and key not in gone and value["sequence"] > position.sequence
    ]
    changes.sort(key=lambda record: int((record[1] or {})["sequence"]))
    kept = [(key, value) for key, value in states if value is not None]
    return Restated(
        gone=[(key, None) for key in records if key in gone],
        records=[*kept, *changes, *(_record(mark, source) for mark in marks)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """What sets a capture back: the checkpoint to go on from, and the history as it was there."""

    checkpoint: Checkpoint
    history: Restated


def rewound(found: Iterable[Record], source: str, newest: Checkpoint, to: Checkpoint) -> Rewound:
    """Set a capture at `newest` back to a mark. What the log told of tables since will be folded again as it is read.

    The signals that were obeyed stay obeyed. UsageError for a place that is not older.
    """
    if to.position.sequence > newest.position.sequence:
        raise UsageError(
            f"sequence {to.position.sequence} is not reached yet: the capture stands at {newest.position.sequence}",
            "tailorbird rewind TOPOLOGY --source NAME lists the places",
        )
    records = {key: value for key, value in found if value is not None}
    later = [key for key, value in records.items() if _kind(key) in ("change", KIND) and _number(key) > _at(to)]
    kept = {key: value for key, value in records.items() if key not in later}
    marks = marks_of(kept.items(), source)
    oldest = marks[0].position if marks else to.position
    state = {**to.state, REPLAYED: replayed(newest)}
    if "signals" in newest.state:
        state["signals"] = newest.state["signals"]
    history = restated(kept.items(), source, oldest, marks)
    return Rewound(
        checkpoint=replace(to, state=state),
        history=replace(history, gone=[*history.gone, *((key, None) for key in later)]),
    )


def replayed(newest: Checkpoint) -> dict[str, Any]:
    """How far a capture had come at most, and the number it had given there, as a checkpoint's state keeps it."""
    known = newest.state.get(REPLAYED)
    if known is not None and known["sequence"] >= newest.position.sequence:
        return dict(known)
    at = newest.position
    return {"file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "sequence": at.sequence}


def reached_before(checkpoint: Checkpoint) -> Position | None:
    """The place that a capture which was set back had reached before, as long as it has not come there again."""
    known = checkpoint.state.get(REPLAYED)
    return None if known is None else Position(**known)


def check_replay(checkpoint: Checkpoint, held: Callable[[Position], bool]) -> None:
    """Fatal where a capture that was set back could never come to the place at which its numbers go on.

    The content of a log cannot cause this: a person set the capture back, and pointed it at another server since.
    """
    place = reached_before(checkpoint)
    if place is not None and not held(place):
        raise Fatal(
            f"the capture was set back from sequence {place.sequence}, and this server does not hold what was read "
            f"until there ({place.gtid_set or f'{place.file}:{place.pos}'})",
            "point the source at the server that was read, or take a new snapshot under a new topology name",
        )


def _number(key: str) -> int:
    return int(json.loads(key)[-1])


def _at(mark: Checkpoint) -> int:
    return mark.position.sequence
