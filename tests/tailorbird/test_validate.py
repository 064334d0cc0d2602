"""`tailorbird validate`: a broken topology of tests/cases/topologies is one line that names the place and the remedy.

A case is a topology, a line `->`, and the rest of the message after the file's name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import TopologyError
from cdc.process.file_topology import load_topology
from cdc.topology.reader import read_topology
from joins.select.parser import tables_of
from tailorbird.cli.app import app
from tailorbird.operate.doctor.validate import validate

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "tests" / "cases" / "topologies").glob("*.case"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_broken_topology_names_the_line_and_the_remedy(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the error, its place and what was expected, and no stack trace."""
    monkeypatch.delenv("CRM_PASSWORD", raising=False)
    text, _, expected = case.read_text().partition("->\n")
    file = tmp_path / "broken.yml"
    file.write_text(text)
    with pytest.raises(TopologyError) as caught:
        validate(load_topology(str(file)))
    assert str(caught.value).startswith(f"{file}:{expected.strip()}")
    assert ", expected " in str(caught.value)


def test_there_are_at_least_ten_cases() -> None:
    """The promise is ten; more is better."""
    assert len(CASES) >= 10


def test_the_message_goes_to_stderr_with_exit_code_2(tmp_path: Path) -> None:
    """A script can distinguish an invalid topology from a failed run, and the message is one line."""
    file = tmp_path / "broken.yml"
    file.write_text("name: x\nsources: 7\n")
    command = [sys.executable, "-m", "tailorbird", "validate", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"tailorbird: {file}:2: sources: a text, expected a mapping `key: value`\n"


@pytest.mark.parametrize("file", sorted((ROOT / "topologies").glob("*.yml")), ids=lambda file: file.name)
def test_published_topologies_are_right(file: Path) -> None:
    """The examples pass, and `--json` lists the columns of each table."""
    result = CliRunner().invoke(app, ["validate", str(file), "--json"])
    assert result.exit_code == 0, result.output
    # stderr warns of text keys if the servers of other tests run in this process
    assert all(json.loads(result.stdout)["tables"].values())


FOREIGN = """
name: theirs
foreign_tables:
  orders:
    table: sales:orders
    fields:
      id: {source: row, type: string}
      status: {source: "d:status", type: string}
indexes:
  orders: {table: orders, search: [status]}
dashboards:
  orders: {index: orders, facets: [status], columns: [id, status]}
"""


def test_an_index_over_a_foreign_table_is_right(tmp_path: Path) -> None:
    """Its columns are the fields that the topology names; `run` validates, too."""
    file = tmp_path / "theirs.yml"
    file.write_text(FOREIGN)
    result = CliRunner().invoke(app, ["validate", str(file), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"topology": "theirs", "tables": {}}


def test_tables_are_copied_whatever_they_are_called() -> None:
    """MySQL accepts nearly every name; the generated query of a copy must read it."""
    text = "name: lake\nsources:\n  select: {type: mysql, hostname: h, username: u, password: p, database: shop,"
    text += " tables: [order-lines, select, old.a.b], server_id: 1}\ntables: select.*\n"
    topology = read_topology(text, file="lake.yml", environ={})
    assert validate(topology) == dict.fromkeys(["select_order_lines", "select_select", "select_a_b"])
    read = [table for name in topology.tables for table in tables_of(topology, topology.tables[name])]
    assert [(t.database, t.table) for t in read] == [("shop", "order-lines"), ("shop", "select"), ("old", "a.b")]
