"""Select the first rows of a group, and build their names and texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import orjson

from cdc.model.types import Canonical
from joins.query.group import Top
from joins.runtime.records import values_of_text
from joins.steps.bags import Tuples


def first_rows(top: Top, key: bytes, tuples: Tuples) -> dict[bytes, bytes]:
    """Return the text of each of the first rows by name, in order. `key`: the text of the group's key."""
    group = values_of_text(key)
    found: dict[bytes, bytes] = {}
    for number, (_, values) in enumerate(islice(tuples.entries(), top.most), start=1):
        reported = [*group, *values, number]
        found[_text(reported, top.names)] = _text(reported, top.values)
    return found


def _text(reported: Sequence[Canonical], places: Sequence[int]) -> bytes:
    return b",".join(orjson.dumps(reported[place]) for place in places)
