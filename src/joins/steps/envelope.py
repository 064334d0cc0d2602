"""Parse the Debezium envelope of a record: its op, its before and after images, and three fields of its source.

Other producers write topics, too, so all other fields are optional. Anything that is not an envelope raises
ValueError. `kernel/log/Envelope.java` and `PlainEnvelope.java` accept and refuse the same records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from cdc.model.naming import database_named
from joins.query.convert import Unfit, fit_of
from joins.query.nodes import PlanSource
from joins.runtime.records import Values

_DEEPEST = 64  # levels of nesting; Tailorbird's envelopes have four
_MOST = 2**62  # of a sequence: `latest` doubles it
Image = Mapping[str, Any]


@dataclass(slots=True)
class Envelope:
    """The content of a record: `op` and the images as in Debezium's envelope. `ts_ms` is the source's time of the
    change.

    `sequence` is 0 if the source has none. `partial`: the topic lacks a part of the table's history. `exact` and
    `inexact_after` are as in `cdc.model.event.SourceInfo`."""

    op: str = " "
    before: Image | None = None
    after: Image | None = None
    ts_ms: int = 0
    sequence: int = 0
    partial: bool = False
    exact: int = 0
    inexact_after: int = 0


def read_envelope(value: bytes) -> Envelope:
    """Parse the JSON of a record, with or without Debezium's inline schema. Raises ValueError if it is not an
    envelope."""
    envelope = Envelope()
    _fold(_object(value), envelope)
    return envelope


def _object(value: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(value)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    _bounded(found, 1)
    return found


def _bounded(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    for one in value.values() if type(value) is dict else value:
        kind = type(one)
        if kind is dict or kind is list:
            _bounded(one, depth + 1)


def _fold(fields: Image, into: Envelope) -> None:
    for name, value in fields.items():
        match name:
            case "op":
                into.op = value if isinstance(value, str) and len(value) == 1 else " "
            case "before":
                into.before = _optional(name, value)
            case "after":
                into.after = _optional(name, value)
            case "source":
                _origin(_optional(name, value) or {}, into)
            case "payload":
                if isinstance(value, dict):
                    _fold(value, into)


def _optional(name: str, value: Any) -> Image | None:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    return value


def _origin(source: Image, into: Envelope) -> None:
    into.ts_ms = _number("ts_ms", source.get("ts_ms"), 2**63)
    sequence = source.get("sequence")
    if isinstance(sequence, str):  # other producers may write a list in a text
        digits = sequence.removeprefix("-")
        sequence = int(sequence) if digits.isascii() and digits.isdecimal() and len(digits) <= 18 else 0
    into.sequence = _number("sequence", sequence, _MOST)
    into.partial = source.get("partial") is True
    into.exact = _number("exact", source.get("exact"), _MOST)
    into.inexact_after = _number("inexact_after", source.get("inexact_after"), _MOST)


def _number(name: str, value: Any, most: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -most <= value < most:
        raise ValueError(f"{name} is no number of {most.bit_length() - 1} bits")
    return value


class Images(NamedTuple):
    """The values of a row before and after a change.

    `whole` is false if the record does not contain all values; `blind`: NULL in `before` may stand for such a value.
    `unknown` are the columns of either image in which NULL stands for such a value."""

    before: Values | None
    after: Values | None
    whole: bool
    blind: bool
    unknown: frozenset[str] = frozenset()


@dataclass(slots=True)
class Columns:
    """Reads the images of one table's records: each used column, in the type that the plan was compiled with.

    A column that the record lacks was added later or dropped. If the record is older than the plan (`added`), the
    value is the default with which the column was added, otherwise NULL. A key column must not be missing."""

    source: PlanSource
    _fits: list[tuple[str, bool, Any, Any]] = field(default_factory=list)
    _whole: bool = True
    _unknown: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        source = self.source
        for name, type_, default in zip(source.columns, source.types, source.defaults, strict=True):
            self._fits.append((name, name in source.key, fit_of(type_), default))

    def images(self, envelope: Envelope, key: bytes | None, *, added: bool) -> Images:
        """Return the values before and after. Raises ValueError for an event that lacks an image that its op needs.

        For `latest` the key of a deleted row is enough. Other values of its before image may be None."""
        self._whole, self._unknown = True, frozenset()
        op, source = envelope.op, self.source
        before, after = envelope.before, None if op == "d" else envelope.after
        if source.needs_latest and op == "d" and before is None and key is not None:
            before = _object(key)
        if op not in ("c", "u", "d", "r"):
            raise ValueError(f"op {op!r} in it")
        if op != "d" and after is None:
            raise ValueError(f"op {op} without its after image")
        if before is None and (op == "d" or (op == "u" and not source.needs_latest)):
            remedy = "its source needs `delivery: at_least_once`"
            raise ValueError(f"op {op} without its before image: {remedy}")
        if op in ("c", "r") or (source.needs_latest and op != "d"):
            before = None
        if source.merged:
            named = {source.merged: database_named(key)}
            before, after = (None if image is None else {**image, **named} for image in (before, after))
        old = None if before is None else self._values(before, added, lenient=True)
        blind = not self._whole
        new = None if after is None else self._values(after, added, lenient=False)
        return Images(old, new, self._whole, blind, self._unknown)

    def _values(self, row: Image, added: bool, *, lenient: bool) -> Values:
        """Return the values of one image. With `lenient` (before images) a value that does not fit its type becomes
        NULL."""
        values: Values = []
        for name, is_key, fit, default in self._fits:
            try:
                values.append(fit(row[name]))
            except KeyError:
                if is_key:
                    raise ValueError(f"no '{name}' in it") from None
                values.append(default if added else None)
                self._whole = False  # the column may have been added and dropped: its earlier values are unknown
                self._unknown |= frozenset() if added else {name}
            except Unfit as error:
                if not lenient or is_key:
                    type_ = self.source.types[len(values)]
                    raise ValueError(f"'{name}' in it does not fit {type_}") from error
                values.append(None)
                self._whole = False
                self._unknown |= {name}
        return values
