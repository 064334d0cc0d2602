"""Partial updates of JSON columns: the diffs that MySQL logs instead of the whole document.

`read_diffs` decodes one column's diffs of a PARTIAL_UPDATE_ROWS event; `apply_diffs` applies them to the old document,
as a replica does. Source: `sql/json_diff.cc` of MySQL.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from ingest.binlog.format.packed import take_encoded
from ingest.binlog.json.jsonb import JSON_NULL, decode_json

DiffOperation = Literal["replace", "insert", "remove"]
_OPERATIONS: Final[tuple[DiffOperation, ...]] = ("replace", "insert", "remove")
_STEP: Final = re.compile(r'\.([A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*)|\.("(?:[^"\\]|\\.)*")|\[(\d+)\]')


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDiff:
    """One change inside a document at a JSON path. `value` is not used by a removal."""

    operation: DiffOperation
    path: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class JsonDiffs:
    """All changes of one JSON column by one row change, in order; empty if the document did not change."""

    diffs: tuple[JsonDiff, ...]


def read_diffs(data: bytes) -> JsonDiffs:
    """Decode the JSON diffs of one column. Raises ValueError for invalid bytes."""
    diffs: list[JsonDiff] = []
    at = 0
    while at < len(data):
        code = data[at]
        if code >= len(_OPERATIONS):
            raise ValueError(f"no JSON diff has operation {code}")
        path, at = take_encoded(data, at + 1)
        value: Any = None
        if code != 2:
            raw, at = take_encoded(data, at)
            value = decode_json(raw)
            value = None if value is JSON_NULL else value
        diffs.append(JsonDiff(operation=_OPERATIONS[code], path=path.decode(), value=value))
    return JsonDiffs(tuple(diffs))


def path_steps(path: str) -> list[str | int]:
    """Split a JSON path such as `$.a."b c"[3]` into keys and indices. Raises ValueError for another text."""
    if not path.startswith("$"):
        raise ValueError(f"not a JSON path: {path!r}")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if not match:
            raise ValueError(f"not a JSON path: {path!r}")
        plain, quoted, index = match.groups()
        steps.append(int(index) if index is not None else json.loads(quoted) if quoted is not None else plain)
        at = match.end()
    return steps


def apply_diffs(document: Any, diffs: JsonDiffs) -> Any:
    """Return a new document with the diffs applied to `document`.

    Raises LookupError if a path does not exist in it, so that it is not the document before the change.
    """
    result = copy.deepcopy(None if document is JSON_NULL else document)
    for diff in diffs.diffs:
        steps = path_steps(diff.path)
        if not steps:
            result = diff.value
            continue
        place: Any = result
        for step in steps[:-1]:
            place = place[step]  # an old document of another structure ends in LookupError or TypeError
        last = steps[-1]
        if isinstance(place, list) and isinstance(last, int):
            if diff.operation == "remove":
                del place[last]
            elif diff.operation == "insert":
                place.insert(last, diff.value)
            else:
                place[last] = diff.value
        elif isinstance(place, dict) and isinstance(last, str):
            if diff.operation == "remove":
                del place[last]
            else:
                place[last] = diff.value
        else:
            raise LookupError(f"the old document has nothing at {diff.path}")
    return JSON_NULL if result is None else result
