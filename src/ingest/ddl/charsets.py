"""Character sets of MySQL and MariaDB: names, longest character in bytes, and the set that a collation belongs to."""

from __future__ import annotations

from ingest.ddl.dialect import Dialect
from ingest.ddl.errors import DdlNotUnderstood

BINARY = "binary"

# name → longest character in bytes. Source: information_schema.CHARACTER_SETS of MySQL 5.7–9.7, MariaDB 10.11–11.4.
WIDTHS = {
    "armscii8": 1, "ascii": 1, "big5": 2, "binary": 1, "cp1250": 1, "cp1251": 1, "cp1256": 1, "cp1257": 1, "cp850": 1,
    "cp852": 1, "cp866": 1, "cp932": 2, "dec8": 1, "eucjpms": 3, "euckr": 2, "gb18030": 4, "gb2312": 2, "gbk": 2,
    "geostd8": 1, "greek": 1, "hebrew": 1, "hp8": 1, "keybcs2": 1, "koi8r": 1, "koi8u": 1, "latin1": 1, "latin2": 1,
    "latin5": 1, "latin7": 1, "macce": 1, "macroman": 1, "sjis": 2, "swe7": 1, "tis620": 1, "ucs2": 2, "ujis": 3,
    "utf16": 4, "utf16le": 4, "utf32": 4, "utf8mb3": 3, "utf8mb4": 4,
}  # fmt: skip

# Character sets whose shortest character has several bytes.
WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})


def charset_named(name: str, dialect: Dialect) -> str:
    """Return a character set's name as the server prints it. Raises DdlNotUnderstood for an unknown one."""
    low = name.lower()
    if low in ("utf8", "utf8mb3"):
        return dialect.utf8
    if low not in WIDTHS:
        raise DdlNotUnderstood(f"character set {name} is not known")
    return low


def charset_of_collation(collation: str, dialect: Dialect) -> str | None:
    """Return the character set of a collation; None for MariaDB's collations of several character sets (uca1400_…)."""
    low = collation.lower()
    if low.startswith("uca1400_") and dialect.maria:
        return None
    return charset_named(low.partition("_")[0], dialect)


_GENERAL = frozenset({"ascii", "cp1250", "cp1251", "greek", "hebrew", "koi8r", "latin2", "ucs2", "utf16", "utf32"})


def default_collation(charset: str, dialect: Dialect) -> str | None:
    """Return the default collation of a character set on a server with default settings; None if that depends on
    settings."""
    if charset == "latin1":
        return "latin1_swedish_ci"
    if charset == "utf8mb4" and not dialect.maria and dialect.version >= 80001:
        return "utf8mb4_0900_ai_ci"
    if dialect.maria and dialect.version >= 110500 and charset not in ("ascii", "cp1250", "cp1251", "koi8r", "latin2"):
        return None  # the server's variable character_set_collations decides
    return f"{charset}_general_ci" if charset in _GENERAL | {"utf8", "utf8mb3", "utf8mb4"} else None


def bin_collation(charset: str) -> str:
    """Return the collation of a character set that compares texts by code points."""
    return f"{charset}_bin"


def width_of(charset: str) -> int:
    """Return the bytes of a character set's longest character."""
    return WIDTHS["utf8mb3" if charset == "utf8" else charset]
