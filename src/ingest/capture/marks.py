"""Marks: stored checkpoints to which an operator can set a capture back (`tailorbird rewind`).

Marks are records in the topic of the schema history. After a rewind, capture reads the log again from the mark and
gives each change the same sequence number as before. So consumers that order by `source.sequence` ignore the repeated
changes. A few numbers may differ: of rows that were decoded late, or of a table that was added to the topology. After
the position from before the rewind, all numbers are above those used earlier, so that a new change always wins.

A mark is kept as long as the source's log can be read from it. The history contains all changes since the oldest mark.
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
from cdc.packed import unpacked
from ingest.binlog.format.gtid import covers, parse_gtid_set
from ingest.events.log_place import LogPlace
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import checkpoint_value, read_checkpoint

KIND = "mark"
MOST = 200  # maximum number of marks per source; above it, every second one of the older half is removed
REPLAYED = "replayed"  # key in a checkpoint's state: the position reached before the rewind
SLACK = 500  # superfluous records that cause a rewrite of the history


@dataclass(slots=True, kw_only=True)
class Marks:
    """The marks of one source.

    A new one is due after `changes` changes, or `seconds` after the last one if anything changed.
    """

    source: str = ""
    changes: int = 100_000
    seconds: float = 300.0
    known: list[Checkpoint] = field(default_factory=list)
    _last: float = 0.0

    def restore(self, source: str, found: Iterable[Record]) -> None:
        """Load the marks from records of the history. Raises Fatal for a mark of a newer format."""
        self.source, self.known = source, marks_of(found, source)

    def due(self, checkpoint: Checkpoint, now: float) -> list[Record]:
        """Return the record of a new mark at this checkpoint, if one is due, and tombstones of removed marks."""
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
        """Return tombstones of the oldest marks from which the source's log can no longer be read."""
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
    return str(orjson.loads(key)[0])


def marks_of(found: Iterable[Record], source: str) -> list[Checkpoint]:
    """Return the marks in records of the history, oldest first. Raises Fatal for a mark of a newer format."""
    marks = [
        read_checkpoint(orjson.dumps(unpacked(value)))[0]
        for key, value in dict(found).items()
        if value is not None and orjson.loads(key)[:2] == [KIND, source]
    ]
    return sorted(marks, key=lambda mark: mark.position.sequence)


def is_up_to(mark: Checkpoint, place: LogPlace) -> bool:
    """Return whether a mark is at or before a place, so that everything that the log contains from the place on comes
    after it. False if that is not certain."""
    at = mark.position
    if place.gtids is not None:
        # a mark without GTIDs is only known to be before all of them if it is the beginning
        return covers(place.gtids, parse_gtid_set(at.gtid_set)) if at.gtid_set else not at.file
    if place.micros is not None:
        return mark.ts_ms * 1000 < place.micros
    return (at.file, at.pos) <= (place.file, place.pos)


def is_ahead(place: LogPlace, newest: Checkpoint, now_ms: float) -> bool:
    """Return whether a place is after everything that a capture has read, up to its checkpoint `newest`."""
    at = newest.position
    if place.gtids is not None:
        return bool(at.gtid_set) and not covers(parse_gtid_set(at.gtid_set), place.gtids)
    if place.micros is not None:
        return place.micros > now_ms * 1000
    # another server may name its files differently
    same = place.file.rpartition(".")[0] == at.file.rpartition(".")[0]
    return same and (place.file, place.pos) > (at.file, at.pos)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenHistory:
    """Records that replace the stored history of a source.

    `records` are the whole history: readers may start at the first one. `gone` are tombstones of older records, so that
    compaction removes them; append them first, in the same commit.
    """

    gone: list[Record]
    records: list[Record]


def rewrite_history(
    found: Iterable[Record], source: str, position: Position, marks: Iterable[Checkpoint]
) -> RewrittenHistory:
    """Return a compact history: the state of each table at `position`, all later changes, and the marks.

    Afterwards no capture can be set back to before `position`. Raises ValueError for records of a newer format.
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
    return RewrittenHistory(
        gone=[(key, None) for key in records if key in gone],
        records=[*kept, *changes, *(_record(mark, source) for mark in marks)],
    )


def least_records(found: Iterable[Record], source: str) -> int:
    """Return a lower bound of the number of records of a rewritten history: the number of tables and databases."""
    keys = (orjson.loads(key) for key, value in found if value is not None)
    return len({tuple(key[1:4]) for key in keys if key[0] in ("state", "change") and key[1] == source})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A rewind of a capture: the checkpoint to resume from, and the history as of that checkpoint."""

    checkpoint: Checkpoint
    history: RewrittenHistory


def rewound(found: Iterable[Record], source: str, newest: Checkpoint, to: Checkpoint) -> Rewind:
    """Return the rewind of a capture from its `newest` checkpoint to the mark `to`.

    Schema changes after the mark are removed from the history; reading the log again applies them. Signals are not
    executed again. Raises UsageError if the mark is later than `newest`, Fatal or ValueError for records of a newer
    format.
    """
    if to.position.sequence > newest.position.sequence:
        raise UsageError(
            f"sequence {to.position.sequence} is not reached yet: the capture is at {newest.position.sequence}",
            "list the positions with: tailorbird rewind TOPOLOGY --source NAME",
        )
    records = {key: value for key, value in found if value is not None}
    later = [key for key, value in records.items() if _kind(key) in ("change", KIND) and _number(key) > _at(to)]
    kept = {key: value for key, value in records.items() if key not in later}
    marks = marks_of(kept.items(), source)
    oldest = marks[0].position if marks else to.position
    state = {**to.state, REPLAYED: replayed(newest)}
    if "signals" in newest.state:
        state["signals"] = newest.state["signals"]
    history = rewrite_history(kept.items(), source, oldest, marks)
    return Rewind(
        checkpoint=replace(to, state=state),
        history=replace(history, gone=[*history.gone, *((key, None) for key in later)]),
    )


def replayed(newest: Checkpoint) -> dict[str, Any]:
    """Return the state that a checkpoint after a rewind contains: the furthest position ever reached."""
    known = newest.state.get(REPLAYED)
    if known is not None and known["sequence"] >= newest.position.sequence:
        return dict(known)
    at = newest.position
    return {"file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "sequence": at.sequence}


def reached_before(checkpoint: Checkpoint) -> Position | None:
    """Return the position that capture had reached before a rewind; None if it has been reached again."""
    known = checkpoint.state.get(REPLAYED)
    return None if known is None else Position(**known)


def check_replay(checkpoint: Checkpoint, held: Callable[[Position], bool]) -> None:
    """Raise Fatal if a capture that was set back can never reach its earlier position: the server's log does not
    contain it.

    This happens only if an operator set the capture back, and then connected it to another server.
    """
    place = reached_before(checkpoint)
    if place is not None and not held(place):
        raise Fatal(
            f"the capture was set back from sequence {place.sequence}, and this server does not have the log "
            f"up to there ({place.gtid_set or f'{place.file}:{place.pos}'})",
            "connect the source to the previous server, or take a new snapshot under a new topology name",
        )


def _number(key: str) -> int:
    return int(orjson.loads(key)[-1])


def _at(mark: Checkpoint) -> int:
    return mark.position.sequence
