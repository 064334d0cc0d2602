"""Find the tables that a statement may change, if the log contains only its text. It may return too many, never too
few.

The changed rows are unknown, so these tables are re-read. Tables that are changed by a trigger or a stored function are
not in the text.
"""

from __future__ import annotations

from struct import unpack_from

from cdc.model.identifiers import fold_identifier
from ingest.binlog.reading.effects import MOST_TOKENS, StatementTokens

_SKIPPED = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "CONCURRENT", "LOCAL", "XML", "DATA")
Names = frozenset[tuple[str, str]]


def written(database: str, statement: str) -> Names | None:
    """Return (database, table) pairs, in lower case, that include all tables that the statement changes.

    None means that they are unknown (CALL, a function in a SELECT, an unknown statement). `database` is the default
    database.
    """
    s = StatementTokens(statement, database)
    if s.take("SET", "STATEMENT") and not s.seek("FOR"):
        return None
    if s.take("WITH"):
        return _named(s, database)
    if s.take("UPDATE"):
        return _named(s, database, "SET")
    if s.take("DELETE"):
        return _named(s, database, "WHERE")
    if s.take("LOAD"):
        return _target(s) if s.seek("INTO", "TABLE") else None
    if s.take("INSERT") or s.take("REPLACE"):
        while any(s.take(word) for word in _SKIPPED):
            pass
        return _target(s)
    if s.take("CREATE"):
        s.take("OR", "REPLACE")
        if not s.take("TABLE"):
            return None
        s.take("IF", "NOT", "EXISTS")
        return _target(s)
    return None


def fills(statement: str) -> bool:
    """Return whether a statement is CREATE TABLE … SELECT, whose rows a statement-based log does not contain."""
    s = StatementTokens(statement, "")
    if not s.take("CREATE"):
        return False
    s.take("OR", "REPLACE")
    if not s.take("TABLE"):
        return False
    return "SELECT" in s.rest() or s.seek("VALUES", "ROW")


def loaded(data: bytes) -> tuple[str, str]:
    """Return (database, statement) of the event that ends a LOAD DATA in a statement-based log.

    Raises ValueError if the event is truncated.
    """
    # Source: Execute_load_query_log_event: a query event with 13 more bytes in its head
    _, _, size, _, status = unpack_from("<IIBHH", data)
    at = 13 + 13 + status
    if len(data) < at + size + 1:
        raise ValueError("the event ends before its statement")
    return data[at : at + size].decode(), data[at + size + 1 :].decode(errors="replace")


def _target(s: StatementTokens) -> Names:
    database, table = s.table()
    return frozenset({(fold_identifier(database), fold_identifier(table))})


def _named(s: StatementTokens, database: str, end: str = "") -> Names | None:
    """Return all possible table names up to the word `end` outside parentheses, or to the end of the statement."""
    words = [text for text, _ in s.until(end)]
    if len(words) >= MOST_TOKENS:
        return None
    qualified = zip(words, words[1:], words[2:], strict=False)
    return frozenset(
        {(fold_identifier(database), fold_identifier(word)) for word in words}
        | {(fold_identifier(left), fold_identifier(right)) for left, dot, right in qualified if dot == "."}
    )
