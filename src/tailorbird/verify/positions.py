"""Convert positions of a source to the text that `verify` prints, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cdc.model.errors import UsageError
from cdc.model.event import Position
from ingest.ledger.places import Reach

# the file of a binary log, or the identity of PostgreSQL's log, and the offset in it
_PLACE = re.compile(r"([^\s,:]+\.\d+|\d+/\d+):(\d+)")


def text_of(position: Position) -> str:
    """Return a position as text: its GTID set, or else `file:offset`."""
    return position.gtid_set or f"{position.file}:{position.pos}"


def place_reported(position: Position) -> str:
    """Format a position for a message."""
    return f"GTIDs {position.gtid_set}" if position.gtid_set else f"{position.file}:{position.pos}"


def parse_cut(text: str) -> Reach:
    """Parse the cut of `--changed-since`. UsageError for an invalid text."""
    try:
        return Reach(position_of(text))
    except ValueError as error:
        raise UsageError(f"--changed-since {text}: {error}", "last, a GTID set, or file:position") from error


def position_of(text: str) -> Position:
    """Parse the text that `text_of` returns. Raises ValueError for other text."""
    if match := _PLACE.fullmatch(text):
        return Position(file=match[1], pos=int(match[2]), gtid_set="", sequence=0)
    if ":" not in text and "-" not in text:
        raise ValueError("not a position of a source")
    return Position(file="", pos=0, gtid_set=text, sequence=0)


def covers(reached: Mapping[str, Any], wanted: str) -> bool:
    """Return whether the position of a source in a barrier is at or after `wanted`. Raises ValueError for invalid
    text.

    Barriers of older versions have no file and offset, so they cover only positions with GTIDs."""
    position = position_of(wanted)
    gtids, file = str(reached.get("gtid_set") or ""), str(reached.get("file") or "")
    if not (gtids if position.gtid_set else file):
        return False
    place = Position(file=file, pos=int(reached.get("pos") or 0), gtid_set=gtids, sequence=0)
    return Reach(place).includes(position)
