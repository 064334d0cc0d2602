"""How it is said that dead letters wait no longer: a record in their own topic, behind them. Pure.

Key `settled` (of a capture the table's name), value JSON `format, stage: "settled", how`, and `ids`: letter → the
partition and offset up to which it is meant; or `of`: the stage and the name of a table, all of whose letters before it
are meant; or `row`: the stage, the name of a table or index and the key of a row, whose records before it (or up to the
offset `upto`) are meant. What is refused again behind that waits again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

KEY = b"settled"
STAGE = "settled"
# Of the topic: it is bounded by size, not by age, by which letters that wait would be forgotten in silence. A record
# may be as long as capture's longest (16 MiB), and a segment holds two.
TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": str(256 * 1024 * 1024),
    "segment.bytes": str(32 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),
}


def resolved_dead_letters(ids: Mapping[str, tuple[int, int]], how: str) -> bytes:
    """The value that settles letters, each up to a partition's offset; `how`: `replayed` or `resolved`."""
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "ids": ids}).encode()


def settled_table(stage: str, name: str, how: str) -> bytes:
    """The value that settles all letters of one stage for one table or index, as what reads all of it anew does."""
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "of": [stage, name]}).encode()


def settled_row(stage: str, name: str, key: str, how: str, upto: int | None = None) -> bytes:
    """The value that settles the dead-letter records of one row, which was accepted since; `key` as they name it.

    `upto`: only those at offsets up to it are meant; else all before this one.
    """
    last = {} if upto is None else {"upto": upto}
    return json.dumps({"format": 1, "stage": STAGE, "how": how, "row": [stage, name, key], **last}).encode()


def place_of(dead_letter: Mapping[str, Any]) -> str:
    """What a settlement calls the row of a dead-letter record; empty where it cannot be named."""
    key = dead_letter.get("key")
    match dead_letter.get("stage"):
        case "join":
            return str(dead_letter.get("row") or (f"{dead_letter.get('topic')} {key}" if key else ""))
        case "indexer":
            return str(dead_letter.get("row") or "")
    return str(key or "")
