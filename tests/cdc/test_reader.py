"""The strict reader: good files are read completely, and missing keys have the documented defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.model.errors import TopologyError
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yml")), ids=lambda path: path.name)
def test_published_topologies_are_read(path: Path) -> None:
    """Every example in topologies/ is accepted unchanged."""
    topology = read_topology(path.read_text(), file=str(path), environ={})
    assert topology.name == path.stem.replace("-", "_")


def test_values_of_shop_are_read() -> None:
    """Values are read as written, and missing ones are defaults."""
    topology = read_topology(
        (TOPOLOGIES / "shop.yml").read_text(), file="shop.yml", environ={"TAILORBIRD_PORT_MYSQL_CRM": "9"}
    )
    assert [str(table) for source in topology.sources.values() for table in source.tables] == [
        "shop.shop.orders",
        "shop.shop.products",
        "crm.crm.customers",
    ]
    assert topology.sources["crm"].port == 9
    assert topology.sources["shop"].snapshot_mode == "initial"
    assert topology.log.min_compaction_lag == 7 * 86400
    assert topology.indexes["orders"].collection == "shop_orders"
    assert topology.indexes["orders"].commit_within == pytest.approx(0.2)
    assert topology.table_id(("crm", "customers")) == TableId(source="crm", database="crm", table="customers")
    assert topology.table_id(("crm", "crm", "customers")) == TableId(source="crm", database="crm", table="customers")
    assert topology.table_id(("crm", "orders")) is None


def test_password_is_not_in_repr() -> None:
    """Secrets never appear in logs: a topology may be printed."""
    text = (TOPOLOGIES / "smallest.yml").read_text()
    topology = read_topology(text, file="x", environ={"TAILORBIRD_CDC_PASSWORD": "sesame"})
    assert topology.sources["crm"].password == "sesame"
    assert "sesame" not in repr(topology)


def test_error_inside_a_query_names_the_line_in_the_file() -> None:
    """A query's second line is counted from the start of the file, so that an editor can jump there."""
    text = (TOPOLOGIES / "shop.yml").read_text()
    topology = read_topology(text, file="shop.yml", environ={})
    error = topology.error("tables.orders_wide.query", "what", "that", line_offset=3)
    assert text.splitlines()[error.line - 1].strip() == "FROM shop.orders o"


def with_engine(engine: str) -> str:
    """Return a topology with a table that names its engine, in line 9."""
    return f"""name: t
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, tables: [e]}}
tables:
  wide:
    query: >
      SELECT id FROM s.e
    row_key: [id]
    engine: {engine}
"""


def test_python_engine_is_refused_with_its_remedy() -> None:
    """The error names file and line, the key to remove, and the command that builds the table's state again."""
    with pytest.raises(TopologyError) as refused:
        read_topology(with_engine("python"), file="t.yml", environ={})
    assert str(refused.value).startswith("t.yml:9: tables.wide.engine: `engine: python` was removed, expected no")
    assert "`tailorbird run t.yml --rebuild wide`" in refused.value.expected


def test_jvm_is_still_a_known_engine() -> None:
    """Files that name the only engine are read; another name is a mistake."""
    assert read_topology(with_engine("jvm"), file="t.yml", environ={}).tables["wide"].row_key == ("id",)
    with pytest.raises(TopologyError, match="'flink', expected one of jvm"):
        read_topology(with_engine("flink"), file="t.yml", environ={})


def test_yaml_traps_stay_text() -> None:
    """`no` stays `no`: YAML 1.1 would turn the country into false."""
    text = (TOPOLOGIES / "smallest.yml").read_text().replace("database: crm", "database: no")
    assert read_topology(text, file="x", environ={}).sources["crm"].database == "no"


@pytest.mark.parametrize("text", ["", "- a\n", "x: [1, 2", "name: null\nsources: {}\n", "name: a\nsources: {}\n"])
def test_broken_text_is_a_topology_error(text: str) -> None:
    """For any content of the file, the answer is a TopologyError with a line, never a stack trace."""
    with pytest.raises(TopologyError) as caught:
        read_topology(text, file="x.yml", environ={})
    assert re.match(r"x\.yml:[12]: ", str(caught.value))


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ("shop.*", ["shop_orders", "shop_order_lines"]),
        ("[shop.orders]", ["shop_orders"]),
        ("{shop.old.Order-Lines: {salt_buckets: 4}}", ["shop_order_lines"]),
    ],
)
def test_tables_of_a_source_are_copied(tables: str, names: list[str]) -> None:
    """`tables: shop.*` copies each source table unchanged; a pattern may have options."""
    text = "name: lake\nsources:\n  shop: {type: mysql, hostname: h, username: u, password: p, database: shop,"
    text += f" tables: [orders, old.Order-Lines], server_id: 1}}\ntables: {tables}\n"
    topology = read_topology(text, file="lake.yml", environ={})
    assert list(topology.tables) == names
    assert topology.tables[names[0]].query.startswith("SELECT t.* FROM `shop`.")
    with pytest.raises(TopologyError, match=r"'shop\.nothing' is not a captured table, expected source"):
        read_topology(text.replace(tables, "[shop.nothing]"), file="lake.yml", environ={})


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("s.t", ("d.b", "t")),
        ("s.d.b.t", ("d.b", "t")),
        ("s.a.b.c", ("a", "b.c")),
        ("s.b.c", None),
        ("s.t.", None),
        ("x.t", None),
        ("s", None),
    ],
)
def test_a_table_is_named_on_the_command_line_with_its_dots(text: str, table: tuple[str, str] | None) -> None:
    """Names in MySQL may contain dots: the meaning is the table that is captured."""
    source = "type: mysql, hostname: h, username: u, password: p, database: d.b, tables: [t, a.b.c], server_id: 1"
    made = f"name: t\nsources: {{s: {{{source}}}}}\ntables: s.*\n"
    found = read_topology(made, file="t.yml", environ={}).table_named(text)
    assert found == (TableId(source="s", database=table[0], table=table[1]) if table else None)


def test_a_foreign_field_is_no_list() -> None:
    """HBase's `Bytes` have no lists; the error explains how a field gets many values."""
    table = 'foreign_tables:\n  people:\n    table: p\n    fields:\n      tags: {source: "f:t", type: "list<string>"}\n'
    with pytest.raises(TopologyError, match=r"x\.yml:6: .*'list<string>'.*many values"):
        read_topology(f"name: x\n{table}", file="x.yml", environ={})
