"""docs/glossary.md: few words, and each of them lives where it is said to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ENTRY = re.compile(r"^- \*\*([a-z ]+)\*\*: .*`([\w.]+)`$")
LINES = [
    line for line in (Path(__file__).parents[1] / "docs" / "glossary.md").read_text().splitlines() if line[:2] == "- "
]
ENTRIES = [found.groups() for line in LINES if (found := ENTRY.match(line))]


def test_words_are_few_and_each_stands_once() -> None:
    """Whoever adds one more asks himself first which one it replaces."""
    assert len(ENTRIES) == len(LINES), [line for line in LINES if not ENTRY.match(line)]
    assert 40 < len(ENTRIES) <= 72
    assert len({word for word, _ in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize(("word", "name"), ENTRIES, ids=[word for word, _ in ENTRIES])
def test_a_word_lives_where_it_is_said_to(word: str, name: str) -> None:
    """A module, a package, or a class in one."""
    module, _, last = name.rpartition(".")
    if last[0].isupper():
        assert hasattr(importlib.import_module(module), last)
    else:
        importlib.import_module(name)
