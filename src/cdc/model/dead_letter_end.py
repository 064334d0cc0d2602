"""Records that settle (close) dead letters, and the settings of the dead-letter topic.

A dead letter is never deleted: a later record in the same topic settles it. Its key is `settled`, except that capture
uses the table's name. Its value is JSON with `format`, `stage: "settled"`, `how`, and one of three keys. `ids` maps the
id of each dead letter to the partition and offset up to which it is settled. `of` is a stage and the name of a table or
index, whose earlier dead letters are all settled. `row` is a stage, the name of a table or index and the key of a row,
whose earlier dead letters (or those up to the offset `upto`) are settled. A dead letter that is written again later is
open again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

KEY = b"settled"
STAGE = "settled"
# Settings of the topic. It is limited by size, not by age, so that no open dead letter expires unnoticed. A record may
# be as long as capture's longest (16 MiB), and a segment holds two.
TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": str(256 * 1024 * 1024),
    "segment.bytes": str(32 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),
}


def resolved_dead_letters(ids: Mapping[str, tuple[int, int]], how: str) -> bytes:
    """Return the value that settles dead letters by their ids, each up to a partition and offset.

    `how` is `replayed` or `resolved`.
    """
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "ids": ids}).encode()


def settled_table(stage: str, name: str, how: str) -> bytes:
    """Return the value that settles all earlier dead letters of a stage for one table or index, because it is read
    again."""
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "of": [stage, name]}).encode()


def settled_row(stage: str, name: str, key: str, how: str, upto: int | None = None) -> bytes:
    """Return the value that settles the dead letters of one row, because a later change of that row was accepted.

    `key` is the row's key as its dead letters contain it. `upto` is the last offset to settle; None: all before this
    record.
    """
    last = {} if upto is None else {"upto": upto}
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "row": [stage, name, key], **last}).encode()


def place_of(dead_letter: Mapping[str, Any]) -> str:
    """Return the key that identifies the row of a dead letter in `settled_row`; empty if the dead letter names no
    row."""
    key = dead_letter.get("key")
    match dead_letter.get("stage"):
        case "join":
            return str(dead_letter.get("row") or (f"{dead_letter.get('topic')} {key}" if key else ""))
        case "indexer":
            return str(dead_letter.get("row") or "")
    return str(key or "")
