"""Statements folded into the schema history, and the catalog rebuilt from it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.event import Position
from cdc.model.history import History, SchemaChange, history_from_records, records
from cdc.model.schema import Column, TableId
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import dialect_of
from ingest.ddl.schema_history import Followed, begun, catalog_at, catalog_of, follow, reported

MYSQL = dialect_of("mysql")
STATEMENTS = [
    "CREATE TABLE a (id INT PRIMARY KEY, n VARCHAR(5), KEY (n))",
    "ALTER TABLE a ADD x INT",
    "ALTER TABLE a ADD INDEX (x)",
    "ALTER TABLE a FROBNICATE",
    "ALTER TABLE a DROP COLUMN n",
    "CREATE TABLE b LIKE a",
    "RENAME TABLE a TO t, b TO a, t TO b",
    "ALTER TABLE a CONVERT TO CHARACTER SET latin1",
    "ALTER DATABASE d CHARACTER SET latin1",
    "DROP TABLE b",
    "CREATE TABLE b (z TEXT)",
    "ALTER TABLE b ADD y BIGINT FIRST",
    "DROP DATABASE d",
    "CREATE DATABASE d",
    "INSERT INTO a VALUES (1)",
]


def position(sequence: int) -> Position:
    return Position(file="binlog.000001", pos=4, gtid_set="", sequence=sequence)


def table_id(name: str) -> TableId:
    return TableId(source="s", database="d", table=name)


def fold(history: History, catalog: Catalog, statements: list[str], start: int = 0) -> list[Followed]:
    """Follow statements, each with the next number after `start`."""
    out = []
    for number, sql in enumerate(statements, start=start + 1):
        followed = follow(
            history, catalog, sql, source="s", position=position(number), database="d", dialect=MYSQL
        )  # fmt: skip
        history, catalog = followed.history, followed.catalog
        out.append(followed)
    return out


def beginning() -> tuple[History, Catalog]:
    catalog = Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"})
    return History().record(begun(catalog, "s", position(0))), catalog


def shown(catalog: Catalog) -> tuple[object, ...]:
    return catalog.tables, dict(catalog.unknown), dict(catalog.databases)


@given(statements=st.lists(st.sampled_from(STATEMENTS), max_size=14))
@settings(deadline=None)  # the machine may be busy
def test_the_history_at_a_position_is_the_catalog_then(statements: list[str]) -> None:
    """schema_at equals the result of the statements before the position, and the catalog rebuilt there is the same."""
    history, catalog = beginning()
    folded = fold(history, catalog, statements)
    last = folded[-1].history if folded else history
    for number, followed in enumerate(folded, start=1):
        assert shown(catalog_at(last, "s", position(number), "utf8mb4")) == shown(followed.catalog)
        for (_, name), table in followed.catalog.tables.items():
            schema = last.schema_at(table_id(name), position(number))
            assert table.schema(table_id(name), schema.version) == schema


@given(statements=st.lists(st.sampled_from(STATEMENTS), max_size=14), cut=st.integers(0, 14))
@settings(deadline=None)  # the machine may be busy
def test_a_resumed_agent_folds_the_same_history(statements: list[str], cut: int) -> None:
    """Resumed at any older position, with the history read from the topic, the same statements change nothing."""
    history, catalog = beginning()
    folded = fold(history, catalog, statements)
    last = folded[-1].history if folded else history
    written = [r for f in folded if f.change for r in records(f.change)]
    written += records(begun(catalog, "s", position(0)))
    restored = history_from_records(json.loads(json.dumps(written)), "s")
    assert restored == last
    resumed = fold(restored, catalog_at(restored, "s", position(cut), "utf8mb4"), statements[cut:], cut)
    if resumed:
        assert resumed[-1].history == last
        assert shown(resumed[-1].catalog) == shown(folded[-1].catalog)


@given(statements=st.lists(st.sampled_from(STATEMENTS), max_size=14))
@settings(deadline=None)  # the machine may be busy
def test_versions_are_never_reused(statements: list[str]) -> None:
    """Two schemas of a table with the same version are the same, even if it was dropped in between."""
    history, catalog = beginning()
    found: dict[tuple[TableId, int], object] = {}
    for followed in fold(history, catalog, statements):
        for state in followed.change.tables if followed.change else ():
            if state.schema:
                key = (state.table_id, state.schema.version)
                assert found.setdefault(key, state.schema) == state.schema


def test_metadata_ends_a_quarantine_from_the_statement_on() -> None:
    """A statement that was not understood is amended at its own position, and stays amended when it is read again."""
    history, catalog = beginning()
    before, broken = fold(history, catalog, ["CREATE TABLE a (id INT PRIMARY KEY)", "ALTER TABLE a FROBNICATE"])
    assert broken.error
    columns = [
        Column(name="id", column_type="int", nullable=False),
        Column(name="f", column_type="text", charset="latin1"),
    ]
    learnt = reported(broken.history, broken.catalog, table_id("a"), columns, ["id"], position=position(9))
    assert learnt.change is not None
    assert learnt.change.position.sequence == 2
    schema = learnt.history.schema_at(table_id("a"), position(2))
    assert [c.name for c in schema.columns] == ["id", "f"]
    assert schema.version == 2
    assert learnt.history.schema_at(table_id("a"), position(1)).version == 1
    again = fold(learnt.history, before.catalog, ["ALTER TABLE a FROBNICATE", "ALTER TABLE a ADD g INT"], 1)
    assert again[0].history == learnt.history
    assert [c.name for c in again[1].history.schema_at(table_id("a"), position(3)).columns] == ["id", "f", "g"]
    same = reported(learnt.history, learnt.catalog, table_id("a"), columns, ["id"], position=position(9))
    assert (same.change, same.history) == (None, learnt.history)


def test_a_table_that_was_never_seen_is_known_from_its_metadata_on() -> None:
    """A table created before capture started, in a database that was not read, is known after its TABLE_MAP."""
    history, catalog = beginning()
    found = reported(
        history, catalog, table_id("n"), [Column(name="a", column_type="int")], [], position=position(5)
    )  # fmt: skip
    assert isinstance(found.change, SchemaChange)
    assert found.history.state_at(table_id("n"), position(4)) is None
    assert found.history.schema_at(table_id("n"), position(5)).version == 1
    assert found.catalog.tables[("d", "n")].charset == "utf8mb4"


def test_information_schema_gives_the_catalog_that_statements_would() -> None:
    """Rows of information_schema make the same tables as the server's DDL."""
    columns = [
        dict(
            zip(
                ("column_name", "column_type", "is_nullable", "character_set_name", "collation_name", "column_default"),
                row,
                strict=True,
            ),
            table_schema="d",
            table_name="a",
            extra="",
        )
        for row in [
            ("id", "int", "NO", None, None, None),
            ("n", "varchar(5)", "YES", "latin1", "latin1_german1_ci", None),
        ]
    ]
    statistics = [
        {"table_schema": "d", "table_name": "a", "index_name": "PRIMARY", "column_name": "id", "non_unique": 0},
        {"table_schema": "d", "table_name": "a", "index_name": "n", "column_name": "n", "non_unique": 1},
    ]
    tables = [
        {
            "table_schema": "d",
            "table_name": "a",
            "character_set_name": "latin1",
            "table_collation": "latin1_german1_ci",
        }
    ]
    schemata = [{"schema_name": "d", "default_character_set_name": "utf8mb4"}]
    read = catalog_of(columns, statistics, tables, schemata, "utf8mb4", MYSQL)
    _, catalog = beginning()
    sql = "CREATE TABLE a (id INT PRIMARY KEY, n VARCHAR(5), KEY (n)) COLLATE latin1_german1_ci"
    made = follow(
        History(), catalog, sql, source="s", position=position(1), database="d", dialect=MYSQL
    )  # fmt: skip
    assert shown(read) == shown(made.catalog)
