"""Every type through every export format: it is read back unchanged, or docs/formats.md documents the loss."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from cdc.formats.avro_rows import AvroRows
from cdc.formats.debezium import from_envelope, to_envelope
from cdc.formats.debezium_avro import TYPES as AVRO_TYPES
from cdc.formats.debezium_avro import AvroEnvelopes
from cdc.formats.maxscale import (
    RowWriter,
    TransactionNumber,
    columns_reported,
    number_of,
    parse_number,
    schema_line,
    value_reader,
)
from cdc.formats.maxwell import MaxwellWriter, maxwell_reader
from cdc.formats.parquet import TYPES, ParquetRows, parquet_reader
from cdc.model.event import ChangeEvent, Op, Row, SourceInfo, TransactionInfo
from cdc.model.geometry import point_of, struct_of
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Kind, LogicalType, float_of, from_mysql
from ingest.mirror.formats import debezium, maxwell

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
TABLE = TableId(source="s", database="d", table="t")
# a column type of each kind, and its canonical values at the limits
SRIDS = ("00000000", "E6100000")
VALUES: dict[Kind, tuple[str, list[Any]]] = {
    "bool": ("bit(1)", [True, False]),
    "int8": ("tinyint", [-128, 127]),
    "int16": ("smallint", [-32768, 32767]),
    "int32": ("int", [-(2**31), 2**31 - 1]),
    "int64": ("bigint", [-(2**63), 2**63 - 1]),
    "uint64": ("bigint unsigned", [0, 2**63, 2**64 - 1]),
    "decimal": ("decimal(65,30)", ["-12.300000000000000000000000000000", "9" * 35 + "." + "9" * 30]),
    "float32": ("float", [1.5, -0.0, 0.10000000149011612, 3.4028234663852886e38, "NaN", "-Infinity"]),
    "float64": ("double", [0.1, 1.7976931348623157e308, 5e-324, "NaN", "Infinity", "-Infinity"]),
    "date": ("date", ["1000-01-01Z", "9999-12-31Z"]),
    "datetime": ("datetime(6)", ["1000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2017-09-15T10:12:00.5Z"]),
    "timestamp": ("timestamp(6)", ["1970-01-01T00:00:01Z", "2038-01-19T03:14:07.999999Z"]),
    "time": ("time(6)", ["-838:59:59", "838:59:58.000001", "-00:00:00.25"]),
    "string": ("varchar(20)", ["", 'é\U0001f600\u0000\n"', "NULL"]),
    "json": ("json", ['{"a": [1, null, "é"]}', "null"]),
    "bytes": ("blob", ["", "AP+A/g==", "aGVsbG8="]),
    "list": ("vector(3)", [[1.5, -0.0, 0.10000000149011612], [3.4028234663852886e38]]),
    "point": ("point", [point_of(2.35, -0.0, 4326), point_of(1.7976931348623157e308, 0.1)]),
    "geometry": ("geometry", [struct_of(bytes.fromhex(f"{srid}010700000000000000"), point=False) for srid in SRIDS]),
}


def schema_of(kind: Kind) -> TableSchema:
    columns = (Column(name="id", column_type="int", nullable=False), Column(name="v", column_type=VALUES[kind][0]))
    return TableSchema(table_id=TABLE, version=3, columns=columns, primary_key=("id",))


def event(op: Op, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> ChangeEvent:
    source = SourceInfo(
        table_id=TABLE, ts_ms=1_500_000_000_000, server_id=7, gtid="u:5", file="b.000003", pos=44, row=2, sequence=12
    )
    place = TransactionInfo(id="u:5", total_order=3, data_collection_order=1)
    return ChangeEvent(op=op, before=before, after=after, source=source, ts_ms=1, transaction=place)


def rows(kind: Kind) -> list[Row]:
    return [{"id": at, "v": value} for at, value in enumerate([*VALUES[kind][1], None])]


def through_debezium(kind: Kind) -> list[Row]:
    """Tailorbird's own envelope."""
    reported = [json.loads(json.dumps(to_envelope(event("c", None, row), "x"))) for row in rows(kind)]
    return [found for one in reported if (found := from_envelope(one).after) is not None]


def through_maxwell(kind: Kind) -> list[Row]:
    """Read by the reader of Maxwell's topics for mirrors."""
    writer, hear, found = MaxwellWriter(schema_of(kind)), maxwell_reader(from_mysql(VALUES[kind][0])), list[Row]()
    for row in rows(kind):
        reported = maxwell(None, json.dumps(writer.value(event("c", None, row))).encode())
        assert reported is not None
        assert reported.after is not None
        value = reported.after["v"]
        found.append({"id": reported.after["id"], "v": None if value is None else hear(value)})
    return found


def through_maxscale(kind: Kind) -> list[Row]:
    """One line per row."""
    writer, hear = RowWriter(schema_of(kind)), value_reader(from_mysql(VALUES[kind][0]), binary=False)
    reported = [json.loads(json.dumps(one)) for row in rows(kind) for one in writer.rows_of(event("c", None, row))]
    return [{"id": one["id"], "v": hear(one["v"])} for one in reported]


def through_avro(kind: Kind) -> list[Row]:
    """A container of two blocks, read by fastavro."""
    writer, hear = AvroRows(schema_of(kind)), value_reader(from_mysql(VALUES[kind][0]), binary=True)
    first, *rest = [writer.row(event("c", None, row)) for row in rows(kind)]
    data = writer.header(TransactionNumber(0, 7, 10)) + writer.block([first]) + writer.block(rest)
    reader = fastavro.reader(io.BytesIO(data))
    return [{"id": one["id"], "v": hear(one["v"])} for one in reader if isinstance(one, dict)]


def through_parquet(kind: Kind) -> list[Row]:
    """A file, read by pyarrow."""
    schema = schema_of(kind)
    column = schema.column("v")
    assert column is not None
    hear = parquet_reader(column.type)
    data = ParquetRows(schema).file([event("c", None, row) for row in rows(kind)])
    table = pq.read_table(io.BytesIO(data)).to_pylist()
    return [{"id": one["id"], "v": None if one["v"] is None else hear(one["v"])} for one in table]


def avro_read(kind: LogicalType, value: Any) -> Any:
    """Return the canonical value of what fastavro reads."""
    if kind.element is not None:
        return [avro_read(kind.element, one) for one in value]
    match kind.kind:
        case "uint64":
            return int(value)
        case "decimal":
            return f"{value:f}"
        case "float32" | "float64":
            return float_of(value)
        case "date":
            return f"{value.isoformat()}Z"
        case "datetime" | "timestamp":
            text = value.replace(tzinfo=None).isoformat()
            return (text.rstrip("0") if "." in text else text) + "Z"
        case "bytes":
            return base64.b64encode(value).decode()
        case "point" | "geometry":
            return {**value, "wkb": base64.b64encode(value["wkb"]).decode()}
        case _:
            return value


def through_debezium_avro(kind: Kind) -> list[Row]:
    """Envelopes in Avro, read by fastavro; an update has both images."""
    envelopes, type_ = AvroEnvelopes(schema_of(kind), "shop.d.t"), from_mysql(VALUES[kind][0])
    parsed, found = fastavro.parse_schema(envelopes.value), list[Row]()
    for row in rows(kind):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, envelopes.value_of(event("u", row, row), "shop"))
        read: Any = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None)
        assert repr(read["before"]) == repr(read["after"])
        value = read["after"]["v"]
        found.append({"id": read["after"]["id"], "v": None if value is None else avro_read(type_, value)})
    return found


FORMATS: dict[str, Callable[[Kind], list[Row]]] = {
    "Debezium": through_debezium,
    "Debezium Avro": through_debezium_avro,
    "Maxwell": through_maxwell,
    "MaxScale JSON": through_maxscale,
    "MaxScale Avro": through_avro,
    "Parquet": through_parquet,
}
# the documented differences between written and read values
LOSSY: dict[tuple[str, Kind], str] = {}
SHOWN: dict[tuple[str, Kind], str] = {
    ("MaxScale JSON", "bool"): "0, 1",
    ("Maxwell", "bool"): "0, 1",
    ("MaxScale Avro", "bool"): "int",
    ("MaxScale Avro", "uint64"): "long, the same 64 bits",
    ("MaxScale JSON", "bytes"): "text of code points 0 to 255",
    ("Maxwell", "bytes"): "base64",
    ("Debezium", "bytes"): "base64",
    ("MaxScale JSON", "point"): "MySQL's bytes, as text of code points 0 to 255",
    ("MaxScale JSON", "geometry"): "MySQL's bytes, as text of code points 0 to 255",
    ("MaxScale Avro", "point"): "bytes: MySQL's",
    ("MaxScale Avro", "geometry"): "bytes: MySQL's",
    ("MaxScale Avro", "list"): "array of float",
    **{(form, "date"): "`2017-09-15`" for form in ("Maxwell", "MaxScale JSON")},
    **{
        (form, kind): "`2017-09-15 10:12:00.5`"
        for form in ("Maxwell", "MaxScale JSON")
        for kind in ("datetime", "timestamp")
    },
    **{(form, "point"): "x, y, wkb, srid" for form in ("Debezium", "Maxwell")},
    **{(form, "geometry"): "wkb, srid" for form in ("Debezium", "Maxwell")},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", VALUES)
def test_a_type_survives_a_format(form: str, kind: Kind) -> None:
    """Extreme values and NULL survive a round trip. A documented loss must occur, or the table would be wrong."""
    same = [repr(row) for row in FORMATS[form](kind)] == [repr(row) for row in rows(kind)]
    assert same == ((form, kind) not in LOSSY)


def document() -> str:
    """Return the table for docs/formats.md."""
    lines = [f"| type | {' | '.join(FORMATS)} |", f"|---{'|---' * len(FORMATS)}|"]
    avro = {kind: schema_line(schema_of(kind), TransactionNumber(0, 0, 0))["fields"][-1]["type"][1] for kind in VALUES}
    for kind, (example, _) in VALUES.items():
        cells = []
        for form in FORMATS:
            how = {"Parquet": TYPES[kind], "MaxScale Avro": avro[kind], "Debezium Avro": AVRO_TYPES[kind]}.get(form, "")
            cells.append(LOSSY.get((form, kind)) or SHOWN.get((form, kind), how) or "as it is")
        lines.append(f"| {kind} (`{example}`) | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def test_the_table_in_the_documentation_is_what_was_tested() -> None:
    """The table is written with TAILORBIRD_WRITE_DOCS=1, and compared otherwise."""
    begins = "| type | Debezium"
    text = DOCUMENT.read_text()
    head, found = text[: text.index(begins)], text[text.index(begins) :]
    table, _, rest = found.partition("\n\n")
    if os.environ.get("TAILORBIRD_WRITE_DOCS") == "1":
        DOCUMENT.write_text(head + document() + ("\n" + rest if rest else ""))
    else:
        assert table.strip() == document().strip()


def test_every_type_is_there() -> None:
    """Every kind of type is covered, so that a new one needs a decision."""
    assert set(VALUES) == set(Kind.__args__) == set(TYPES) == set(AVRO_TYPES)  # type: ignore[attr-defined]  # Literal's members


def test_changes_of_every_kind_are_reported() -> None:
    """Each format represents updates, deletes and truncations if it can."""
    schema = schema_of("string")
    old, new = {"id": 1, "v": "a"}, {"id": 1, "v": "b"}
    scale = RowWriter(schema)
    assert [one["event_type"] for one in scale.rows_of(event("u", old, new))] == ["update_before", "update_after"]
    assert [one["event_type"] for one in scale.rows_of(event("u", None, new))] == ["update_after"]
    assert [(one["event_type"], one["v"]) for one in scale.rows_of(event("d", old, None))] == [("delete", "a")]
    assert scale.rows_of(event("t", None, None)) == []
    well = MaxwellWriter(schema)
    reported = maxwell(None, json.dumps(well.value(event("u", old, new))).encode())
    assert reported is not None
    assert (reported.op, reported.before, reported.after) == ("u", old, new)
    assert well.value(event("t", None, None)) is None
    assert well.key(event("d", old, None)) == {"database": "d", "table": "t", "pk.id": 1}
    own = debezium(None, json.dumps(to_envelope(event("d", old, None), "x")).encode())
    assert own is not None
    assert (own.op, own.before) == ("d", old)
    data = ParquetRows(schema).file([event("u", old, new), event("d", old, None), event("t", None, None)])
    found = pq.read_table(io.BytesIO(data)).to_pylist()
    assert [(one["_op"], one["id"], one["v"]) for one in found] == [
        ("update", 1, "b"), ("delete", 1, "a"), ("truncate", None, None),
    ]  # fmt: skip


def test_keys_and_absent_columns_in_avro() -> None:
    """A key has its columns alone, under names that Avro allows; what an event lacks is NULL; TRUNCATE has no row."""
    columns = (Column(name="größe", column_type="int"), Column(name="v-1", column_type="int"))
    schema = TableSchema(table_id=TABLE, version=1, columns=columns, primary_key=("größe",))
    envelopes = AvroEnvelopes(schema, "1st-shop.d.t")
    assert envelopes.key["name"] == "_1st_shop.d.t.Key"
    assert envelopes.key_of({"größe": 7, "v-1": 1}) == {"gr__e": 7}
    assert fastavro.validate({"gr__e": 7}, fastavro.parse_schema(envelopes.key))
    partial = envelopes.value_of(event("d", {"größe": 7}, None), "shop")
    assert (partial["before"], partial["after"]) == ({"gr__e": 7, "v_1": None}, None)
    assert fastavro.validate(partial, fastavro.parse_schema(envelopes.value))
    assert fastavro.validate(envelopes.value_of(event("t", None, None), "shop"), fastavro.parse_schema(envelopes.value))


def test_names_numbers_and_columns() -> None:
    """Columns whose names are invalid in Avro, or reserved, are renamed; numbers are read as they were written."""
    columns = tuple(Column(name=name, column_type="int") for name in ("sequence", "größe", "1st", "sequence_"))
    schema = TableSchema(table_id=TABLE, version=1, columns=columns, primary_key=("1st",))
    line = schema_line(schema, TransactionNumber(0, 1, 2))
    assert [field["name"] for field in line["fields"][6:]] == ["sequence_", "gr__e", "_1st", "sequence__"]
    assert columns_reported(line["fields"])[1] == ("gr__e", "int")
    fastavro.parse_schema(line)
    assert parse_number("0-1-2") == TransactionNumber(0, 1, 2)
    with pytest.raises(ValueError, match="not a GTID"):
        parse_number("u:5")
    assert number_of(event("c", None, {"id": 1})) == TransactionNumber(0, 7, 10)
