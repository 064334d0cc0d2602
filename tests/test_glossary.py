"""docs/glossary.md: at most 60 entries, each with a module that exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ENTRY = re.compile(r"^- \*\*([a-z -]+)\*\*: .*`([\w.]+)`$")
LINES = [
    line for line in (Path(__file__).parents[1] / "docs" / "glossary.md").read_text().splitlines() if line[:2] == "- "
]
ENTRIES = [found.groups() for line in LINES if (found := ENTRY.match(line))]


def test_the_glossary_is_small_and_has_no_duplicates() -> None:
    """The glossary has 20 to 60 well-formed entries. Use a standard term instead of a new entry where there is one."""
    assert len(ENTRIES) == len(LINES), [line for line in LINES if not ENTRY.match(line)]
    assert 20 < len(ENTRIES) <= 60
    assert len({word for word, _ in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize(("word", "name"), ENTRIES, ids=[word for word, _ in ENTRIES])
def test_the_module_of_an_entry_exists(word: str, name: str) -> None:
    """Each entry names a module or package that can be imported, or a class in one."""
    module, _, last = name.rpartition(".")
    if last[0].isupper():
        assert hasattr(importlib.import_module(module), last)
    else:
        importlib.import_module(name)
