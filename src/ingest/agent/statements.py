"""Statements in the log: which of them change captured tables in a way that no row event tells; pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError

# First words of statements that only reach the log as text when rows were changed without row events.
_DATA = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}
_GONE = {("DROP", "TABLE"), ("TRUNCATE", "TABLE"), ("RENAME", "TABLE")}
# What ALTER TABLE may do to rows without logging them, or to the table's name.
_ALTER = {"RENAME TO", "RENAME AS", "TRUNCATE PARTITION", "DROP PARTITION", "EXCHANGE PARTITION", "DISCARD", "IMPORT"}

_EXECUTABLE = re.compile(r"/\*!\d*(.*?)\*/", re.DOTALL)  # comments that MySQL executes


class _Tokenizer(MySQL.Tokenizer):
    COMMANDS: ClassVar[set[Any]] = set()  # else the rest of RENAME and others would be one opaque text


def danger(sql: str, default_database: str, captured: Collection[tuple[str, str]]) -> str | None:
    """Why a statement would make captured tables differ from their log; None when it does not.

    `captured` are (database, table) pairs; names without a database stand in `default_database`.
    """
    try:
        tokens = _Tokenizer(dialect="mysql").tokenize(_EXECUTABLE.sub(r" \1 ", sql))
        words = [(word, word.upper()) for token in tokens for word in _words(token)]
    except TokenError:
        named = [f"{d}.{t}" for d, t in captured if t.lower() in sql.lower()]
        return f"a statement that cannot be read may concern {', '.join(named)}" if named else None
    upper = [word for _, word in words]
    if not upper:
        return None
    table = _first_captured([word for word, _ in words], default_database, captured)
    databases = {database.lower() for database, _ in captured}
    first = upper[0]
    if first in _DATA:
        if default_database.lower() in databases or table:
            return "rows were changed by a statement that was logged as text (binlog_format is not ROW in its session)"
        return None
    if first == "DROP" and upper[1:2] in (["DATABASE"], ["SCHEMA"]):
        gone = [word for word, _ in words[2:] if word.lower() in databases]
        return f"database {gone[0]} with captured tables was dropped" if gone else None
    if table is None:
        return None
    if first == "TRUNCATE" or (first, *upper[1:2]) in _GONE:
        return f"captured table {table} was changed as a whole ({first})"
    text = " ".join(upper)
    if first == "ALTER" and (any(action in text for action in _ALTER) or _renames_table(upper)):
        return f"captured table {table} was changed as a whole (ALTER)"
    return None


def _words(token: Any) -> list[str]:
    """A token's words; the tokenizer joins some keywords, such as RENAME TABLE, into one."""
    return [token.text] if token.token_type.name in ("IDENTIFIER", "STRING") else token.text.split()


def _renames_table(upper: list[str]) -> bool:
    """`ALTER TABLE a RENAME b`: RENAME followed by none of the parts of a table that can be renamed."""
    return any(
        word == "RENAME" and following not in ("COLUMN", "INDEX", "KEY", "CONSTRAINT")
        for word, following in zip(upper, [*upper[1:], ""], strict=True)
    )


def _first_captured(words: list[str], default_database: str, captured: Collection[tuple[str, str]]) -> str | None:
    """The first captured table that the words name, as `database.table`."""
    lower = {(database.lower(), table.lower()) for database, table in captured}
    for i, word in enumerate(words):
        qualified = i >= 2 and words[i - 1] == "."
        database = words[i - 2] if qualified else default_database
        if (database.lower(), word.lower()) in lower:
            return f"{database}.{word}"
    return None
