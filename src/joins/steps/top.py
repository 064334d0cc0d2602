"""The first rows of a group: which there are, what names each of them, and what it reads as."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import orjson

from cdc.model.types import Canonical
from joins.query.group import Top
from joins.steps.bags import Tuples
from joins.steps.records import values_of_text


def first_rows(top: Top, key: bytes, tuples: Tuples) -> dict[bytes, bytes]:
    """Name → the text of what the row reads as, in their order. `key`: the text of the group's key.

    It reads the first pages alone, as many as the rows fill.
    """
    group = values_of_text(key)
    found: dict[bytes, bytes] = {}
    for number, (_, values) in enumerate(islice(tuples.entries(), top.most), start=1):
        reported = [*group, *values, number]
        found[_text(reported, top.names)] = _text(reported, top.values)
    return found


def _text(reported: Sequence[Canonical], places: Sequence[int]) -> bytes:
    return b",".join(orjson.dumps(reported[place]) for place in places)
