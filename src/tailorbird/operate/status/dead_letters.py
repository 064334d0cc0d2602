"""List the dead letters of all stages: the row, the reason, the remedy, and whether it is settled.

A dead letter is open until a later record settles it (`cdc.model.dead_letter_end`). If the same row is refused again
afterwards, the dead letter is open again."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from cdc.model.dead_letter_end import STAGE as SETTLED
from cdc.model.dead_letter_end import place_of
from cdc.model.naming import dead_letter_topic
from cdc.process.kafka_foreign import MALFORMED, ignored

LEFT_OUT = "left out"  # the stage of tables that captures leave out until the reason no longer holds
WAITING = "waiting"  # the stage of tables whose replica cannot be read for now
QUARANTINE = "quarantine"  # the stage of rows that captures cannot decode (tailorbird.operate.status.quarantine)


class DeadLetterRecord(NamedTuple):
    """A record of the dead-letter topic, with the time (ms) and the offset at which it was written."""

    key: bytes | None
    value: bytes | None
    at_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A refused row, and the place where it is missing: `stage` and `of` (a captured table, joined table or index).

    The row was refused `count` times between `first_ms` and `last_ms`, always with the same `id`. `key` is the row's
    key as far as it can be shown. `table` is its captured table, if known. `reads`: rows of that table can be read
    again. `settled` says how it was settled; it is empty while the dead letter is open."""

    id: str
    stage: str
    of: str
    key: str
    position: str
    reason: str
    table: str
    reads: bool
    first_ms: int
    last_ms: int
    count: int
    partition: int
    offset: int
    settled: str = ""
    settled_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDeadLetters:
    """The number of open dead letters of one stage and one table or index, and the reason of the newest."""

    stage: str
    of: str
    dead_letters: int
    reason: str


def dead_letter_of(topology: str, record: DeadLetterRecord) -> DeadLetterRow:
    """Parse a record. A record in an unknown format becomes a dead letter of stage `unknown`."""
    reported = value_of(record)
    stage = str(reported.get("stage", "unknown"))
    table, reads = "", False
    if stage == "capture":
        table, reads = str(reported.get("table")), True
        of, key = table, _shown(reported.get("values", {}))
        position = f"{reported.get('file')}:{reported.get('pos')} row {reported.get('row')}"
        identity = [table, reported.get("values")]
        reason = str(reported.get("why"))
    elif stage == "join":
        of, reason = str(reported.get("table")), str(reported.get("reason"))
        topic = str(reported.get("topic"))
        if reads := topic.startswith(f"{topology}."):
            table = topic.removeprefix(f"{topology}.")
            position = f"{topic} {reported.get('partition')}:{reported.get('offset')}"
        else:
            position = f"batch {reported.get('batch')}, {topic}"
        raw = reported.get("key") or (None if reads else reported.get("value"))
        key = _decoded(raw)
        identity = [
            of,
            topic,
            reported.get("partition"),
            reported.get("offset"),
            None if reads else [raw, reported.get("value")],
        ]
    elif stage == "indexer" and _hex(reported.get("row")) is not None:
        of, key, reason = str(reported.get("index")), str(reported.get("row")), str(reported.get("reason"))
        position = f"version {reported.get('version')}"
        identity = [of, key]
    else:
        stage, of, key, position = "unknown", "", _text(record.key or b""), f"{record.partition}:{record.offset}"
        identity, reason = [record.partition, record.offset], "its format is not known to this version"
    known = hashlib.sha256(json.dumps([stage, *identity]).encode()).hexdigest()[:10]
    return DeadLetterRow(
        id=known, stage=stage, of=of, key=key, position=position, reason=reason, table=table, reads=reads,
        first_ms=record.at_ms, last_ms=record.at_ms, count=1, partition=record.partition, offset=record.offset,
    )  # fmt: skip


def value_of(record: DeadLetterRecord) -> Mapping[str, Any]:
    """Return the record's JSON object; empty if it is not one, or too deep to be written again."""
    try:
        found = orjson.loads(record.value or b"null")
        orjson.dumps(found)  # a foreign record may be deeper than what `json` can write later
    except MALFORMED:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(values: object) -> str:
    text = json.dumps(values, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


def _decoded(raw: object) -> str:
    """Decode base64 to text, or to hexadecimal if the bytes are not text."""
    found = _base64(raw or "")
    return str(raw) if found is None else _text(found)


def _base64(raw: object) -> bytes | None:
    """Decode base64; None if it is not valid, as in a foreign record."""
    try:
        return base64.b64decode(str(raw))
    except ValueError:
        return None


def _hex(raw: object) -> bytes | None:
    """Decode hexadecimal; None if it is not valid, as in a foreign record."""
    try:
        return bytes.fromhex(str(raw))
    except ValueError:
        return None


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw.hex()
    return text if text.isprintable() else raw.hex()


class DeadLetterList:
    """Collects records of the topic in order. At most `keep` dead letters are kept with all details (None: all)."""

    def __init__(self, topology: str, *, keep: int | None = None, only: Callable[[str], bool] | None = None) -> None:
        self._topology, self._keep, self._only = topology, keep, only
        # count, partition and offset of the last one, and the key of its row
        self._waiting: dict[tuple[str, str], dict[str, tuple[int, int, int, str]]] = defaultdict(dict)
        self._newest: dict[tuple[str, str], DeadLetterRow] = {}
        self._whole: dict[str, DeadLetterRow] = {}
        self._settled: dict[str, DeadLetterRow] = {}

    def add(self, record: DeadLetterRecord) -> None:
        """Add the next record of the topic."""
        reported = value_of(record)
        if reported.get("stage") == SETTLED:
            try:
                self._settle(reported, record.at_ms)
            except MALFORMED as error:
                topic = dead_letter_topic(self._topology)
                ignored(topic, record.offset, error, reported, record.partition)
            return
        dead_letter = dead_letter_of(self._topology, record)
        place = dead_letter.stage, dead_letter.of
        before = self._whole.pop(dead_letter.id, None)
        count = self._waiting[place].get(dead_letter.id, (0,))[0] + 1
        self._waiting[place][dead_letter.id] = count, record.partition, record.offset, place_of(reported)
        self._settled.pop(dead_letter.id, None)
        dead_letter = replace(dead_letter, count=count, first_ms=before.first_ms if before else dead_letter.first_ms)
        self._newest[place] = dead_letter
        if self._only is None or self._only(dead_letter.id):
            self._whole[dead_letter.id] = dead_letter
            _shorten(self._whole, self._keep)

    def _settle(self, reported: Mapping[str, Any], at_ms: int) -> None:
        how = str(reported.get("how", "settled"))
        if "of" in reported:
            stage, name = reported["of"]
            gone = list(self._waiting.pop((stage, name), ()))
        elif "row" in reported:
            stage, name, key = reported["row"]
            ids = self._waiting[stage, name]
            upto = reported.get("upto")
            gone = [each for each, at in ids.items() if at[3] == key and (upto is None or at[2] <= upto)]
            for each in gone:
                del ids[each]
        else:
            gone = []
            for each, (partition, offset) in reported.get("ids", {}).items():
                for ids in self._waiting.values():
                    if each in ids and ids[each][1] == partition and ids[each][2] <= offset:
                        del ids[each]
                        gone.append(each)
        for each in gone:
            if (dead_letter := self._whole.pop(each, None)) is not None:
                self._settled[each] = replace(dead_letter, settled=how, settled_ms=at_ms)
        _shorten(self._settled, self._keep)

    @property
    def dead_letters(self) -> list[DeadLetterRow]:
        """Return the open dead letters whose details are kept, newest first."""
        return sorted(self._whole.values(), key=lambda one: (-one.last_ms, -one.offset))

    @property
    def settled(self) -> list[DeadLetterRow]:
        """Return the settled dead letters that have not been refused again, last settled first."""
        return sorted(self._settled.values(), key=lambda one: (-one.settled_ms, -one.offset))

    @property
    def waiting(self) -> list[OpenDeadLetters]:
        """Return the number of open dead letters by stage and table or index."""
        return [
            OpenDeadLetters(stage=stage, of=of, dead_letters=len(ids), reason=self._newest[stage, of].reason)
            for (stage, of), ids in sorted(self._waiting.items())
            if ids
        ]


def _shorten(dead_letters: dict[str, DeadLetterRow], keep: int | None) -> None:
    while keep is not None and len(dead_letters) > keep:
        dead_letters.pop(next(iter(dead_letters)))


def remedy_of(dead_letter: DeadLetterRow, file: str) -> str:
    """Return what the user can do about a dead letter, with the command. `file` is the topology's file."""
    replay = f"`tailorbird dead-letters replay {file} {dead_letter.id}`"
    if dead_letter.stage == QUARANTINE:
        reported = f'`tailorbird schema set {file} {dead_letter.of} "CREATE TABLE …"`'
        return f"{reported} with the columns of these rows publishes them"
    if dead_letter.stage == "capture":
        return f"correct the row at its source, then {replay} reads it again"
    if dead_letter.stage == "join" and dead_letter.reads:
        return f"{replay} reads the row again at its source"
    if dead_letter.stage == "join" and dead_letter.position.endswith(f"table {dead_letter.of}"):
        return f"correct the row or the query, then `tailorbird join {file} --table {dead_letter.of} --rebuild`"
    if dead_letter.stage == "join":
        return f"do what the reason says, then `tailorbird dead-letters resolve {file} {dead_letter.id}`"
    if dead_letter.stage == "indexer":
        reindex = f"tailorbird index reindex {file} --index {dead_letter.of}"
        return f"remove the cause (a changed type: `{reindex}`), then {replay}"
    show, resolve = (f"`tailorbird dead-letters {command} {file} {dead_letter.id}`" for command in ("show", "resolve"))
    return f"{show}, then {resolve}"


def dead_letter_lines(dead_letter: DeadLetterRow, file: str, now_ms: int) -> list[str]:
    """Format a dead letter as lines of text: row and time, then the reason, then the remedy."""
    when = _ago(now_ms - dead_letter.last_ms)
    times = f", {dead_letter.count} times since {_ago(now_ms - dead_letter.first_ms)}" if dead_letter.count > 1 else ""
    if dead_letter.stage == QUARANTINE:
        times = f", {dead_letter.count} events since"
    name = f"{_NAMES.get(dead_letter.stage, dead_letter.stage)} {dead_letter.of}"
    helps = (
        f"{dead_letter.settled} {_ago(now_ms - dead_letter.settled_ms)}"
        if dead_letter.settled
        else remedy_of(dead_letter, file)
    )
    return [
        f"{dead_letter.id}  {dead_letter.stage:<8} {name}  key {dead_letter.key}  at {dead_letter.position}"
        f"  {when}{times}",
        f"            {dead_letter.reason}",
        f"            {helps}",
    ]


def _ago(milliseconds: float) -> str:
    seconds = max(0.0, milliseconds / 1000)
    for unit, length in (("s", 120), ("min", 7200), ("h", 172_800)):
        if seconds < length:
            return f"{seconds / _SECONDS[unit]:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


_SECONDS = {"s": 1, "min": 60, "h": 3600}


def whole(record: DeadLetterRecord) -> dict[str, Any]:
    """Return everything in a record: its JSON, with base64 values as hexadecimal and, if possible, as text."""
    found: dict[str, Any] = {"at_ms": record.at_ms, "partition": record.partition, "offset": record.offset}
    reported = value_of(record)
    if not reported:
        return {**found, "key": _bytes(record.key or b""), "value": _bytes(record.value or b"")}
    found["value"] = dict(reported)
    encoded: Mapping[str, Any] = {}
    if reported.get("stage") == "join":
        encoded = {name: reported[name] for name in ("key", "value") if reported.get(name)}
    if reported.get("stage") == "indexer" and (row := _hex(reported.get("row"))) is not None:
        found["bytes"] = {"row": _bytes(row)}
        encoded = cells if isinstance(cells := reported.get("cells"), dict) else {}
    raw = {name: _base64(one) for name, one in encoded.items()}
    if known := {name: _bytes(one) for name, one in raw.items() if one is not None}:
        found["bytes"] = found.get("bytes", {}) | known
    return found


def _bytes(raw: bytes) -> dict[str, str]:
    shown = {"base64": base64.b64encode(raw).decode(), "hex": raw.hex()}
    try:
        return {**shown, "text": raw.decode()}
    except UnicodeDecodeError:
        return shown


def affected(found: Iterable[OpenDeadLetters], tables: Mapping[str, frozenset[str]], name: str, index: str) -> int:
    """Return how many dead letters, of any stage, keep rows out of the joined table `name` or its `index`.

    `tables` has the captured tables that each joined table reads."""
    reads = tables.get(name, frozenset())
    wanted = {("join", name), ("indexer", index), *(("capture", table) for table in reads)}
    wanted |= {(stage, table) for table in reads for stage in (QUARANTINE, LEFT_OUT, WAITING)}
    return sum(one.dead_letters for one in found if (one.stage, one.of) in wanted)


def readers_of(one: OpenDeadLetters, tables: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the joined tables that lack rows because of these dead letters. Empty for dead letters of an index."""
    if one.stage in ("capture", QUARANTINE, LEFT_OUT, WAITING):
        return [name for name, reads in tables.items() if one.of in reads]
    return [one.of] if one.stage == "join" else []


def waits(one: OpenDeadLetters) -> str:
    """Format the number of open dead letters and where they are."""
    if one.stage == QUARANTINE:
        return f"in quarantine, {one.dead_letters} events"
    if one.stage == LEFT_OUT:
        return "left out"
    if one.stage == WAITING:
        return "its rows are not read"
    return "1 dead letter" if one.dead_letters == 1 else f"{one.dead_letters} dead letters"


def incomplete_lines(found: Iterable[OpenDeadLetters], tables: Mapping[str, frozenset[str]], file: str) -> list[str]:
    """Return lines about open dead letters for `status`, `run` and `doctor`: one per table and stage, and the
    command to list them."""
    lines = []
    for one in found:
        readers = readers_of(one, tables) if one.stage != "join" else []
        more = f" (so do {', '.join(readers)})" if readers else ""
        lines.append(
            f"INCOMPLETE {_NAMES.get(one.stage, one.stage)} {one.of}{more}: {waits(one)}"
            f"{': ' if one.stage in (LEFT_OUT, WAITING) else '; the last: '}{one.reason}"
        )
    return [*lines, f"           tailorbird dead-letters list {file}"] if lines else []


_NAMES = {
    "capture": "table",
    QUARANTINE: "table",
    LEFT_OUT: "table",
    WAITING: "table",
    "join": "joined table",
    "indexer": "index",
    "unknown": "dead letters",
}
