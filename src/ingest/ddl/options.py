"""Parse the options of tables and databases. Only the character set affects columns; all others are skipped."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.ddl.charsets import charset_named, charset_of_collation, default_collation
from ingest.ddl.cursor import Cursor
from ingest.ddl.dialect import Dialect

# Options with a value, after an optional equals sign.
_VALUED = frozenset(
    """AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT COMPRESSION CONNECTION
    DELAY_KEY_WRITE ENCRYPTION ENCRYPTED ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE SECONDARY_ENGINE_ATTRIBUTE
    SECONDARY_ENGINE IETF_QUOTES INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM
    PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT SEQUENCE STATS_AUTO_RECALC STATS_PERSISTENT
    STATS_SAMPLE_PAGES TABLESPACE TRANSACTIONAL UNION STORAGE NODEGROUP MAXVALUE START_LSN""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CharsetOption:
    """A default character set option of a table or database. `inherited`: use the default of the level above.

    Both `charset` and `inherited` are unset for MariaDB's collations of several character sets.
    """

    charset: str | None = None
    inherited: bool = False
    collation: str | None = None

    def collated(self, current: str | None, dialect: Dialect) -> str | None:
        """Return the default collation after this option; `current` is the previous one. None if it is not known."""
        if self.collation or self.inherited or not self.charset:
            return self.collation
        if current and charset_of_collation(current, dialect) == self.charset:
            return current
        return default_collation(self.charset, dialect)

    def applied(self, current: str | None, above: str | None) -> str | None:
        """Return the default character set after this option.

        `current` is the previous one, `above` that of the level above. None if it is not known.
        """
        return above if self.inherited else self.charset or current


def read_charset_option(cursor: Cursor) -> CharsetOption | None:
    """Parse `[DEFAULT] CHARACTER SET | CHARSET | COLLATE [=] name`; None if it is not next. A collation implies its
    set."""
    start = cursor.at
    cursor.accept("DEFAULT")
    if cursor.accept("CHARACTER", "SET") or cursor.accept("CHARSET") or cursor.accept("CHAR", "SET"):
        cursor.accept("=")
        if cursor.accept("DEFAULT"):
            return CharsetOption(inherited=True)
        return CharsetOption(charset=charset_named(cursor.label(), cursor.dialect))
    if cursor.accept("COLLATE"):
        cursor.accept("=")
        if cursor.accept("DEFAULT"):
            return CharsetOption(inherited=True)
        collation = cursor.label().lower()
        return CharsetOption(charset=charset_of_collation(collation, cursor.dialect), collation=collation)
    cursor.at = start
    return None


def read_engine(cursor: Cursor) -> str:
    """Parse `ENGINE [=] name` and return the engine; empty if it is not next."""
    if not (cursor.accept("ENGINE") or cursor.accept("TYPE")):
        return ""
    cursor.accept("=")
    return cursor.label()


def read_table_option(cursor: Cursor) -> bool:
    """Skip one table option other than a character set. Returns False if none is next."""
    word = cursor.peek().upper
    if word in _VALUED:
        cursor.take()
        cursor.accept("=")
        if cursor.sees("("):
            cursor.skip_group()
        else:
            _skip_value(cursor)
        return True
    if cursor.accept("DATA", "DIRECTORY") or cursor.accept("INDEX", "DIRECTORY"):
        cursor.accept("=")
        cursor.string()
        return True
    if cursor.accept("START", "TRANSACTION") or cursor.accept("WITH", "SYSTEM", "VERSIONING"):
        return True
    if cursor.dialect.maria and cursor.peek().kind in ("word", "name") and cursor.peek(1).upper == "=":
        cursor.take()  # an attribute of a storage engine
        cursor.take()
        _skip_value(cursor)
        return True
    return False


def _skip_value(cursor: Cursor) -> None:
    word = cursor.take()
    if word.kind == "symbol":
        cursor.at -= 1
        raise cursor.error("expected a value")
    if word.kind == "number" and cursor.peek().glued and cursor.accept("."):
        cursor.take()


def skip_partitioning(cursor: Cursor) -> None:
    """Skip PARTITION BY and all its definitions. After them only a SELECT may follow."""
    while not cursor.done() and not any(cursor.sees(word) for word in ("SELECT", "AS", "IGNORE", "REPLACE", "WITH")):
        if cursor.sees("("):
            cursor.skip_group()
        else:
            cursor.take()
