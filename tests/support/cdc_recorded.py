"""Conversations of MaxScale's CDC protocol as they were taken from the wire (tests/cases/maxscale)."""

from __future__ import annotations

import codecs
from pathlib import Path


def recorded(path: Path) -> list[tuple[str, bytes]]:
    """Who spoke (`>` the client, `<` the server), and what."""
    lines = path.read_text().splitlines()
    return [(line[0], codecs.escape_decode(line[2:].encode())[0]) for line in lines]
