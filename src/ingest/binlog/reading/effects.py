"""Determine the effects of a statement on whole tables (drop, truncate, rename), and whether it changes rows itself.

This is what a reader of row changes needs; the schema history tracks columns. A statement is split into tokens
(comments, quotes, executable comments), because matching its text would be unsafe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|--[\s][^\n]*|--$|\#[^\n]*|/\*(?!!|M!).*?\*/|/\*M?!\d*|\*/)
      |(?P<name>`(?:[^`]|``)*`|"(?:[^"\\]|""|\\.)*")
      |(?P<text>'(?:[^'\\]|''|\\.)*')
      |(?P<word>[\w$\u0080-\uffff]+)
      |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_ROW_WORDS: Final = frozenset({"INSERT", "UPDATE", "REPLACE", "LOAD", "MERGE", "CALL", "DO", "SELECT"})
MOST_TOKENS: Final = 10_000
EffectKind = Literal["create", "drop", "truncate", "rename", "drop_database", "partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEffect:
    """One effect of a statement on a table. `to` is the new (database, table) of a rename."""

    kind: EffectKind
    database: str
    table: str = ""
    to: tuple[str, str] | None = None


def _tokens(statement: str) -> Iterator[tuple[str, bool]]:
    """Yield (text, quoted) of every token, including the contents of executable comments."""
    for match in _TOKEN.finditer(statement):
        if match["name"]:
            quote = match["name"][0]
            yield match["name"][1:-1].replace(quote * 2, quote), True
        elif match["word"]:
            yield match["word"], False
        elif match["mark"]:
            yield match["mark"], False
        elif match["text"]:
            yield "'", False


class StatementTokens:
    """Cursor over the first `limit` tokens of a statement."""

    def __init__(self, statement: str, database: str, limit: int = MOST_TOKENS) -> None:
        self.database = database
        self._tokens = []
        for token in _tokens(statement):
            self._tokens.append(token)
            if len(self._tokens) >= limit:
                break
        self._at = 0

    def peek(self) -> str:
        """Return the next token, in upper case unless it was quoted; empty at the end."""
        if self._at >= len(self._tokens):
            return ""
        text, quoted = self._tokens[self._at]
        return text if quoted else text.upper()

    def take(self, *words: str) -> bool:
        """Consume the words if they are next, in this order. Return whether they were."""
        found = self._tokens[self._at : self._at + len(words)]
        if [text.upper() for text, quoted in found if not quoted] != list(words):
            return False
        self._at += len(words)
        return True

    def table(self) -> tuple[str, str]:
        """Consume a table's name, and return (database, table)."""
        first = self._name()
        if self.take("."):
            return first, self._name()
        return self.database, first

    def _name(self) -> str:
        if self._at >= len(self._tokens):
            return ""
        text, _ = self._tokens[self._at]
        self._at += 1
        return text

    def rest(self) -> list[str]:
        """Return the remaining words in upper case."""
        return [text.upper() for text, quoted in self._tokens[self._at :] if not quoted]

    def seek(self, *words: str) -> bool:
        """Move past these words, wherever they follow outside parentheses. Returns whether they were found."""
        depth = 0
        while self._at < len(self._tokens):
            if self.peek() == "(":
                depth += 1
            elif self.peek() == ")":
                depth -= 1
            elif not depth and self.take(*words):
                return True
            self._at += 1
        return False

    def until(self, word: str) -> list[tuple[str, bool]]:
        """Return the tokens (text, quoted) up to a word outside parentheses; all of them if it does not follow."""
        depth, found = 0, []
        for text, quoted in self._tokens[self._at :]:
            if not quoted:
                depth += (text == "(") - (text == ")")
                if not depth and text.upper() == word:
                    break
            found.append((text, quoted))
        return found

    def mark(self) -> int:
        """Return the cursor's position."""
        return self._at

    def reset(self, mark: int) -> None:
        """Return to a position from `mark`."""
        self._at = mark


def changes_rows(statement: str) -> bool:
    """Return whether a statement changes rows itself. Such a statement is logged only if binlog_format is not ROW."""
    if len(statement) > 100_000:
        statement = statement[:100_000]
    parsed = StatementTokens(statement, "", 64)
    # MariaDB: SET STATEMENT var=… FOR statement
    if parsed.take("SET", "STATEMENT") and not parsed.seek("FOR"):
        return False
    if parsed.peek() == "WITH":
        return True
    if parsed.peek() == "DELETE":
        return not effects("x", statement)
    return parsed.peek() in _ROW_WORDS


def effects(database: str, statement: str) -> list[TableEffect]:
    """Return the effects of one statement in order. `database` is the default database."""
    s = StatementTokens(statement, database)
    # MariaDB: SET STATEMENT var=… FOR statement
    if s.take("SET", "STATEMENT") and not s.seek("FOR"):
        return []
    if s.take("DROP", "TABLE"):
        return _dropped(s)
    if s.take("DROP", "DATABASE") or s.take("DROP", "SCHEMA"):
        s.take("IF", "EXISTS")
        return [TableEffect(kind="drop_database", database=s.table()[1])]
    if s.take("TRUNCATE"):
        s.take("TABLE")
        name = s.table()
        return [TableEffect(kind="truncate", database=name[0], table=name[1])]
    if s.take("DELETE", "FROM"):
        # After a restart, the server itself logs a DELETE without a condition for each MEMORY table.
        name = s.table()
        return [] if s.peek() else [TableEffect(kind="truncate", database=name[0], table=name[1])]
    if s.take("RENAME"):
        return _renamed(s) if s.take("TABLE") or s.take("TABLES") else []
    if s.take("CREATE"):
        return _created(s)
    if s.take("ALTER"):
        return _altered(s)
    return []


def _dropped(s: StatementTokens) -> list[TableEffect]:
    s.take("IF", "EXISTS")
    found: list[TableEffect] = []
    while True:
        database, table = s.table()
        found.append(TableEffect(kind="drop", database=database, table=table))
        if not s.take(","):
            return found


def _renamed(s: StatementTokens) -> list[TableEffect]:
    s.take("IF", "EXISTS")
    found: list[TableEffect] = []
    while True:
        database, table = s.table()
        if s.take("WAIT") or s.take("NOWAIT"):
            s.seek("TO")
        else:
            s.take("TO")
        found.append(TableEffect(kind="rename", database=database, table=table, to=s.table()))
        if not s.take(","):
            return found


def _created(s: StatementTokens) -> list[TableEffect]:
    replaced = s.take("OR", "REPLACE")
    if not s.take("TABLE"):
        return []
    s.take("IF", "NOT", "EXISTS")
    database, table = s.table()
    created = TableEffect(kind="create", database=database, table=table)
    return [TableEffect(kind="drop", database=database, table=table), created] if replaced else [created]


def _altered(s: StatementTokens) -> list[TableEffect]:
    for word in ("ONLINE", "OFFLINE", "IGNORE"):
        s.take(word)
    if not s.take("TABLE"):
        return []
    s.take("IF", "EXISTS")
    database, table = s.table()
    found: list[TableEffect] = []
    start = s.mark()
    while s.seek("RENAME"):
        if s.peek() in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
            continue
        if not s.take("TO"):
            s.take("AS")
            s.take("=")
        found.append(TableEffect(kind="rename", database=database, table=table, to=s.table()))
    s.reset(start)
    if any(s.take(verb, "PARTITION") for verb in ("TRUNCATE", "DROP", "EXCHANGE")):
        found.append(TableEffect(kind="partition", database=database, table=table))
        if s.seek("WITH", "TABLE"):
            database, table = s.table()
            found.append(TableEffect(kind="partition", database=database, table=table))
    elif any(s.take(verb, what) for verb in ("DISCARD", "IMPORT") for what in ("PARTITION", "TABLESPACE")):
        found.append(TableEffect(kind="partition", database=database, table=table))
    return found
