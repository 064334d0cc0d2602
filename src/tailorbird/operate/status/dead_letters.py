"""Dead letters of all stages as one list: what lacks a row, why, what helps, and whether it still waits. Pure.

A letter waits until a later settlement names it (`cdc.model.dead_letter_end`); a letter that comes again waits again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cdc.model.dead_letter_end import STAGE as SETTLED
from cdc.model.dead_letter_end import place_of

LEFT_OUT = "left out"  # the stage of tables that captures leave out until what keeps them out is gone
QUARANTINE = "quarantine"  # the stage of what captures can not decode (tailorbird.operate.status.quarantine)


class LetterRecord(NamedTuple):
    """A record of the topic `…deadletters`, where and when it was written (ms)."""

    key: bytes | None
    value: bytes | None
    at_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What was refused: `stage` and `of` say where a row is missing (captured table, joined table or index).

    `id` stays the same however often the same is refused, `count` times between `first_ms` and `last_ms`; `key` is the
    row's, as far as it can be shown; `table` the captured table that it came from, where that is known; `reads` whether
    that table's row can be read again. `settled` says how it was settled, empty while it waits.
    """

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
class Waiting:
    """How many letters wait at one stage for one table or index, and the newest of them."""

    stage: str
    of: str
    letters: int
    reason: str


def letter_of(topology: str, record: LetterRecord) -> Letter:
    """Read a record; what is none of ours is a letter of stage `unknown`, since somebody must look at it."""
    told = value_of(record)
    stage = str(told.get("stage", "unknown"))
    table, reads = "", False
    if stage == "capture":
        table, reads = str(told.get("table")), True
        of, key = table, _shown(told.get("values", {}))
        position = f"{told.get('file')}:{told.get('pos')} row {told.get('row')}"
        identity = [table, told.get("values")]
        reason = str(told.get("why"))
    elif stage == "join":
        of, reason = str(told.get("table")), str(told.get("reason"))
        topic = str(told.get("topic"))
        if reads := topic.startswith(f"{topology}."):
            table = topic.removeprefix(f"{topology}.")
            position = f"{topic} {told.get('partition')}:{told.get('offset')}"
        else:
            position = f"batch {told.get('batch')}, {topic}"
        raw = told.get("key") or (None if reads else told.get("value"))
        key = _decoded(raw)
        identity = [of, topic, told.get("partition"), told.get("offset"), None if reads else [raw, told.get("value")]]
    elif stage == "indexer":
        of, key, reason = str(told.get("index")), str(told.get("row")), str(told.get("reason"))
        position = f"version {told.get('version')}"
        identity = [of, key]
    else:
        stage, of, key, position = "unknown", "", _text(record.key or b""), f"{record.partition}:{record.offset}"
        identity, reason = [record.partition, record.offset], "it has no form of this version"
    known = hashlib.sha256(json.dumps([stage, *identity]).encode()).hexdigest()[:10]
    return Letter(
        id=known, stage=stage, of=of, key=key, position=position, reason=reason, table=table, reads=reads,
        first_ms=record.at_ms, last_ms=record.at_ms, count=1, partition=record.partition, offset=record.offset,
    )  # fmt: skip


def value_of(record: LetterRecord) -> Mapping[str, Any]:
    """The record's JSON object; empty where it is none."""
    try:
        found = json.loads(record.value or b"null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(values: object) -> str:
    text = json.dumps(values, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


def _decoded(raw: object) -> str:
    """Base64 as text, in hexadecimal where it is none."""
    try:
        return _text(base64.b64decode(str(raw or "")))
    except binascii.Error:
        return str(raw)


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw.hex()
    return text if text.isprintable() else raw.hex()


class Letters:
    """The records of the topic, folded in their order. At most `keep` letters are remembered whole (None: all)."""

    def __init__(self, topology: str, *, keep: int | None = None, only: Callable[[str], bool] | None = None) -> None:
        self._topology, self._keep, self._only = topology, keep, only
        # count, partition and offset of the last, and the key of its row
        self._waiting: dict[tuple[str, str], dict[str, tuple[int, int, int, str]]] = defaultdict(dict)
        self._newest: dict[tuple[str, str], Letter] = {}
        self._whole: dict[str, Letter] = {}
        self._settled: dict[str, Letter] = {}

    def add(self, record: LetterRecord) -> None:
        """The next record."""
        told = value_of(record)
        if told.get("stage") == SETTLED:
            self._settle(told, record.at_ms)
            return
        letter = letter_of(self._topology, record)
        place = letter.stage, letter.of
        before = self._whole.pop(letter.id, None)
        count = self._waiting[place].get(letter.id, (0,))[0] + 1
        self._waiting[place][letter.id] = count, record.partition, record.offset, place_of(told)
        self._settled.pop(letter.id, None)
        letter = replace(letter, count=count, first_ms=before.first_ms if before else letter.first_ms)
        self._newest[place] = letter
        if self._only is None or self._only(letter.id):
            self._whole[letter.id] = letter
            _shorten(self._whole, self._keep)

    def _settle(self, told: Mapping[str, Any], at_ms: int) -> None:
        how = str(told.get("how", "settled"))
        if "of" in told:
            stage, name = told["of"]
            gone = list(self._waiting.pop((stage, name), ()))
        elif "row" in told:
            stage, name, key = told["row"]
            ids = self._waiting[stage, name]
            upto = told.get("upto")
            gone = [each for each, at in ids.items() if at[3] == key and (upto is None or at[2] <= upto)]
            for each in gone:
                del ids[each]
        else:
            gone = []
            for each, (partition, offset) in told.get("ids", {}).items():
                for ids in self._waiting.values():
                    if each in ids and ids[each][1] == partition and ids[each][2] <= offset:
                        del ids[each]
                        gone.append(each)
        for each in gone:
            if (letter := self._whole.pop(each, None)) is not None:
                self._settled[each] = replace(letter, settled=how, settled_ms=at_ms)
        _shorten(self._settled, self._keep)

    @property
    def letters(self) -> list[Letter]:
        """Those that wait, newest first; of those that are remembered."""
        return sorted(self._whole.values(), key=lambda one: (-one.last_ms, -one.offset))

    @property
    def settled(self) -> list[Letter]:
        """Those that were settled, and did not come again, the last settled first."""
        return sorted(self._settled.values(), key=lambda one: (-one.settled_ms, -one.offset))

    @property
    def waiting(self) -> list[Waiting]:
        """All that wait, counted."""
        return [
            Waiting(stage=stage, of=of, letters=len(ids), reason=self._newest[stage, of].reason)
            for (stage, of), ids in sorted(self._waiting.items())
            if ids
        ]


def _shorten(letters: dict[str, Letter], keep: int | None) -> None:
    while keep is not None and len(letters) > keep:
        letters.pop(next(iter(letters)))


def remedy_of(letter: Letter, file: str) -> str:
    """What to do about a letter, with the command."""
    replay = f"`tailorbird dead-letters replay {file} {letter.id}`"
    if letter.stage == QUARANTINE:
        told = f'`tailorbird schema set {file} {letter.of} "CREATE TABLE …"`'
        return f"{told} with the columns that these rows had, and they are published"
    if letter.stage == "capture":
        return f"correct the row at its source, then {replay} reads it again"
    if letter.stage == "join" and letter.reads:
        return f"{replay} reads the row again at its source"
    if letter.stage == "join" and letter.position.endswith(f"table {letter.of}"):
        return f"correct the row or the query, then `tailorbird join {file} --table {letter.of} --rebuild`"
    if letter.stage == "join":
        return f"do what the reason says, then `tailorbird dead-letters resolve {file} {letter.id}`"
    if letter.stage == "indexer":
        return (
            f"remove the cause (a changed type: `tailorbird index reindex {file} --index {letter.of}`), then {replay}"
        )
    return (
        f"`tailorbird dead-letters show {file} {letter.id}`, then `tailorbird dead-letters resolve {file} {letter.id}`"
    )


def letter_lines(letter: Letter, file: str, now_ms: int) -> list[str]:
    """A letter for a person: what and when, then why, then what helps."""
    when = _ago(now_ms - letter.last_ms)
    times = f", {letter.count} times since {_ago(now_ms - letter.first_ms)}" if letter.count > 1 else ""
    if letter.stage == QUARANTINE:
        times = f", {letter.count} events since"
    name = f"{_NAMES.get(letter.stage, letter.stage)} {letter.of}"
    helps = f"{letter.settled} {_ago(now_ms - letter.settled_ms)}" if letter.settled else remedy_of(letter, file)
    return [
        f"{letter.id}  {letter.stage:<8} {name}  key {letter.key}  at {letter.position}  {when}{times}",
        f"            {letter.reason}",
        f"            {helps}",
    ]


def _ago(milliseconds: float) -> str:
    seconds = max(0.0, milliseconds / 1000)
    for unit, length in (("s", 120), ("min", 7200), ("h", 172_800)):
        if seconds < length:
            return f"{seconds / _SECONDS[unit]:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


_SECONDS = {"s": 1, "min": 60, "h": 3600}


def whole(record: LetterRecord) -> dict[str, Any]:
    """All that a record holds: its JSON, and what is base64 in it in hexadecimal and as text, where it is text."""
    found: dict[str, Any] = {"at_ms": record.at_ms, "partition": record.partition, "offset": record.offset}
    told = value_of(record)
    if not told:
        return {**found, "key": _bytes(record.key or b""), "value": _bytes(record.value or b"")}
    found["value"] = dict(told)
    if told.get("stage") == "join":
        found["bytes"] = {name: _bytes(base64.b64decode(told[name])) for name in ("key", "value") if told.get(name)}
    if told.get("stage") == "indexer":
        cells = told.get("cells", {})
        found["bytes"] = {"row": _bytes(bytes.fromhex(str(told.get("row", ""))))}
        found["bytes"] |= {name: _bytes(base64.b64decode(cell)) for name, cell in cells.items()}
    return found


def _bytes(raw: bytes) -> dict[str, str]:
    shown = {"base64": base64.b64encode(raw).decode(), "hex": raw.hex()}
    try:
        return {**shown, "text": raw.decode()}
    except UnicodeDecodeError:
        return shown


def affected(found: Iterable[Waiting], tables: Mapping[str, frozenset[str]], name: str, index: str) -> int:
    """How many letters keep rows out of a joined table and its index: its own, its captured tables', the index's.

    `tables` names the captured tables that each joined table reads.
    """
    reads = tables.get(name, frozenset())
    wanted = {("join", name), ("indexer", index), *(("capture", table) for table in reads)}
    wanted |= {(stage, table) for table in reads for stage in (QUARANTINE, LEFT_OUT)}
    return sum(one.letters for one in found if (one.stage, one.of) in wanted)


def readers_of(one: Waiting, tables: Mapping[str, frozenset[str]]) -> list[str]:
    """The joined tables that lack rows, or a part of them."""
    if one.stage in ("capture", QUARANTINE, LEFT_OUT):
        return [name for name, reads in tables.items() if one.of in reads]
    return [one.of] if one.stage == "join" else []


def waits(one: Waiting) -> str:
    """How many of them wait, and where."""
    if one.stage == QUARANTINE:
        return f"in quarantine, {one.letters} events wait"
    if one.stage == LEFT_OUT:
        return "left out"
    return "1 dead letter waits" if one.letters == 1 else f"{one.letters} dead letters wait"


def incomplete_lines(found: Iterable[Waiting], tables: Mapping[str, frozenset[str]], file: str) -> list[str]:
    """What `status`, `run` and `doctor` say of it; a line per table and stage, and the command to look."""
    lines = []
    for one in found:
        readers = readers_of(one, tables) if one.stage != "join" else []
        more = f" (so do {', '.join(readers)})" if readers else ""
        lines.append(
            f"INCOMPLETE {_NAMES.get(one.stage, one.stage)} {one.of}{more}: {waits(one)}"
            f"{': ' if one.stage == LEFT_OUT else '; the last: '}{one.reason}"
        )
    return [*lines, f"           tailorbird dead-letters list {file}"] if lines else []


_NAMES = {
    "capture": "table",
    QUARANTINE: "table",
    LEFT_OUT: "table",
    "join": "joined table",
    "indexer": "index",
    "unknown": "dead letters",
}
