"""Lay out and write the pages of docs/results.

A benchmark writes the part of its page before the first `## `. The sections after it are written by people and stay.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

WIDTH = 120
_SECTION = "\n## "


def paragraph(text: str) -> str:
    """Return a text as one paragraph, wrapped like the other pages."""
    return _wrapped(text, "")


def bullets(items: Iterable[str]) -> str:
    """Return texts as a list, wrapped like the other pages."""
    return "\n".join("- " + _wrapped(item, "  ") for item in items)


def page(*blocks: str) -> str:
    """Return the text of a page: its blocks, separated by empty lines; empty blocks are left out."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def span(values: Iterable[float], digits: int = 1) -> str:
    """Return the least and the greatest value, such as `3.7 to 3.9`; only one if they are equal when rounded."""
    known = sorted(values)
    return " to ".join(dict.fromkeys(f"{value:,.{digits}f}" for value in (known[0], known[-1])))


def write_page(path: Path, text: str) -> None:
    """Write the part of a page that a run knows; keep the sections of the existing page."""
    _, section, kept = path.read_text().partition(_SECTION) if path.exists() else ("", "", "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + section + kept)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH - len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\n", f"\n{indent}")
