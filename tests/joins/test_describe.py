"""`explain-plan`: the same plan as text, as JSON and as a drawing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from cdc.model.schema import Column, TableId, TableSchema
from joins.query.describe import json_of_plan, text_of_plan
from joins.query.drawing import svg_of_plan
from tailorbird.cli.app import app
from tests.joins.joincase import Case

CASE = Case(
    tables={
        "shop.lines": {"key": ["id", "nr"], "id": "int", "nr": "int", "order_id": "int", "part_id": "int?"},
        "shop.orders": {"key": ["id"], "id": "int", "customer_id": "int?", "state": "varchar(9)?"},
        "shop.parts": {"key": ["id"], "id": "int", "price": "decimal(9,2)?"},
        "crm.customers": {"key": ["id"], "id": "int", "name": "varchar(9)?"},
    },
    query="SELECT l.id, l.nr, p.price * 2 AS twice, c.name FROM shop.lines l"
    " JOIN shop.orders o ON o.id = l.order_id LEFT JOIN crm.customers c ON c.id = o.customer_id"
    " LEFT JOIN shop.parts p ON p.id = l.part_id WHERE o.state = 'open' AND (c.name <> '<b>' OR c.id IS NULL)",
    row_key=["id", "nr"],
    history=[],
)
TEXT = """\
wide: one row per row of l (shop.shop.lines), row key id, nr

l  shop.shop.lines (id, nr, order_id, part_id)
├─ JOIN ON o.id = l.order_id
│    o  shop.shop.orders (id, customer_id, state)
│    │  only rows with o.state = 'open'
│    └─ LEFT JOIN ON c.id = o.customer_id
│         c  crm.crm.customers (id, name)
└─ LEFT JOIN ON p.id = l.part_id
     p  shop.shop.parts (id, price)

steps
  stage 1  lookup join 1: o LEFT JOIN c; keeps c and the rows of o, by key
  stage 1  lookup join 2: l LEFT JOIN p; keeps p and which rows of l point where, by key
  stage 2  lookup join 0: l JOIN o; keeps o and which rows of l point where, by key
  stage 3  assemble: whole rows of l from 2 parts; keeps them, by row

where o.state = 'open' AND (c.name <> '<b>' OR c.id IS NULL)

columns
  id     int32           shop.shop.lines.id
  nr     int32           shop.shop.lines.nr
  twice  decimal(11,2)   p.price * 2
  name   string          crm.crm.customers.name

fingerprint """


def test_text_shows_tree_steps_and_columns() -> None:
    """The text describes the plan in the query's terms."""
    assert text_of_plan(CASE.plan()).startswith(TEXT)


def test_drawing_is_svg_with_every_table() -> None:
    """There is one box per table and one for the result; texts of the query are escaped."""
    root = ElementTree.fromstring(svg_of_plan(CASE.plan()))
    boxes = [g for g in root if g.tag.endswith("}g")]
    assert len(boxes) == 5
    assert "c.name <> '<b>'" in "".join(root.itertext())


def test_command_reads_schemas_from_a_file(tmp_path: Path) -> None:
    """Without any server: text, JSON and SVG; a missing schema is named."""
    topology, schemas, drawing = tmp_path / "t.yml", tmp_path / "schemas.jsonl", tmp_path / "plan.svg"
    source = {"type": "mysql", "hostname": "h", "username": "u", "password": "p"}
    shop = {**source, "database": "shop", "tables": ["lines", "orders", "parts"], "server_id": 1}
    crm = {**source, "database": "crm", "tables": ["customers"], "server_id": 2}
    table = {"query": CASE.query, "row_key": CASE.row_key}
    topology.write_text(
        yaml.safe_dump({"name": "law", "sources": {"shop": shop, "crm": crm}, "tables": {"wide": table}})
    )
    records = [json.dumps(schema.to_json()) for schema in CASE.schemas().values()]
    schemas.write_text("\n".join(records))
    run = CliRunner().invoke
    command = ["explain-plan", str(topology), "--schemas", str(schemas)]
    assert run(app, command).output.startswith(TEXT)
    reported = json.loads(run(app, [*command, "wide", "--json"]).stdout)
    assert reported["wide"]["tree"]["joins"][0]["kind"] == "inner"
    assert run(app, [*command, "wide", "--svg", str(drawing)]).exit_code == 0
    assert drawing.read_text().startswith("<svg")
    gone = [column for column in json.loads(records[1])["columns"] if column["name"] != "state"]
    schemas.write_text("\n".join([*records, json.dumps({**json.loads(records[1]), "version": 2, "columns": gone})]))
    warned = run(app, command)  # a used column that its table has dropped keeps its type, with a warning
    assert warned.stdout.startswith(TEXT)
    assert warned.stderr == "warning: shop.shop.orders has no column state any more: it reads as NULL\n"
    schemas.write_text(records[0])
    failed = run(app, command)
    assert isinstance(failed.exception, UsageError)
    assert "no schema of crm.crm.customers, shop.shop.orders, shop.shop.parts in" in str(failed.exception)


def test_keys_that_join_more_at_their_source_are_reported(tmp_path: Path) -> None:
    """`ABC` joins `abc ` in MySQL, not here: explain-plan, and validate with schemas, report it."""
    topology, schemas = tmp_path / "t.yml", tmp_path / "schemas.jsonl"
    source = {"type": "mysql", "hostname": "h", "username": "u", "password": "p", "server_id": 1}
    shop = {**source, "database": "shop", "tables": ["lines", "codes"]}
    query = "SELECT l.id, c.worth + 1 AS x FROM shop.lines l JOIN shop.codes c ON c.code = l.code"
    value = {"name": "law", "sources": {"shop": shop}, "tables": {"wide": {"query": query, "row_key": ["id"]}}}
    topology.write_text(yaml.safe_dump(value))

    def written(lines: str | None, codes: str | None, worth: str = "decimal(9,2)") -> list[str]:
        made = {
            "lines": (
                Column(name="id", column_type="int"),
                Column(name="code", column_type="char(3)", collation=lines),
            ),
            "codes": (
                Column(name="code", column_type="varchar(9)", collation=codes),
                Column(name="worth", column_type=worth),
            ),
        }
        records = [
            TableSchema(
                table_id=TableId(source="shop", database="shop", table=name),
                version=1,
                columns=columns,
                primary_key=(columns[0].name,),
            )
            for name, columns in made.items()
        ]
        schemas.write_text("\n".join(json.dumps(record.to_json()) for record in records))
        return [str(topology), "--schemas", str(schemas)]

    meaning = ": rows that meet at the source may not meet here, where text compares by its bytes"
    run, loose = CliRunner().invoke, written("utf8mb4_0900_ai_ci", "utf8mb4_bin")
    for command in ("explain-plan", "validate"):
        said = run(app, [command, *loose])
        assert said.exit_code == 0
        assert said.stderr.splitlines() == [
            "warning: table wide: shop.shop.lines.code compares by utf8mb4_0900_ai_ci, which folds case and accents, "
            f"and joins shop.shop.codes.code{meaning}",
            "  remedy: write its values in one case, with the same accents on both sides, "
            "or ALTER TABLE shop.lines MODIFY code … COLLATE utf8mb4_0900_bin",
            "warning: table wide: shop.shop.codes.code compares by utf8mb4_bin, which folds trailing spaces, "
            f"and joins shop.shop.lines.code{meaning}",
            "  remedy: write its values without trailing spaces on both sides",
        ]
    reported = json.loads(run(app, ["explain-plan", *loose, "--json"]).stdout)
    assert [set(warning) for warning in reported["wide"]["warnings"]] == [{"found", "remedy"}] * 2
    for command in ("explain-plan", "validate"):
        assert run(app, [command, *written(None, "utf8mb4_0900_bin")]).stderr == ""
    failed = run(app, ["validate", *written(None, None, "decimal(50,10)")])
    assert "c.worth is decimal(50,10): expressions have at most 38 digits" in str(failed.exception)


@pytest.mark.parametrize("table", ["nothing"])
def test_unknown_table_is_named(table: str) -> None:
    """It is a usage error that lists the existing tables."""
    result = CliRunner().invoke(app, ["explain-plan", "topologies/shop.yml", table])
    assert isinstance(result.exception, UsageError)
    assert "orders_wide" in str(result.exception)


def test_the_first_rows_of_groups_are_reported() -> None:
    """Text, JSON and drawing show the number of rows, the order and the tie-breaker."""
    query = (
        "SELECT t.state, t.n, t.id FROM (SELECT o.*, ROW_NUMBER() OVER (PARTITION BY o.state"
        " ORDER BY o.customer_id DESC) AS n FROM shop.orders o) t WHERE t.n <= 3"
    )
    plan = replace(CASE, query=query, row_key=["state", "n"]).plan()
    first = "the first 3 rows by shop.shop.orders.customer_id DESC, shop.shop.orders.id"
    text = text_of_plan(plan)
    assert text.startswith(
        f"wide: {first} of each shop.shop.orders.state, row key state, n\n\nrows 1, the first rows of"
    )
    assert f"  after    aggregate 1: {first}; keeps all rows in this order, by group\n" in text
    assert json_of_plan(plan)["below"][0]["group"]["first"] == first
    assert f"<title>{first}</title>" in svg_of_plan(plan)


def test_the_cost_of_window_functions_is_reported() -> None:
    """Text, JSON and drawing show the functions, the order, and that a change reads its whole partition."""
    query = (
        "SELECT o.id, o.state, lag(o.id, 2) OVER (PARTITION BY o.state ORDER BY o.customer_id) AS l FROM shop.orders o"
    )
    plan = replace(CASE, query=query, row_key=["id"]).plan()
    windows = "LAG(o.id, 2) over rows by shop.shop.orders.customer_id"
    text = text_of_plan(plan)
    assert text.startswith(
        "wide: one row per row of o, with window functions, row key id\n\nrows 1, with window functions"
    )
    assert f"  after    aggregate 1: {windows}; keeps all rows in this order, by partition\n" in text
    assert "a change reads all rows of its partition, and writes those whose values change" in text
    assert "partitioned by shop.shop.orders.state" in text
    assert json_of_plan(plan)["below"][0]["group"]["windows"] == windows
    assert f"<title>{windows}</title>" in svg_of_plan(plan)


def test_the_cost_of_functions_that_read_whole_groups_is_reported() -> None:
    """A change of a group with a text of all its values reads all of them; a sum and a maximum do not."""
    query = "SELECT o.n, string_agg(o.s, ',') AS t, percentile(o.m, 0.5) AS p, max(o.m) AS x FROM shop.o o GROUP BY o.n"
    tables = {"shop.o": {"key": ["id"], "id": "int", "n": "int?", "m": "int?", "s": "varchar(9)"}}
    text = text_of_plan(Case(tables=tables, query=query, row_key=["n"], history=[]).plan())
    assert "reads all different values of its group, for LISTAGG(o.s, ','), PERCENTILE(o.m, 0.5)" in text
