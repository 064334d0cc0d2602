"""`tailorbird snapshot` takes the names that people have for their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailorbird.cli.app import app

TOPOLOGY = """\
name: t
sources:
  shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders, users, old.notes],
         server_id: 1}
  crm: {type: mysql, hostname: h, username: u, password: p, database: people, tables: [users], server_id: 2}
  sys: {type: syslog, database: logs, listen: {udp: '127.0.0.1:514'}}
tables: {wide: {query: SELECT o.id FROM shop.orders o, row_key: [id]}}
"""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The signals that were sent: source and tables."""
    found: list[tuple[str, list[str]]] = []

    def send(topology: Any, source: str, value: dict[str, Any]) -> None:
        found.append((source, value["data"]["data-collections"]))

    monkeypatch.setattr("ingest.log.kafka_signals.send", send)
    return found


@pytest.mark.parametrize(
    ("words", "signals"),
    [
        (["orders"], [("shop", ["shop.orders"])]),
        (["shop.orders"], [("shop", ["shop.orders"])]),
        (["--table", "people.users"], [("crm", ["people.users"])]),
        (["--table", "shop.users", "notes.x", "--source", "shop"], None),
        (["old.notes", "--table", "crm.users"], [("shop", ["old.notes"]), ("crm", ["people.users"])]),
        (["users", "--source", "crm"], [("crm", ["people.users"])]),
        (["users"], None),
        (["nothing"], None),
        (["logs.messages"], None),
        (["logs.messages", "--stop"], [("sys", ["logs.messages"])]),
        (["orders", "--source", "shp"], None),
    ],
)
def test_a_table_finds_its_source(
    tmp_path: Path, sent: list[Any], words: list[str], signals: list[tuple[str, list[str]]] | None
) -> None:
    """A table is given as `table`, `database.table` or with its source. Ambiguous names are refused."""
    file = tmp_path / "t.yml"
    file.write_text(TOPOLOGY)
    result = CliRunner().invoke(app, ["snapshot", str(file), *words])
    assert sent == (signals or [])
    assert (result.exit_code == 0) == (signals is not None), result.output


def test_a_name_of_several_tables_lists_them(tmp_path: Path, sent: list[Any]) -> None:
    """With what to type instead."""
    file = tmp_path / "t.yml"
    file.write_text(TOPOLOGY)
    error = str(CliRunner().invoke(app, ["snapshot", str(file), "users"]).exception)
    assert error == "users is ambiguous: shop.shop.users, crm.people.users; write shop.shop.users, or add --source shop"
    assert sent == []
