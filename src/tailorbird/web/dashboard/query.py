"""Values and words of users in Solr's queries.

User input never becomes query syntax: words keep letters and digits only, and values travel in separate parameters,
which `{!term}` takes literally (columns.py).
"""

from __future__ import annotations

import re

Value = str | int | float | bool | None  # None: rows without a value
Shown = Value | list[Value]  # a list contains its members
Params = dict[str, str | int | list[str]]

MOST_WORDS, LONGEST_WORD = 12, 80
_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")


def search_words(text: str) -> list[str]:
    """Split a search text into words of letters, digits and underscores. `.`, `,` and apostrophes may join them.

    All other characters, including Solr's syntax, only separate words."""
    return [word[:LONGEST_WORD].rstrip(".,'’") for word in _WORD.findall(text)[:MOST_WORDS]]


def words_query(words: list[str]) -> str:
    """Return an edismax query for rows that contain every word, as a whole word or as a prefix."""
    # lower case, so that no prefix is an operator; a quoted word is analysed and never an operator
    return " ".join(f'+("{word}" {word.lower()}*)' for word in words)


def value_text(value: str | int | float | bool) -> str:
    """Return a facet's value as Solr parses it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
