"""The generated row decoder: Python source for one table, one set of present columns and one pattern of NULLs.

Neighbouring columns of fixed size become one `struct.Struct` together with the length of the next variable one, so
that a row costs a few C calls and no branch. The source is made from type codes and numbers only: names and labels
enter as objects, never as text. A row's function takes (event body, offset) and returns (row, offset behind the row);
it raises struct.error, IndexError, KeyError or ValueError for bytes that make no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from struct import Struct
from typing import Any, Final

from ingest.binlog import convert, temporal
from ingest.binlog.charsets import text_decoder
from ingest.binlog.codes import INTEGER_SIZES, ColumnType
from ingest.binlog.columns import Column
from ingest.binlog.decimals import decimal_plan, decimal_text
from ingest.binlog.errors import UndecodableValue
from ingest.binlog.flavour import ABSENT, EnumIndex, Flavour, SetMask
from ingest.binlog.jsondiff import read_diffs
from ingest.binlog.jsondocument import document_reader

T = ColumnType
RowFunction = Callable[[bytes, int], tuple[Any, int]]
# What learns from the values of a column, by the column's index: shared by all functions of a table.
Readers = dict[int, Callable[[bytes], Any]]

_FORMATS: Final = {1: "bB", 2: "hH", 4: "iI", 8: "qQ"}
_LENGTHS: Final = {1: "B", 2: "H", 4: "I"}


class RowCode:
    """Collects the source of one decoder; `Emitter` methods are chosen by column type in `_EMIT`."""

    def __init__(self, flavour: Flavour, readers: Readers) -> None:
        self.flavour = flavour
        self.readers = readers
        self.lines: list[str] = []
        self.env: dict[str, Any] = {"I": int.from_bytes}
        self.pending: list[tuple[str, str]] = []
        self.indent = " "

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def bind(self, name: str, value: Any) -> str:
        self.env[name] = value
        return name

    def fixed(self, form: str, variable: str) -> str:
        """Reserve a value of fixed size in the struct that is being collected."""
        self.pending.append((form, variable))
        return variable

    def unpack(self, advance: str = "p+={size}") -> None:
        """Write the unpacking of all reserved values."""
        if not self.pending:
            return
        struct = Struct("<" + "".join(form for form, _ in self.pending))
        reader = self.bind(f"S{len(self.env)}", struct.unpack_from)
        names = ",".join(name for _, name in self.pending)
        self.add(f"{names},={reader}(b,p)")
        self.add(advance.format(size=struct.size))
        self.pending = []

    def variable(self, size: int, name: str) -> str:
        """Read a value behind a length of `size` bytes; the result is the slice's source text."""
        if size == 3:
            self.fixed("H", "l")
            self.fixed("B", "h")
            self.unpack("q=p+{size}")
            self.add("p=q+(l|h<<16)")
        elif size in _LENGTHS:
            self.fixed(_LENGTHS[size], "l")
            self.unpack("q=p+{size}")
            self.add("p=q+l")
        else:
            raise ValueError(f"a length of {size} bytes")
        return "b[q:p]"


def _integer(code: RowCode, column: Column, name: str) -> str:
    size = INTEGER_SIZES[column.type]
    unsigned = column.unsigned
    if unsigned is None and code.flavour.unknown_sign != "refuse":
        unsigned = code.flavour.unknown_sign == "unsigned"
    if size == 3:
        code.fixed("H", f"{name}l")
        code.fixed("bB"[bool(unsigned)], f"{name}h")
        value = f"{name}l|{name}h<<16"
    else:
        value = code.fixed(_FORMATS[size][bool(unsigned)], name)
    if unsigned is not None:
        return value
    refuse = code.bind(f"refuse{column.index}", convert.refuse_sign)
    subject = code.bind(f"column{column.index}", column)
    code.unpack()
    code.add(f"{name}={value}")
    code.add(f"if {name}<0: {refuse}({subject})")
    return name


def _float(code: RowCode, column: Column, name: str) -> str:
    return code.fixed("f" if column.type is T.FLOAT else "d", name)


def _year(code: RowCode, column: Column, name: str) -> str:
    code.fixed("B", name)
    return f"{name}+1900 if {name} else 0"


def _null(code: RowCode, column: Column, name: str) -> str:
    return "None"


def _date(code: RowCode, column: Column, name: str) -> str:
    code.fixed("H", f"{name}l")
    code.fixed("B", f"{name}h")
    return f"{code.bind('DATES', temporal.DATES)}[{name}l|{name}h<<16]"


def _fraction(code: RowCode, digits: int, source: str) -> str:
    """Source text of the fraction `.fff`; the stored unit is 1/100, 1/10000 or 1/1000000 second."""
    if digits > 4:
        return f"{code.bind('micros', temporal.micros_text)}({source},{digits})"
    return f"{code.bind(f'fraction{digits}', temporal.FRACTIONS[digits])}[{source}]"


def _iso(code: RowCode, value: str, zone: str) -> str:
    if code.flavour.temporal == "text":
        return value
    return f"({value}).replace(' ','T')+'{zone}'" if zone else f"({value}).replace(' ','T')"


def _datetime2(code: RowCode, column: Column, name: str) -> str:
    code.fixed("3s", f"{name}h")
    code.fixed("2s", f"{name}l")
    heads = code.bind("HEADS", temporal.DATETIME_HEADS)
    fraction = ""
    if column.digits:
        code.fixed(f"{(column.digits + 1) // 2}s", f"{name}f")
        fraction = "+" + _fraction(code, column.digits, f"{name}f")
    code.unpack()
    code.add(f"d,t={heads}[{name}h]")
    if column.digits == 6:
        code.add(f"x=I({name}f,'big')")
        code.add(f"if x>999999: {code.bind('refuse_micros', temporal.refuse_micros)}(x)")
        separator = "" if code.flavour.temporal == "text" else ".replace(' ','T')"
        code.add(f"{name}=f'{{d}}{{t[{name}l]}}.{{x:06d}}'{separator}")
        return name
    code.add(f"{name}=" + _iso(code, f"d+t[{name}l]{fraction}", ""))
    return name


def _timestamp2(code: RowCode, column: Column, name: str) -> str:
    code.fixed("4s", f"{name}h")
    fraction = ""
    if column.digits:
        code.fixed(f"{(column.digits + 1) // 2}s", f"{name}f")
        fraction = "+" + _fraction(code, column.digits, f"{name}f")
    code.unpack()
    days, seconds = code.bind("DAYS", temporal.EPOCH_DAYS), code.bind("SECONDS", temporal.DAY_SECONDS)
    zero = code.bind("ZERO", temporal.ZERO_DATETIME)
    code.add(f"x=I({name}h,'big')")
    value = f"({days}[x//86400]+{seconds}[x%86400] if x else {zero}){fraction}"
    code.add(f"{name}={_iso(code, value, 'Z')}")
    return name


def _timestamp_old(code: RowCode, column: Column, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        size = temporal.MARIA_FRACTION_BYTES[column.digits]
        code.fixed("4s", f"{name}h")
        code.fixed(f"{size}s", f"{name}f")
        value = f"{code.bind('timestamp', convert.timestamp)}({name}h)"
        scale = 10 ** (6 - column.digits)
        text = code.bind("fraction_text", temporal.fraction_text)
        return _iso(code, f"{value}+{text}(I({name}f,'big')*{scale},{column.digits})", "Z")
    code.fixed("I", name)
    return _iso(code, f"{code.bind('timestamp_text', temporal.timestamp_text)}({name})", "Z")


def _datetime_old(code: RowCode, column: Column, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        code.fixed(f"{temporal.MARIA_DATETIME_BYTES[column.digits]}s", name)
        return _iso(code, f"{code.bind('maria_datetime', temporal.maria_datetime_text)}({name},{column.digits})", "")
    code.fixed("Q", name)
    return _iso(code, f"{code.bind('old_datetime', temporal.old_datetime_text)}({name})", "")


def _time2(code: RowCode, column: Column, name: str) -> str:
    code.fixed(f"{3 + (column.digits + 1) // 2}s", name)
    return f"{code.bind('time2', temporal.time2_text)}({name},{column.digits})"


def _time_old(code: RowCode, column: Column, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        code.fixed(f"{temporal.MARIA_TIME_BYTES[column.digits]}s", name)
        return f"{code.bind('maria_time', temporal.maria_time_text)}({name},{column.digits})"
    code.fixed("H", f"{name}l")
    code.fixed("b", f"{name}h")
    return f"{code.bind('old_time', temporal.old_time_text)}({name}l|{name}h<<16)"


def _newdecimal(code: RowCode, column: Column, name: str) -> str:
    plan = decimal_plan(column.precision, column.scale)
    code.fixed(f"{plan.size}s", name)
    code.unpack()
    number = code.bind("Decimal", Decimal) if code.flavour.decimal == "number" else ""
    if len(plan.whole) > 2 or len(plan.fraction) > 1:
        code.add(
            f"{name}={number}({code.bind('decimal', decimal_text)}({name},{code.bind(f'plan{column.index}', plan)}))"
        )
        return name
    fraction_bits = 8 * sum(width for width, _ in plan.fraction)
    whole = f"x>>{fraction_bits}" if fraction_bits else "x"
    if len(plan.whole) == 2:
        whole = f"(x>>{fraction_bits + 32})*1000000000+(x>>{fraction_bits}&0xffffffff)"
    elif not plan.whole:
        whole = "0"
    text = "{" + whole + "}"
    if plan.scale:
        text += "." + "{" + f"x&{(1 << fraction_bits) - 1}:0{plan.scale}d" + "}"
    top = 1 << (8 * plan.size - 1)
    code.add(f"x=I({name},'big')")
    code.add(f"if x&{top}:")
    code.add(f" x^={top};{name}={number}(f'{text}')")
    code.add("else:")
    code.add(f" x^={top - 1};{name}={number}(f'-{text}')")
    return name


def _old_decimal(code: RowCode, column: Column, name: str) -> str:
    if not column.precision:
        raise UndecodableValue(
            f"column {column.name} is a DECIMAL from before MySQL 5.0, whose size the binlog does not state",
            "give a schema, or rebuild the table with ALTER TABLE … FORCE",
        )
    size = column.precision + (column.scale > 0) + 1 - bool(column.unsigned)
    code.fixed(f"{size}s", name)
    value = f"{code.bind('old_decimal', convert.old_decimal)}({name})"
    return f"{code.bind('Decimal', Decimal)}({value})" if code.flavour.decimal == "number" else value


def _bit(code: RowCode, column: Column, name: str) -> str:
    code.fixed(f"{column.size}s", name)
    return f"I({name},'big')"


def _enum(code: RowCode, column: Column, name: str) -> str:
    code.fixed("H" if column.size == 2 else "B", name)
    if column.labels is None:
        return f"{code.bind('EnumIndex', EnumIndex)}({name})"
    return f"{code.bind(f'labels{column.index}', ('', *column.labels))}[{name}]"


def _set(code: RowCode, column: Column, name: str) -> str:
    code.fixed(f"{column.size}s", name)
    if column.labels is None:
        return f"{code.bind('SetMask', SetMask)}(I({name},'little'))"
    return f"{code.bind(f'sets{column.index}', convert.SetLabels(column.labels))}[I({name},'little')]"


def _bytes(code: RowCode, value: str) -> str:
    if code.flavour.binary == "base64":
        return f"{code.bind('base64_text', convert.base64_text)}({value})"
    return value


def _text(code: RowCode, column: Column, name: str) -> str:
    value = code.variable(column.size, name)
    if column.type in (T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED):
        value = f"{code.bind('inflate', convert.inflate)}({value})"
    special = convert.DECLARED_BYTES.get(column.declared)
    if special:
        value = f"{code.bind(column.declared, special)}({value})"
    elif column.charset is None:
        value = _bytes(code, value)
    elif column.charset == "binary":
        pad = f".ljust({column.width},b'\\0')" if column.type is T.STRING else ""
        value = _bytes(code, value + pad)
    elif column.charset in ("utf8mb4", "utf8mb3", "utf8"):
        value += ".decode()"
    else:
        value = f"{code.bind('text_' + column.charset, text_decoder(column.charset))}({value})"
    code.add(f"{name}={value}")
    return name


def _blob(code: RowCode, column: Column, name: str) -> str:
    code.add(f"{name}=" + _bytes(code, code.variable(column.size, name)))
    return name


def _json(code: RowCode, column: Column, name: str) -> str:
    read = code.readers.get(column.index)
    if read is None:
        read = convert.json_text_reader() if code.flavour.json == "text" else document_reader()
        code.readers[column.index] = read
    code.add(f"{name}={code.bind(f'json{column.index}', read)}({code.variable(column.size, name)})")
    return name


_EMIT: Final[dict[ColumnType, Callable[[RowCode, Column, str], str]]] = {
    **dict.fromkeys(INTEGER_SIZES, _integer),
    **dict.fromkeys((T.FLOAT, T.DOUBLE), _float),
    **dict.fromkeys((T.DATE, T.NEWDATE), _date),
    **dict.fromkeys((T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.VARCHAR, T.VAR_STRING, T.STRING), _text),
    **dict.fromkeys((T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED), _text),
    **dict.fromkeys((T.GEOMETRY, T.VECTOR), _blob),
    T.YEAR: _year,
    T.NULL: _null,
    T.DATETIME2: _datetime2,
    T.DATETIME: _datetime_old,
    T.TIMESTAMP2: _timestamp2,
    T.TIMESTAMP: _timestamp_old,
    T.TIME2: _time2,
    T.TIME: _time_old,
    T.NEWDECIMAL: _newdecimal,
    T.DECIMAL: _old_decimal,
    T.BIT: _bit,
    T.ENUM: _enum,
    T.SET: _set,
    T.JSON: _json,
}


def _partial_json(code: RowCode, column: Column, name: str) -> str:
    code.add(f"{name}={code.bind('diffs', read_diffs)}({code.variable(4, name)})")
    return name


def _row(code: RowCode, columns: Sequence[Column], values: dict[int, str]) -> str:
    if code.flavour.rows == "tuple":
        absent = code.bind("ABSENT", ABSENT)
        return "(" + "".join(f"{values.get(column.index, absent)}," for column in columns) + ")"
    pairs = []
    for column in columns:
        if column.index in values:
            pairs.append(f"{column.name!r}:{values[column.index]}")
    return "{" + ",".join(pairs) + "}"


def compile_row(
    columns: Sequence[Column],
    present: Sequence[Column],
    nulls: frozenset[int],
    partial: frozenset[int],
    flavour: Flavour,
    readers: Readers,
) -> RowFunction:
    """The decoder for rows whose `present` columns (by index) are NULL in `nulls` and JSON diffs in `partial`."""
    code = RowCode(flavour, readers)
    values: dict[int, str] = {}
    for column in present:
        if column.index in nulls:
            values[column.index] = "None"
            continue
        emit = _partial_json if column.index in partial else _EMIT[column.type]
        values[column.index] = emit(code, column, f"c{column.index}")
    code.unpack()
    function: RowFunction = _build(code, f"def row(b,p):\n{{body}} return {_row(code, columns, values)},p")
    return function


def compile_general(
    columns: Sequence[Column], present: Sequence[Column], flavour: Flavour, readers: Readers
) -> Callable[..., Any]:
    """A slower decoder `row(b, p, bitmap)` for any pattern of NULLs: for tables that show too many of them."""
    code = RowCode(flavour, readers)
    values: dict[int, str] = {}
    for place, column in enumerate(present):
        name = f"c{column.index}"
        code.add(f"if n[{place >> 3}]&{1 << (place & 7)}: v{column.index}=None")
        code.add("else:")
        code.indent = "  "
        value = _EMIT[column.type](code, column, name)
        code.unpack()
        code.add(f"v{column.index}={value}")
        code.indent = " "
        values[column.index] = f"v{column.index}"
    function: Callable[..., Any] = _build(code, f"def row(b,p,n):\n{{body}} return {_row(code, columns, values)},p")
    return function


def _build(code: RowCode, source: str) -> Any:
    # Column names enter the source only through repr(), every other part is made of numbers and fixed words.
    exec(source.replace("{body}", "".join(line + "\n" for line in code.lines), 1), code.env)
    return code.env["row"]
