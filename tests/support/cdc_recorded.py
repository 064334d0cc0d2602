"""Conversations of MaxScale's CDC protocol recorded from the wire (tests/cases/maxscale)."""

from __future__ import annotations

import codecs
from pathlib import Path


def recorded(path: Path) -> list[tuple[str, bytes]]:
    """Return the sender (`>` the client, `<` the server) and its bytes, in order."""
    lines = path.read_text().splitlines()
    return [(line[0], codecs.escape_decode(line[2:].encode())[0]) for line in lines]
