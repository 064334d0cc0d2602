"""Generate row decoders as Python source, each for one table, one set of present columns and one pattern of NULLs.

Neighbouring columns of fixed size are read by one `struct.Struct`, together with the length of the next variable
column. So a row takes a few C calls and no branch. The source contains only type codes and numbers; names and labels
are passed as objects. The generated function takes (event body, offset) and returns (row, offset after the row). It
raises struct.error, IndexError, KeyError or ValueError for invalid bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from ingest.binlog.format import canonical
from ingest.binlog.format.charsets import text_decoder
from ingest.binlog.format.codes import INTEGER_SIZES, ColumnType
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.decimals import decimal_fractions, decimal_plan, decimal_text
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.format.flavour import ABSENT, EnumIndex, Flavour, SetMask
from ingest.binlog.json.diff import read_diffs
from ingest.binlog.json.document import layout_reader
from ingest.binlog.json.layout import MISS
from ingest.binlog.rows import convert, rowtemporal
from ingest.binlog.rows.rowsource import Readers, RowCode, RowFunction

T = ColumnType
_FORMATS: Final = {1: "bB", 2: "hH", 4: "iI", 8: "qQ"}


def _integer(code: RowCode, column: LoggedColumn, name: str) -> str:
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
    code.later(f"{name}={value}")
    code.later(f"if {name}<0: {refuse}({subject})")
    return name


def _float(code: RowCode, column: LoggedColumn, name: str) -> str:
    return code.fixed("f" if column.type is T.FLOAT else "d", name)


def _year(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed("B", name)
    return f"{name}+1900 if {name} else 0"


def _null(code: RowCode, column: LoggedColumn, name: str) -> str:
    return "None"


def _newdecimal(code: RowCode, column: LoggedColumn, name: str) -> str:
    plan = decimal_plan(column.precision, column.scale)
    code.fixed(f"{plan.size}s", name)
    number = code.bind("Decimal", Decimal) if code.flavour.decimal == "number" else ""
    if len(plan.whole) > 2 or len(plan.fraction) > 1:
        code.later(
            f"{name}={number}({code.bind('decimal', decimal_text)}({name},{code.bind(f'plan{column.index}', plan)}))"
        )
        return name
    fraction_bits = 8 * sum(width for width, _ in plan.fraction)
    text = f"{{x>>{fraction_bits}}}" if plan.whole else "0"
    if len(plan.whole) == 2:
        text = "{w if w<4294967296 else (w>>32)*1000000000+(w&4294967295)}"
    if plan.scale:
        part = f"x&{(1 << fraction_bits) - 1}"
        digits = plan.fraction[0][1]
        if digits > 4:
            text += "." + "{" + f"{part}:0{digits}d" + "}"
        else:
            text += "{" + f"{code.bind(f'places{digits}', decimal_fractions(digits))}[{part}]" + "}"
    # Negative numbers are complemented in all bits: the remainder below the sign is their ones' complement.
    code.later(f"x=I({name},'big')-{1 << (8 * plan.size - 1)}")
    code.later("s=''")
    code.later("if x<0: x=~x;s='-'")
    if len(plan.whole) == 2:
        code.later(f"w=x>>{fraction_bits}")
    code.later(f"{name}={number}(f'{{s}}{text}')")
    return name


def _old_decimal(code: RowCode, column: LoggedColumn, name: str) -> str:
    if not column.precision:
        raise UndecodableValue(
            f"column {column.name} is a DECIMAL from before MySQL 5.0, whose size the binlog does not state",
            "give a schema, or rebuild the table with ALTER TABLE … FORCE",
        )
    if column.scale:
        code.unpack()
        code.add(
            f"{name},p={code.bind(f'old{column.index}', convert.old_decimal(column.precision, column.scale))}(b,p)"
        )
        value = name
    else:
        code.fixed(f"{column.precision + 1 - bool(column.unsigned)}s", name)
        value = f"{code.bind('old_whole', convert.old_whole)}({name})"
    return f"{code.bind('Decimal', Decimal)}({value})" if code.flavour.decimal == "number" else value


def _bit(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed(f"{column.size}s", name)
    if code.flavour.bit == "canonical":
        return f"{code.bind('bit', canonical.bit)}(I({name},'big'),{column.width})"
    return f"I({name},'big')"


def _enum(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed("H" if column.size == 2 else "B", name)
    if column.labels is None:
        return f"{code.bind('EnumIndex', EnumIndex)}({name})"
    return f"{code.bind(f'labels{column.index}', ('', *column.labels))}[{name}]"


def _set(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed(f"{column.size}s", name)
    if column.labels is None:
        return f"{code.bind('SetMask', SetMask)}(I({name},'little'))"
    return f"{code.bind(f'sets{column.index}', convert.SetLabels(column.labels))}[I({name},'little')]"


def _bytes(code: RowCode, value: str) -> str:
    if code.flavour.binary == "base64":
        return f"{code.bind('base64_text', convert.base64_text)}({value})"
    return value


def _text(code: RowCode, column: LoggedColumn, name: str) -> str:
    value = code.variable(column.size, name)
    if column.type in (T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED):
        value = f"{code.bind('inflate', convert.inflate)}({value})"
    special = convert.DECLARED_BYTES.get(column.declared)
    if column.declared == "vector" and code.flavour.packed == "canonical":
        value = f"{code.bind('vector', canonical.vector)}({value})"
    elif special:
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


def _blob(code: RowCode, column: LoggedColumn, name: str) -> str:
    value = code.variable(column.size, name)
    if code.flavour.packed == "canonical":
        function = "vector" if column.type is T.VECTOR else "point" if column.is_point else "geometry"
        code.add(f"{name}={code.bind(function, canonical.PACKED[function])}({value})")
    else:
        code.add(f"{name}=" + _bytes(code, value))
    return name


_JSON_TEXTS: Final = {"text": convert.json_dumps, "canonical": convert.canonical_json}


def _json(code: RowCode, column: LoggedColumn, name: str) -> str:
    if column.index not in code.readers:
        code.readers[column.index] = layout_reader()
    layouts, read = code.readers[column.index]
    document, reader = code.variable(column.size, name), code.bind(f"json{column.index}", read)
    if column.size != 4:
        code.add(f"{name}={reader}({document})")
    else:
        miss = code.bind("MISS", MISS)
        code.add(f"f={code.bind(f'layouts{column.index}', layouts)}.get(l)")
        code.add(f"{name}=f(b,q) if f else {miss}")
        code.add(f"if {name} is {miss}: {name}={reader}({document})")
    if code.flavour.json != "value":
        code.add(f"{name}={code.bind('json_text', _JSON_TEXTS[code.flavour.json])}({name})")
    return name


_EMIT: Final[dict[ColumnType, Callable[[RowCode, LoggedColumn, str], str]]] = {
    **dict.fromkeys(INTEGER_SIZES, _integer),
    **dict.fromkeys((T.FLOAT, T.DOUBLE), _float),
    **dict.fromkeys((T.DATE, T.NEWDATE), rowtemporal.date),
    **dict.fromkeys((T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.VARCHAR, T.VAR_STRING, T.STRING), _text),
    **dict.fromkeys((T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED), _text),
    **dict.fromkeys((T.GEOMETRY, T.VECTOR), _blob),
    T.YEAR: _year,
    T.NULL: _null,
    T.DATETIME2: rowtemporal.datetime2,
    T.DATETIME: rowtemporal.datetime_old,
    T.TIMESTAMP2: rowtemporal.timestamp2,
    T.TIMESTAMP: rowtemporal.timestamp_old,
    T.TIME2: rowtemporal.time2,
    T.TIME: rowtemporal.time_old,
    T.NEWDECIMAL: _newdecimal,
    T.DECIMAL: _old_decimal,
    T.BIT: _bit,
    T.ENUM: _enum,
    T.SET: _set,
    T.JSON: _json,
}


def _partial_json(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.add(f"{name}={code.bind('diffs', read_diffs)}({code.variable(4, name)})")
    return name


def _row(code: RowCode, columns: Sequence[LoggedColumn], values: dict[int, str]) -> str:
    if code.flavour.rows == "tuple":
        absent = code.bind("ABSENT", ABSENT)
        return "(" + "".join(f"{values.get(column.index, absent)}," for column in columns) + ")"
    pairs = []
    for column in columns:
        if column.index in values:
            pairs.append(f"{column.name!r}:{values[column.index]}")
    return "{" + ",".join(pairs) + "}"


def compile_row(
    columns: Sequence[LoggedColumn],
    present: Sequence[LoggedColumn],
    nulls: frozenset[int],
    partial: frozenset[int],
    flavour: Flavour,
    readers: Readers,
) -> RowFunction:
    """Compile the decoder of rows in which the `present` columns are NULL if in `nulls`, and JSON diffs if in
    `partial`."""
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
    columns: Sequence[LoggedColumn], present: Sequence[LoggedColumn], flavour: Flavour, readers: Readers
) -> Callable[..., Any]:
    """Compile a slower decoder `row(b, p, bitmap)` for any pattern of NULLs, for tables with too many patterns."""
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
    # Column names enter the source only through repr(); every other part consists of numbers and fixed words.
    exec(source.replace("{body}", "".join(line + "\n" for line in code.lines), 1), code.env)
    return code.env["row"]
