"""Parse a column type in any spelling, and print it as information_schema does."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ingest.binlog.format.charsets import text_decoder
from ingest.ddl.charsets import BINARY, WIDE, charset_named, charset_of_collation, width_of
from ingest.ddl.cursor import Cursor
from ingest.ddl.dialect import Dialect
from ingest.ddl.errors import DdlNotUnderstood

_INTEGERS = {
    "TINYINT": "tinyint", "INT1": "tinyint", "SMALLINT": "smallint", "INT2": "smallint", "MEDIUMINT": "mediumint",
    "INT3": "mediumint", "MIDDLEINT": "mediumint", "INT": "int", "INTEGER": "int", "INT4": "int", "BIGINT": "bigint",
    "INT8": "bigint",
}  # fmt: skip
# default display width: signed, unsigned
_INTEGER_WIDTHS = {
    "tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20),
}  # fmt: skip
_DECIMALS = {"DECIMAL", "DEC", "NUMERIC", "FIXED"}
_FLOATING = {"FLOAT": "float", "FLOAT4": "float", "DOUBLE": "double", "FLOAT8": "double", "REAL": "double"}
_FRACTIONAL = {"TIME": "time", "DATETIME": "datetime", "TIMESTAMP": "timestamp"}
_BLOBS = {"TINYBLOB": "tinyblob", "MEDIUMBLOB": "mediumblob", "LONGBLOB": "longblob"}
_TEXTS = {"TINYTEXT": "tinytext", "MEDIUMTEXT": "mediumtext", "LONGTEXT": "longtext"}
_GEOMETRIES = {
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
}  # fmt: skip
_COLLECTIONS = {"GEOMETRYCOLLECTION", "GEOMCOLLECTION"}
_TEXT_OF = {"tinyblob": "tinytext", "blob": "text", "mediumblob": "mediumtext", "longblob": "longtext"}
_BLOB_OF = {text: blob for blob, text in _TEXT_OF.items()}
_BLOB_LENGTHS = {"tinyblob": 255, "blob": 65535, "mediumblob": 16777215, "longblob": 4294967295}
_LONGEST_VARCHAR = 65535
_LONGEST_CHAR = 255
BY_CODE = "_bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeWords:
    """A column type as a statement spells it. `text` is the printed type of all but character types.

    A character type has `stem`, `length` and `members` instead: its printed type depends on the table's character set,
    and `resolved` computes it. A member of ENUM or SET that is written in hexadecimal or binary digits is bytes.
    `charset` and `collation` are those in the statement, or None. `serial` and `timestamp`: the type is SERIAL or
    TIMESTAMP. `nullable_by_nature`: without NULL or NOT NULL the column may be NULL.
    """

    text: str = ""
    stem: str = ""
    length: int | None = None
    members: tuple[str | bytes, ...] | None = None
    charset: str | None = None
    collation: str | None = None
    serial: bool = False
    timestamp: bool = False
    nullable_by_nature: bool = True


def read_type(cursor: Cursor) -> TypeWords:
    """Parse a column type with its numeric and character set options. Raises DdlNotUnderstood for an unknown type."""
    word = cursor.take()
    name, dialect = word.upper, cursor.dialect
    if name in _INTEGERS:
        return _integer(cursor, _INTEGERS[name])
    if name in ("BOOL", "BOOLEAN"):
        return TypeWords(text="tinyint(1)")
    if name == "SERIAL":
        wide = "bigint(20) unsigned" if dialect.prints_widths else "bigint unsigned"
        return TypeWords(text=wide, serial=True)
    if name in _DECIMALS:
        precision, scale = _pair(cursor)
        return TypeWords(text=f"decimal({precision or 10},{scale or 0}){_signs(cursor)}")
    if name in _FLOATING:
        return _floating(cursor, name)
    if name == "BIT":
        return TypeWords(text=f"bit({_length(cursor) or 1})")
    if name == "YEAR":
        width = _length(cursor)
        _signs(cursor)
        shown = 2 if dialect.maria and width == 2 else 4
        return TypeWords(text=f"year({shown})" if dialect.prints_widths else "year")
    if name == "DATE":
        return TypeWords(text="date")
    if name in _FRACTIONAL:
        digits = _length(cursor)
        text = f"{_FRACTIONAL[name]}({digits})" if digits else _FRACTIONAL[name]
        return TypeWords(text=text, timestamp=name == "TIMESTAMP")
    if name in _GEOMETRIES:
        return TypeWords(text=name.lower())
    if name in _COLLECTIONS and (name == "GEOMETRYCOLLECTION" or not dialect.maria):
        return TypeWords(
            text="geomcollection" if not dialect.maria and dialect.version >= 80011 else "geometrycollection"
        )
    if name == "JSON":
        return TypeWords(stem="longtext", charset="utf8mb4") if dialect.maria else TypeWords(text="json")
    if name == "VECTOR" and (dialect.version >= 110700 if dialect.maria else dialect.version >= 90000):
        return TypeWords(text=f"vector({_length(cursor) or 2048})")
    if dialect.maria and (
        (name == "UUID" and dialect.version >= 100700)
        or (name == "INET6" and dialect.version >= 100500)
        or (name == "INET4" and dialect.version >= 101000)
    ):
        return TypeWords(text=name.lower())
    found = _characters(cursor, name)
    if found is None:
        cursor.at -= 1
        raise cursor.error("expected a column type")
    return found


def _characters(cursor: Cursor, name: str) -> TypeWords | None:
    """Parse a type for texts or bytes; None for any other type."""
    national = name == "NATIONAL" or name in ("NCHAR", "NVARCHAR")
    if name == "NATIONAL":
        name = cursor.take().upper
    if name in ("CHAR", "CHARACTER", "NCHAR"):
        varying = cursor.accept("VARYING") or (
            name == "NCHAR" and (cursor.accept("VARCHAR") or cursor.accept("VARCHARACTER"))
        )
        stem = "varchar" if varying else "char"
    elif name in ("VARCHAR", "VARCHARACTER", "NVARCHAR"):
        stem = "varchar"
    elif national:
        return None
    elif name in ("BINARY", "VARBINARY"):
        stem, length = name.lower(), _length(cursor)
        if stem == "varbinary":
            return TypeWords(stem="varchar", length=_required_length(cursor, length), charset=BINARY)
        return TypeWords(stem="char", length=1 if length is None else length, charset=BINARY)
    elif name == "BLOB":
        return TypeWords(stem="text", length=_text_length(cursor), charset=BINARY)
    elif name in _BLOBS:
        return TypeWords(stem=_TEXT_OF[_BLOBS[name]], charset=BINARY)
    elif name == "TEXT":
        return _with_charset(cursor, TypeWords(stem="text", length=_text_length(cursor)))
    elif name in _TEXTS:
        return _with_charset(cursor, TypeWords(stem=_TEXTS[name]))
    elif name == "LONG":
        return _long(cursor)
    elif name in ("ENUM", "SET"):
        return _with_charset(cursor, TypeWords(stem=name.lower(), members=_members(cursor)))
    else:
        return None
    length = _length(cursor)
    length = _required_length(cursor, length) if stem == "varchar" else (1 if length is None else length)
    if stem == "char" and length > _LONGEST_CHAR:
        raise cursor.error(f"CHAR({length}) is longer than servers allow")
    words = _with_charset(cursor, TypeWords(stem=stem, length=length))
    return replace(words, charset=cursor.dialect.utf8) if national else words


def _text_length(cursor: Cursor) -> int | None:
    """Parse the length of a text type. MySQL 8 treats 0 as a length, other servers as no length."""
    length = _length(cursor)
    return None if length == 0 and (cursor.dialect.maria or cursor.dialect.version < 80000) else length


def _long(cursor: Cursor) -> TypeWords:
    if cursor.accept("VARBINARY"):
        return TypeWords(stem="mediumtext", charset=BINARY)
    for words in (("CHAR", "VARYING"), ("CHARACTER", "VARYING"), ("VARCHAR",), ("VARCHARACTER",)):
        if cursor.accept(*words):
            break
    return _with_charset(cursor, TypeWords(stem="mediumtext"))


def _required_length(cursor: Cursor, length: int | None) -> int:
    if length is None:
        raise cursor.error("VARCHAR and VARBINARY need a length")
    return length


def _integer(cursor: Cursor, name: str) -> TypeWords:
    width = _length(cursor)
    signs = _signs(cursor)
    if (
        not cursor.dialect.prints_widths
        and "zerofill" not in signs
        and not (name == "tinyint" and width == 1 and not signs)
    ):
        return TypeWords(text=name + signs)
    shown = width or _INTEGER_WIDTHS[name][1 if signs else 0]
    return TypeWords(text=f"{name}({shown}){signs}")


def _floating(cursor: Cursor, name: str) -> TypeWords:
    base = "float" if name == "REAL" and cursor.dialect.real_as_float else _FLOATING[name]
    if name == "DOUBLE":
        cursor.accept("PRECISION")
    precision, scale = _pair(cursor)
    if precision is not None and scale is None:
        if base == "double":
            raise cursor.error("DOUBLE needs two numbers in its brackets")
        base = "float" if precision <= 24 else "double"
    size = "" if scale is None else f"({precision},{scale})"
    return TypeWords(text=base + size + _signs(cursor))


def _length(cursor: Cursor) -> int | None:
    if not cursor.accept("("):
        return None
    length = _whole(cursor)
    cursor.expect(")")
    return length


def _whole(cursor: Cursor) -> int:
    """Parse a number in the brackets of a type. Of `19.5`, servers use the part before the point."""
    whole, point, digits = cursor.peek().text.partition(".")
    if cursor.peek().kind != "number" or not point or not whole.isdecimal() or not (whole + digits).isascii():
        return cursor.number()
    cursor.take()
    return int(whole[:20])


def _pair(cursor: Cursor) -> tuple[int | None, int | None]:
    """Parse `(M)` or `(M,D)`."""
    if not cursor.accept("("):
        return None, None
    first, second = _whole(cursor), None
    if cursor.accept(","):
        second = cursor.number()
    cursor.expect(")")
    return first, second


def _signs(cursor: Cursor) -> str:
    unsigned = zerofill = False
    while True:
        if cursor.accept("UNSIGNED"):
            unsigned = True
        elif cursor.accept("ZEROFILL"):
            zerofill = True
        elif not cursor.accept("SIGNED"):
            break
    return " unsigned zerofill" if zerofill else " unsigned" if unsigned else ""


def _members(cursor: Cursor) -> tuple[str | bytes, ...]:
    cursor.expect("(")
    members = [_member(cursor)]
    while cursor.accept(","):
        members.append(_member(cursor))
    cursor.expect(")")
    return tuple(members)


def _member(cursor: Cursor) -> str | bytes:
    """Parse a member of ENUM or SET: a text, or its bytes as `0x61`, `x'61'`, `0b1100001` or `b'1100001'`."""
    word = cursor.peek()
    if word.upper in ("X", "B") and cursor.peek(1).kind == "string":
        cursor.take()
        return _digits(cursor, cursor.string(), 16 if word.upper == "X" else 2)
    if word.kind in ("word", "number") and word.text[:2] in ("0x", "0b"):
        cursor.take()
        return _digits(cursor, word.text[2:], 16 if word.text[1] == "x" else 2)
    return cursor.string()


def _digits(cursor: Cursor, digits: str, base: int) -> bytes:
    size = -(-len(digits) * (4 if base == 16 else 1) // 8)
    try:
        return int(digits or "0", base).to_bytes(size, "big")
    except ValueError as error:
        raise cursor.error("expected digits") from error


def _text_of(member: str | bytes, charset: str) -> str:
    if isinstance(member, str):
        return member
    found = text_decoder("utf8mb4" if charset == BINARY else charset)
    try:
        return found(member)
    except (UnicodeDecodeError, LookupError, ValueError) as error:
        raise DdlNotUnderstood(f"a member of ENUM or SET is not valid text in {charset}") from error


def _with_charset(cursor: Cursor, words: TypeWords) -> TypeWords:
    charset, collation = read_charset(cursor)
    return replace(words, charset=charset, collation=collation) if charset or collation else words


def read_charset(cursor: Cursor) -> tuple[str | None, str | None]:
    """Parse the character set options of a column, in any order, as (character set, collation); None for what is
    absent.

    The attribute BINARY gives the collation `BY_CODE`, which stands for the one that compares texts by code points.
    """
    charset: str | None = None
    collation: str | None = None
    while True:
        if cursor.accept("CHARACTER", "SET") or cursor.accept("CHAR", "SET") or cursor.accept("CHARSET"):
            charset = charset_named(cursor.label(), cursor.dialect)
        elif cursor.accept("COLLATE"):
            collation = cursor.label().lower()
            charset = charset or charset_of_collation(collation, cursor.dialect)
        elif cursor.accept("ASCII"):
            charset = "latin1"
        elif cursor.accept("UNICODE"):
            charset = "ucs2"
        elif cursor.accept("BYTE"):
            charset = BINARY
        elif cursor.accept("BINARY"):
            collation = collation or BY_CODE
        else:
            return charset, collation


def resolved(words: TypeWords, default_charset: str | None, dialect: Dialect) -> tuple[str, str | None]:
    """Return the printed type and the character set of a column, given the table's default character set (None: not
    known).

    Raises DdlNotUnderstood if a text needs that default and it is not known."""
    if not words.stem:
        return words.text, None
    charset = words.charset or default_charset
    if charset is None:
        raise DdlNotUnderstood("the database's default character set is not known")
    if words.members is not None:
        members = tuple(_text_of(member, charset) for member in words.members)
        if charset != BINARY:
            members = tuple(member.rstrip(" ") for member in members)
        listed = ",".join("'" + _escaped(member) + "'" for member in members)
        return f"{words.stem}({listed})", _listed_charset(charset, dialect)
    return sized(words.stem, words.length, charset)


def _listed_charset(charset: str, dialect: Dialect) -> str | None:
    """Return a column's character set as information_schema shows it.

    For an ENUM of bytes, MySQL 8 shows none, other servers show `binary`.
    """
    return None if charset == BINARY and not dialect.maria and dialect.version >= 80000 else charset


def sized(stem: str, length: int | None, charset: str) -> tuple[str, str | None]:
    """Return the printed type and the character set of a type with this stem (`char`, `varchar`, `text`, …) and length.

    `length` is in characters.
    """
    shown = None if charset == BINARY else charset
    if stem == "char":
        return (f"binary({length})" if charset == BINARY else f"char({length})"), shown
    if stem == "varchar":
        assert length is not None
        if length * width_of(charset) <= _LONGEST_VARCHAR:
            return (f"varbinary({length})" if charset == BINARY else f"varchar({length})"), shown
        stem = "text"
    if length is not None:
        size = length * width_of(charset)
        blob = next((name for name, longest in _BLOB_LENGTHS.items() if size <= longest), "longblob")
        stem = _TEXT_OF[blob]
    return (_BLOB_OF[stem] if charset == BINARY else stem), shown


_SIZED = re.compile(r"(char|varchar)\((\d+)\)")


def converted(column_type: str, charset: str | None, to: str, dialect: Dialect) -> tuple[str, str | None]:
    """Return type and character set of a column after CONVERT TO CHARACTER SET. Bytes and numbers stay the same.

    Raises DdlNotUnderstood for an ENUM or SET between bytes and wide characters, because servers corrupt its members.
    """
    if charset is None or charset == BINARY:
        return column_type, charset
    if match := _SIZED.match(column_type):
        return sized(match.group(1), int(match.group(2)), to)
    bare = column_type.partition(" ")[0]
    if bare in _BLOB_OF:
        length = _BLOB_LENGTHS[_BLOB_OF[bare]] // width_of(charset)
        return sized(bare, None if bare == "longtext" else length, to)
    if (charset in WIDE) != (to in WIDE):
        raise DdlNotUnderstood(f"members of {bare.partition('(')[0]} columns are corrupted by a conversion to {to}")
    return column_type, _listed_charset(to, dialect)


_ESCAPES = str.maketrans({"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


def _escaped(member: str) -> str:
    return member.translate(_ESCAPES)
