"""Parse a column definition, `name type attributes`, of CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cdc.model.types import Canonical
from ingest.ddl.catalog import ColumnDefinition, Key
from ingest.ddl.charsets import BINARY, bin_collation, default_collation
from ingest.ddl.column_types import BY_CODE, TypeWords, read_charset, read_type, resolved
from ingest.ddl.cursor import Cursor
from ingest.ddl.defaults import Literal, initial_of, literal_of
from ingest.ddl.dialect import Dialect

ROW_START, ROW_END = "GENERATED ALWAYS AS ROW START", "GENERATED ALWAYS AS ROW END"
VERSIONING = "WITH SYSTEM VERSIONING"
_CLAUSE_ENDS = frozenset({",", ")", "FIRST", "AFTER", ";"})
_OPERATORS = frozenset("+ - * / % | & ^ < > = ! DIV MOD AND OR XOR".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWords:
    """A column definition as a statement spells it. `definition` adds what it inherits from the table.

    `nullable` is None if not specified. `keys` are those that the column's own attributes declare.
    """

    name: str
    type: TypeWords
    nullable: bool | None = None
    keys: tuple[Key, ...] = ()
    default: str = ""
    literal: Literal | None = None
    rest: str = ""
    suffix: str = ""

    def definition(
        self, charset: str | None, collation: str | None, dialect: Dialect, convert_to: str | None = None
    ) -> ColumnDefinition:
        """Return the column's definition in a table with these defaults.

        `convert_to` is the character set of CONVERT TO in the same statement, which overrides the column's own. Raises
        DdlNotUnderstood if a needed character set is unknown.
        """
        words = self.type
        if convert_to and words.stem and words.charset != BINARY and (words.charset or charset) != BINARY:
            words = replace(words, charset=convert_to, collation=None)
        text, shown = resolved(words, charset, dialect)
        by_nature = not (words.timestamp and not dialect.timestamps_are_plain)
        nullable = by_nature if self.nullable is None else self.nullable
        initial, known = self._initial(text, nullable=nullable)
        return ColumnDefinition(
            name=self.name,
            column_type=text + self.suffix,
            nullable=nullable,
            charset=shown,
            collation=None if shown is None else collated(words, shown, collation, dialect),
            default=shown_default(self.default),
            rest=self.rest,
            initial=initial,
            initial_known=known,
        )

    def _initial(self, column_type: str, *, nullable: bool) -> tuple[Canonical, bool]:
        if self.type.timestamp and not nullable and not self.default:
            return None, False  # the first TIMESTAMP of a table defaults to CURRENT_TIMESTAMP
        if self.default and self.literal is None:
            return None, False
        computed = any(word in self.rest for word in ("AUTO_INCREMENT", "AS (", ROW_START, ROW_END)) or self.type.serial
        return (None, False) if computed else initial_of(self.literal, column_type, nullable=nullable)


def sees_partitioning(cursor: Cursor) -> bool:
    """Return whether partition options are next, which ALTER TABLE accepts without a comma before them."""
    return cursor.sees("PARTITION", "BY") or cursor.sees("REMOVE", "PARTITIONING")


def read_column(cursor: Cursor, name: str) -> ColumnWords:
    """Parse what follows a column's name, up to a comma, a closing bracket, FIRST, AFTER or the end."""
    kind = read_type(cursor)
    nullable: bool | None = False if kind.serial else None
    keys = [Key(name=name, kind="unique", columns=(name,))] if kind.serial else []
    rest: list[str] = []
    default = suffix = ""
    literal: Literal | None = None
    while not cursor.done() and not cursor.sees_any(_CLAUSE_ENDS) and not sees_partitioning(cursor):
        start = cursor.at
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            nullable = True
        elif cursor.accept("GENERATED", "ALWAYS", "AS", "ROW") or cursor.accept("AS", "ROW"):
            nullable = False
            if cursor.accept("START"):
                rest.append(ROW_START)
            else:
                cursor.expect("END")
                rest.append(ROW_END)
        elif cursor.accept("AUTO_INCREMENT"):
            nullable = False
            rest.append("AUTO_INCREMENT")
        elif cursor.accept("SERIAL", "DEFAULT", "VALUE"):
            nullable = False
            rest.append("AUTO_INCREMENT")
            keys.append(Key(name=name, kind="unique", columns=(name,)))
        elif (key := _key_of(cursor, name)) is not None:
            keys.append(key)
        elif cursor.accept("DEFAULT"):
            skip_expression(cursor)
            default = cursor.since(start + 1)
            literal = literal_of(cursor.words_since(start + 1))
        elif cursor.accept("COMPRESSED"):
            _compressed(cursor)
            suffix = " /*M!100301 COMPRESSED*/"
        elif (found := read_charset(cursor)) != (None, None) or cursor.at != start:
            kind = replace(kind, charset=kind.charset or found[0], collation=kind.collation or found[1])
        else:
            _attribute(cursor)
            rest.append(cursor.since(start))
            if rest[-1].startswith("COMMENT "):
                rest.pop()
    return ColumnWords(
        name=name,
        type=kind,
        nullable=nullable,
        keys=tuple(keys),
        default=default,
        literal=literal,
        rest=" ".join(rest),
        suffix=suffix,
    )


def _key_of(cursor: Cursor, name: str) -> Key | None:
    """Parse a key that is declared as a column attribute (`PRIMARY KEY`, `UNIQUE`); None if none is next."""
    if cursor.accept("UNIQUE"):
        if not cursor.accept("KEY"):
            cursor.accept("INDEX")
        return Key(name=name, kind="unique", columns=(name,))
    if cursor.accept("PRIMARY"):
        cursor.accept("KEY")
    elif not cursor.accept("KEY"):
        return None
    return Key(name="PRIMARY", kind="primary", columns=(name,))


def period(columns: Iterable[ColumnDefinition]) -> tuple[str, str]:
    """Return the names of the two columns, ROW START and ROW END, of a system-versioned table."""
    columns = list(columns)
    start = next((column.name for column in columns if ROW_START in column.rest), "row_start")
    return start, next((column.name for column in columns if ROW_END in column.rest), "row_end")


def collated(words: TypeWords, charset: str, inherited: str | None, dialect: Dialect) -> str | None:
    """Return the collation of a column with this character set; `inherited` is the table's default collation.

    None if the table's default is not known.
    """
    if words.collation == BY_CODE:
        return bin_collation(charset)
    if words.collation:
        return words.collation
    if words.charset:
        return default_collation(charset, dialect)
    return inherited


def shown_default(words: str) -> str:
    """Normalize the text of a default so that equal defaults compare equal: a quoted number is a number, NULL is
    none."""
    text = words[1:] if words[:1] in ("'", '"') else words
    return "" if text == "NULL" else text


def _compressed(cursor: Cursor) -> None:
    if not cursor.dialect.maria:
        raise cursor.error("COMPRESSED is a column attribute of MariaDB only")
    if cursor.accept("="):
        cursor.label()


def _attribute(cursor: Cursor) -> None:
    """Skip one attribute that changes neither type nor nullability. Raises DdlNotUnderstood for any other word."""
    if cursor.accept("ON", "UPDATE"):
        cursor.name()
        if cursor.sees("("):
            cursor.skip_group()
    elif cursor.accept("COMMENT"):
        cursor.string()
    elif cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        cursor.skip_group()
    elif cursor.accept("REFERENCES"):
        skip_reference(cursor)
    elif cursor.accept("CHECK"):
        cursor.skip_group()
    elif cursor.accept("CONSTRAINT"):
        if not cursor.sees("CHECK"):
            cursor.name()
        cursor.expect("CHECK")
        cursor.skip_group()
    elif cursor.accept("COLUMN_FORMAT") or cursor.accept("STORAGE"):
        cursor.name()
    elif cursor.accept("SRID") or cursor.accept("REF_SYSTEM_ID", "="):
        cursor.number()
    elif cursor.accept("ENGINE_ATTRIBUTE") or cursor.accept("SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.accept("=")
        cursor.string()
    elif not _plain_attribute(cursor):
        raise cursor.error("expected a column attribute")


_PLAIN_ATTRIBUTES = (
    ("VIRTUAL",), ("STORED",), ("PERSISTENT",), ("VISIBLE",), ("INVISIBLE",), ("ENFORCED",), ("NOT", "ENFORCED"),
    ("NOT", "SECONDARY"), ("WITH", "SYSTEM", "VERSIONING"), ("WITHOUT", "SYSTEM", "VERSIONING"),
)  # fmt: skip


def _plain_attribute(cursor: Cursor) -> bool:
    if any(cursor.accept(*words) for words in _PLAIN_ATTRIBUTES):
        return True
    if cursor.dialect.maria and cursor.peek(1).upper == "=":  # an attribute of a storage engine
        cursor.label()
        cursor.expect("=")
        cursor.take()
        return True
    return False


def skip_reference(cursor: Cursor) -> None:
    """Skip what follows REFERENCES: a table, its columns, and ON DELETE and ON UPDATE."""
    cursor.table("")
    if cursor.sees("("):
        cursor.skip_group()
    while True:
        if cursor.accept("MATCH"):
            cursor.name()
        elif cursor.accept("ON", "DELETE") or cursor.accept("ON", "UPDATE"):
            if cursor.accept("SET"):
                if not cursor.accept("NULL"):
                    cursor.expect("DEFAULT")
            elif cursor.accept("NO"):
                cursor.expect("ACTION")
            elif not cursor.accept("RESTRICT"):
                cursor.expect("CASCADE")
        else:
            return


def skip_expression(cursor: Cursor) -> None:
    """Skip a default: a literal, a function, a bracketed expression, or (MariaDB) several joined by operators."""
    _skip_operand(cursor)
    while cursor.sees_any(_OPERATORS):
        cursor.take()
        while cursor.sees_any(_OPERATORS):
            cursor.take()
        _skip_operand(cursor)


def _skip_operand(cursor: Cursor) -> None:
    while cursor.accept("-") or cursor.accept("+") or cursor.accept("~") or cursor.accept("!"):
        pass
    if cursor.sees("("):
        cursor.skip_group()
        return
    if cursor.accept("NEXT", "VALUE", "FOR"):
        cursor.table("")
        return
    cursor.accept(".")  # the tokenizer splits `.5` into a dot and a number
    word = cursor.take()
    if word.kind == "number" and cursor.peek().glued and cursor.accept("."):
        return
    if word.text.startswith("_") and word.kind == "word" and cursor.peek().text[:2] in ("0x", "0b"):
        cursor.take()  # _latin1 0xE4
        return
    if word.text.startswith("_") and word.kind == "word" and cursor.sees_any({"X", "B"}):
        word = cursor.take()  # _latin1 x'E4'
    if word.kind == "string" or (word.kind == "word" and cursor.peek().kind == "string"):
        while cursor.peek().kind == "string":  # 'a' 'b', _utf8'a', DATE'…', b'1'
            cursor.take()
        return
    if word.kind == "symbol":
        cursor.at -= 1
        raise cursor.error("expected a default")
    while cursor.accept("."):
        cursor.name()
    if cursor.sees("("):
        cursor.skip_group()
