"""Cursor over the words of a statement, with the parser's basic operations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ingest.ddl.dialect import Dialect
from ingest.ddl.errors import DdlNotUnderstood
from ingest.ddl.lexer import END, Word

_SHOWN = 5
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")  # servers store names in three-byte UTF-8


class Cursor:
    """Current place in the words of a statement. Keywords match only words that are not quoted."""

    __slots__ = ("_at", "_words", "dialect")

    def __init__(self, words: Sequence[Word], dialect: Dialect) -> None:
        self._words = words
        self._at = 0
        self.dialect = dialect

    @property
    def at(self) -> int:
        """Return the index of the next word. Assign an earlier index to go back."""
        return self._at

    @at.setter
    def at(self, index: int) -> None:
        """Go back to the word at `index`."""
        self._at = index

    def peek(self, ahead: int = 0) -> Word:
        """Return the next word, or the one `ahead` words after it; END after the last word."""
        index = self._at + ahead
        return self._words[index] if index < len(self._words) else END

    def sees(self, *keywords: str) -> bool:
        """Return whether the next words are these keywords or symbols."""
        return all(self.peek(i).upper == keyword for i, keyword in enumerate(keywords))

    def sees_any(self, keywords: frozenset[str] | set[str]) -> bool:
        """Return whether the next word is one of these keywords."""
        return self.peek().upper in keywords

    def take(self) -> Word:
        """Consume and return the next word. Raises DdlNotUnderstood at the end."""
        word = self.peek()
        if word is END:
            raise self.error("the statement ends too early")
        self._at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Consume these keywords if they are next. Returns whether they were."""
        if not self.sees(*keywords):
            return False
        self._at += len(keywords)
        return True

    def expect(self, *keywords: str) -> None:
        """Consume these keywords. Raises DdlNotUnderstood if they are not next."""
        if not self.accept(*keywords):
            raise self.error(f"expected {' '.join(keywords)}")

    def name(self) -> str:
        """Parse the name of a column, table, key or character set, plain or quoted, also in double quotes."""
        word = self.peek()
        if word.kind in ("word", "name") or (word.kind == "string" and word.quote == '"'):
            self._at += 1
            return _BEYOND_BMP.sub("?", word.text)
        raise self.error("expected a name")

    def label(self) -> str:
        """Parse the name of a character set, collation or engine, which may be a string literal."""
        return self.take().text if self.peek().kind == "string" else self.name()

    def table(self, database: str) -> tuple[str, str]:
        """Parse a table's name into (database, table); `database` is the default."""
        if self.accept("."):
            return self.dialect.table_name(database, self._part())
        first = self._part()
        if self.accept("."):
            return self.dialect.table_name(first, self._part())
        return self.dialect.table_name(database, first)

    def _part(self) -> str:
        word = self.peek()
        if word.kind == "number":  # after a dot a name may consist of digits
            self._at += 1
            return word.text
        return self.name()

    def column(self) -> str:
        """Parse a column's name. Of `table.column` and `database.table.column` it returns the column."""
        name = self.name()
        while self.accept("."):
            name = self._part()
        return name

    def string(self) -> str:
        """Parse a string literal and return its value."""
        word = self.take()
        if word.kind != "string":
            self._at -= 1
            raise self.error("expected a string")
        return word.text

    def number(self) -> int:
        """Parse a whole number."""
        word = self.take()
        if word.kind != "number" or not word.text.isascii() or not word.text.isdigit() or len(word.text) > 20:
            self._at -= 1
            raise self.error("expected a number")
        return int(word.text)

    def skip_group(self) -> tuple[Word, ...]:
        """Consume a bracketed group, brackets included, and return it."""
        start = self._at
        self.expect("(")
        depth = 1
        while depth:
            word = self.take()
            if word.kind == "symbol":
                depth += {"(": 1, ")": -1}.get(word.text, 0)
        return tuple(self._words[start : self._at])

    def since(self, start: int) -> str:
        """Return the words from index `start` up to here as one text, for comparing definitions."""
        return " ".join(
            w.quote + w.text if w.kind == "string" else w.upper or w.text for w in self._words[start : self._at]
        )

    def words_since(self, start: int) -> tuple[Word, ...]:
        """Return the words from index `start` up to here."""
        return tuple(self._words[start : self._at])

    def done(self) -> bool:
        """Return whether only closing semicolons are left."""
        ahead = 0
        while self.peek(ahead).upper == ";":
            ahead += 1
        return self.peek(ahead) is END

    def error(self, reason: str) -> DdlNotUnderstood:
        """Return an error with this reason and the next words of the statement."""
        rest = " ".join(w.quote + w.text + w.quote for w in self._words[self._at : self._at + _SHOWN])
        return DdlNotUnderstood(f"{reason} at {rest!r}" if rest else f"{reason} at the end")
