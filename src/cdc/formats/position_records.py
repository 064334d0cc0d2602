"""Position records that contain only what changed since the record before (ADR 102).

A whole record of `…positions` has format 1 and the key `<topology>.<source>`. A record of changes has format 2 and the
key `<topology>.<source>/<number>`. It contains the offset of its whole record (`base`), its `number` since that one,
the end offsets that changed, and under `state.changes` the entries of state by table that changed. The numbers begin
again at 1 after each whole record. So compaction, which keeps the last record of each key, keeps all that the newest
one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.persistent import PersistentMap, persistent

WHOLE, CHANGED = 1, 2  # formats
CHANGES = "changes"  # in the state: map → {"put": changed entries, "gone": removed keys}
Stored = tuple[int, bytes | None, bytes | None]  # offset, key and value of a record
# Returns the records of a partition from an offset up to, but not including, another one.
Fetch = Callable[[int, int, int], Iterable[Stored]]


def changes_key(key: bytes, number: int) -> bytes:
    """Return the key of a record of changes; `key` is that of the source's whole records."""
    return b"%b/%d" % (key, number)


def source_key(key: bytes | None) -> bytes:
    """Return the key of the source's whole records, from the key of any of its records."""
    return (key or b"").partition(b"/")[0]


def as_map(value: Any) -> PersistentMap[str, Any]:
    """Return the state of all tables under one name; a list of names becomes a mapping of these names to True."""
    return persistent(value if isinstance(value, Mapping) else dict.fromkeys(value, True))


def changed_state(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's state from the state before it and from what changed. Raises LookupError, TypeError or
    ValueError if it is malformed."""
    state = dict(after)
    changes: Mapping[str, Any] = state.pop(CHANGES)
    for name, change in changes.items():
        found = as_map(before.get(name, {}))
        for key in change["gone"]:
            found = found.without(key)
        state[name] = found.updated(change["put"])
    return state


def applied(before: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole record, from the whole record before and a record of changes. Costs as much as the changes."""
    known, ends = before["end_offsets"], changed["end_offsets"]
    if not isinstance(ends, Mapping):
        raise TypeError("end offsets that are no object")
    return {
        **{name: value for name, value in changed.items() if name not in ("base", "number")},
        "format": WHOLE,
        "state": changed_state(before.get("state", {}), changed["state"]),
        "end_offsets": persistent(known).updated(ends),
    }


@dataclass(slots=True, kw_only=True)
class _Known:
    """The newest record of a source: the place of its whole record, its number, and its content as a whole record."""

    partition: int
    base: int
    number: int
    content: Mapping[str, Any]


class PositionChains:
    """Makes whole records of the records of `…positions`, which are passed in their order.

    A reader that begins after a whole record fetches what is missing.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: dict[bytes, _Known] = {}

    def whole(self, partition: int, offset: int, key: bytes | None, content: Any) -> Mapping[str, Any] | None:
        """Return the content of a record as a whole one.

        None if compaction has removed what it needs: this happens only to records before the newest whole one. Raises
        LookupError, TypeError or ValueError for a record that is no position.
        """
        source = source_key(key)
        if content.get("format") != CHANGED:
            self._known[source] = _Known(partition=partition, base=offset, number=0, content=content)
            found: Mapping[str, Any] = content
            return found
        base, number = int(content["base"]), int(content["number"])
        known = self._known.get(source)
        if known is None or (known.partition, known.base, known.number) != (partition, base, number - 1):
            known = self._fetched(partition, source, base, number - 1, offset)
        if known is None:
            return None
        known = _Known(partition=partition, base=base, number=number, content=applied(known.content, content))
        self._known[source] = known
        return known.content

    def _fetched(self, partition: int, source: bytes, base: int, last: int, end: int) -> _Known | None:
        """Return the record `last` since the whole record at offset `base`; None if one of the records is missing."""
        known: _Known | None = None
        for offset, key, value in self._fetch(partition, base, end):
            content = _content(value) if source_key(key) == source else {}
            if offset == base and content.get("format") == WHOLE:
                known = _Known(partition=partition, base=base, number=0, content=content)
            elif known is not None and (content.get("base"), content.get("number")) == (base, known.number + 1):
                known.number, known.content = known.number + 1, applied(known.content, content)
        return known if known is not None and known.number == last else None


def _content(value: bytes | None) -> Mapping[str, Any]:
    """Return the content of a record; an empty one for a record that is no JSON object, which is a foreign one."""
    try:
        content = orjson.loads(value or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
