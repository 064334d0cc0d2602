"""Decode records of other formats to row changes. Each format has one function of a record's key and value.

These functions raise ValueError, KeyError or TypeError for a record that is not of their format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

Op = Literal["c", "u", "d", "r", "t"]
_LAST = 1 << 40  # greater than any number that Maxwell gives a change of a transaction
Image = Mapping[str, Any]


class UpstreamPlace(NamedTuple):
    """Position of a change in its database's log: the log's name, then numbers that grow.

    `own`: no two changes have the same position.
    """

    log: str
    numbers: tuple[int, ...]
    own: bool

    def repeats(self, log: str, numbers: Sequence[int]) -> bool:
        """Return whether a change at this position is a repetition, if everything up to (`log`, `numbers`) was
        published."""
        if log != self.log:
            return False
        last = tuple(numbers)
        return last >= self.numbers if self.own else last > self.numbers


class UpstreamChange(NamedTuple):
    """One change as its writer describes it: images of JSON values. `key` are the columns that identify the row.

    `place` is None if unknown. `schema` are the fields of the row's inline schema, if any. `table` is (database,
    table), or empty texts if the record names none.
    """

    op: Op
    before: Image | None
    after: Image | None
    key: Image
    table: tuple[str, str] = ("", "")
    ts_ms: int = 0
    place: UpstreamPlace | None = None
    schema: list[dict[str, Any]] | None = None


Format = Callable[[bytes | None, bytes | None], "UpstreamChange | None"]


def debezium(key: bytes | None, value: bytes | None) -> UpstreamChange | None:
    """Decode Debezium's envelope, with or without inline schema; None for a tombstone, a heartbeat or a message.

    Raises ValueError, KeyError or TypeError for another record, like all formats."""
    if value is None:
        return None
    envelope, schema = _payload(_object(value))
    op = envelope.get("op")
    if op in (None, "m"):
        return None
    if op not in ("c", "u", "d", "r", "t"):
        raise ValueError(f"unknown op {op!r}")
    source = envelope.get("source") or {}
    named = {} if key is None else _payload(_object(key))[0]
    before, after = envelope.get("before"), envelope.get("after")
    if op in ("c", "u", "r") and not isinstance(after, dict):
        raise ValueError(f"op {op} without its after image")
    return UpstreamChange(
        op,
        before,
        after if op in ("c", "u", "r") else None,
        named,
        (str(source.get("schema") or source.get("db") or ""), str(source.get("table") or "")),
        int(source.get("ts_ms") or 0),
        None if str(source.get("snapshot", "false")) not in ("false", "None") else _place(source, op),
        _row_fields(schema),
    )


def _place(source: Mapping[str, Any], op: str) -> UpstreamPlace | None:
    if source.get("file"):
        digits = str(source["file"]).rpartition(".")[2]
        if digits.isdecimal():
            # a change of the key is a delete and a create, in this order, at one position
            place = int(digits), int(source.get("pos") or 0), int(source.get("row") or 0), int(op != "d")
            return UpstreamPlace(f"{source.get('server_id', '')}", place, True)
    if source.get("lsn") is not None:  # all rows of one COPY may have the same position
        return UpstreamPlace("lsn", (int(source["lsn"]),), False)
    return None


def _payload(found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    if isinstance(found.get("payload"), dict) and "schema" in found:
        return found["payload"], found["schema"]
    if "payload" in found and found["payload"] is None:
        return {}, None
    return found, None


def _row_fields(schema: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    for field in (schema or {}).get("fields", ()):
        if field.get("field") == "after":
            fields: list[dict[str, Any]] = field["fields"]
            return fields
    return None


def maxwell(key: bytes | None, value: bytes | None) -> UpstreamChange | None:
    """Decode Maxwell's JSON; None for a record without a row, such as a statement or the begin of a bootstrap.

    Raises ValueError, KeyError or TypeError for another record, like all formats."""
    if value is None:
        return None
    found = _object(value)
    kind, table = found["type"], (str(found["database"]), str(found["table"]))
    if kind not in ("insert", "update", "delete", "bootstrap-insert"):
        return None
    data, ts_ms = found["data"], int(found.get("ts") or 0) * 1000
    if not isinstance(data, dict):
        raise ValueError("data is not an object")
    named: dict[str, Any] = {}
    if key is not None:
        key_values = {name.removeprefix("pk."): one for name, one in _object(key).items() if name.startswith("pk.")}
        named = {name: data.get(name, one) for name, one in key_values.items()}
    place = None
    if found.get("position") and kind != "bootstrap-insert":
        file, _, pos = str(found["position"]).rpartition(":")
        digits = file.rpartition(".")[2]
        if digits.isdecimal() and pos.isdecimal():
            # changes of one transaction may share a position; the last one has `commit` and no number
            last = found.get("commit") is True
            number = _LAST if last else int(found.get("xoffset", _LAST - 1))
            numbers = int(digits), int(pos), number
            place = UpstreamPlace(str(found.get("server_id", "")), numbers, last or "xoffset" in found)
    if kind == "delete":
        return UpstreamChange("d", data, None, named, table, ts_ms, place)
    before = {**data, **found.get("old", {})} if kind == "update" else None
    op: Op = "r" if kind == "bootstrap-insert" else "u" if kind == "update" else "c"
    return UpstreamChange(op, before, data, named, table, ts_ms, place)


def upsert(key: bytes | None, value: bytes | None) -> UpstreamChange | None:
    """Decode a row whose record key is its key; a record without value is a delete. Format of `upsert-kafka`.

    Never returns None. Raises ValueError, KeyError or TypeError for another record, like all formats."""
    if key is None:
        raise ValueError("a row without a key")
    named = _payload(_object(key))[0]
    if value is None:
        return UpstreamChange("d", named, None, named)
    row, schema = _payload(_object(value))
    fields = (schema or {}).get("fields")
    return UpstreamChange("u", None, {**named, **row}, named, schema=fields)


FORMATS: Mapping[str, Format] = {"debezium": debezium, "maxwell": maxwell, "upsert": upsert}


def _object(data: bytes) -> dict[str, Any]:
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
