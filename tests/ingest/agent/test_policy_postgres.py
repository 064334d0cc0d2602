"""A policy of PostgreSQL: names match as its server compares them, and conditions are in its SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from cdc.model.errors import Skippable, TailorbirdError, TopologyError, UsageError
from cdc.model.event import Position
from cdc.model.filters import shape_of
from cdc.model.schema import Column, TableId, TableSchema
from ingest.agent.policy import NarrowedSource, narrowed
from ingest.agent.policy_check import ServerDatabase, findings
from ingest.agent.policy_reader import read_policy
from ingest.events.published import published
from ingest.fleet.desired import source_of, spec_of
from ingest.postgres.pg_connection import PgConnection
from ingest.postgres.pg_slot import held_up
from ingest.postgres.pg_snapshot import PgChunks, StreamedTransactions
from ingest.records.chunk_requests import ChunkRequest
from ingest.records.conditions import condition

POLICY = """
dumps: true
connections:
  billing-db:
    type: postgresql
    hostname: 10.0.0.6
    username: cdc
    password: hidden
    dbname: billing
    databases:
      public:
        tables:
          invoices: {}
          users: {columns: [id, name, mail], mask: {Mail: redact}}
          cards: {ignored_columns: [Number]}
      open: {filter_policy: accept, ignored_columns: [pin], tables: {secret: }}
"""


def run(reported: Mapping[str, Any], text: str = POLICY) -> NarrowedSource:
    """Return the effective configuration of a gateway's configuration."""
    policy = read_policy(text, file="policy.yml", environ={}, content=str)
    spec = spec_of({"agents": ["a1"], "connection": "billing-db", "type": "postgresql", **reported}, "t", "s")
    return narrowed(policy, spec, source_of(spec, "t", "s"), condition)


def table(name: str, schema: str = "public") -> TableId:
    return TableId(source="s", database=schema, table=name)


def chunk(where: str, name: str = "users", **changed: Any) -> ChunkRequest:
    schema = TableSchema(table_id=table(name), version=1, columns=(), primary_key=("id",))
    position = Position(file="f", pos=4, gtid_set="", sequence=0)
    request = ChunkRequest(number=1, schema=schema, position=position, after=None, last=None, where=where)
    return replace(request, **changed)


def test_the_server_is_the_policys() -> None:
    """Address and database come from the policy. The configuration must be for the plugin of its connection."""
    source = run({"tables": ["invoices"]}).source
    assert (source.type, source.hostname, source.port, source.dbname) == ("postgresql", "10.0.0.6", 5432, "billing")
    assert (source.slot_name, source.publication_name, source.server_id) == ("", "", 0)
    assert not run({"tables": ["invoices"]}).restrictions
    with pytest.raises(UsageError, match="billing-db is of type postgresql, but the configuration is for mysql"):
        run({"tables": ["invoices"], "type": "mysql", "database": "public"})
    text = POLICY.replace("type: postgresql", "type: mysql").replace("    dbname: billing\n", "")
    with pytest.raises(UsageError, match="billing-db is of type mysql, but the configuration is for postgresql"):
        run({"tables": ["invoices"]}, text)
    for old, new, why in (
        ("    dbname: billing\n", "", "key dbname is missing"),
        ("type: postgresql", "type: mysql", "unknown key dbname"),
        ("type: postgresql", "type: oracle", "one of mysql, mariadb, postgresql"),
    ):
        with pytest.raises(TopologyError, match=why):
            run({"tables": ["invoices"]}, POLICY.replace(old, new))


def test_no_spelling_reveals_a_column() -> None:
    """PostgreSQL may have `mail`, `Mail` and `MAIL` in one table. A listed name shows only itself, but hides all."""
    source = run({"tables": {"users": {}, "cards": {}}}).source
    for name, row, left in (
        ("users", {"id": 1, "Id": 2, "mail": "m", "Mail": "M", "x": 3}, {"id": 1, "mail": "***"}),
        ("cards", {"id": 1, "number": "4", "NUMBER": "5"}, {"id": 1}),
    ):  # fmt: skip
        shape = shape_of(source.rules[table(name)])
        assert shape is not None
        shape(row)
        assert row == left
    accepted = run({"database": "open", "filter_policy": "accept"}).source
    rule = accepted.rule_of(table("any", "open"))
    assert rule is not None
    assert (rule.leaves_out("PIN"), rule.leaves_out("pin"), rule.leaves_out("id")) == (True, True, False)
    assert not accepted.captures(table("secret", "open"))
    assert not accepted.captures(table("Secret", "open"))


def test_a_key_is_spelt_as_on_the_server() -> None:
    """Another column whose name differs only in case is no part of the key."""
    columns = tuple(Column(name=name, column_type="int", nullable=False) for name in ("id", "ID", "number"))
    schema = TableSchema(table_id=table("cards"), version=1, columns=columns, primary_key=("id",))
    rules = run({"tables": {"cards": {}}}).source.rules
    shown = published(schema, (), rules[table("cards")])
    assert (shown.primary_key, [column.name for column in shown.columns]) == (("id",), ["id", "ID"])
    with pytest.raises(TailorbirdError, match="number is part of its key"):
        published(replace(schema, primary_key=("number",)), (), rules[table("cards")])
    accepted = run({"database": "open", "filter_policy": "accept"}).source
    found = published(replace(schema, table_id=table("any", "open")), (), accepted.rule_of(table("any", "open")))
    assert found.primary_key == ("id",)


@pytest.mark.parametrize(
    ("name", "where", "why"),
    [
        ("users", "phone = '555'", "must not use column phone"),
        ("users", "mail LIKE 'a%'", "must not use column mail"),
        ("users", "\"Mail\" LIKE 'a%'", "must not use column Mail"),
        ("users", '"ID" = 1', "must not use column ID"),
        ("cards", "NUMBER = '4'", "must not use column NUMBER"),
        ("cards", "cards > 'x'", "must not use column cards"),
        ("cards", "Cards IS NULL", "must not use column"),
        ("cards", "id = pg_sleep(9)", "must not contain"),
        ("cards", "id::text = '1'", "must not contain"),
        ("cards", "number ~ '^4'", "must not contain"),
        ("cards", "id = (SELECT 1)", "must not contain"),
        ("salaries", "id = 1", "may not leave"),
    ],
)
def test_conditions_use_no_column_that_must_not_leave(name: str, where: str, why: str) -> None:
    """The name of a table stands for its rows. The reader also checks conditions that come from a checkpoint."""
    with pytest.raises(UsageError, match=why):
        run({"tables": {name: {"where": where}}})
    with pytest.raises(Skippable, match=why):
        PgChunks(run({"tables": {"users": {}}}).source, StreamedTransactions()).request(chunk(where, name))


def test_conditions_are_written_in_its_sql() -> None:
    """Quoted names keep their case."""
    where = run({"tables": {"cards": {"where": '"Id" > 3 AND id <> -1'}}}).source.rules[table("cards")].where
    assert where == '"Id" > 3 AND id <> -1'


class BusyServer:
    """A connection to a server with a prepared transaction."""

    def texts(self, _: str) -> list[tuple[str, ...]]:
        return [("prepared transaction 'SECRET'", "app", "now")]


def test_a_prepared_transaction_is_not_named_outside_the_host() -> None:
    """The application chooses its name, and the agent reports the error to the gateway."""
    source, server = run({"tables": {"users": {}}}).source, cast(PgConnection, BusyServer())
    assert "SECRET" not in str(held_up(server, source, "the slot cannot be made"))
    assert "SECRET" in str(held_up(server, replace(source, permitted=None), "the slot cannot be made"))


def test_dumps_can_not_be_widened() -> None:
    """A gateway's checkpoint may request to read a table, or rows by their keys."""
    source = run({"tables": {"users": {}}}, POLICY.replace("dumps: true", "dumps: false")).source
    assert (source.snapshot_mode, source.position_lost, source.dumps) == ("never", "fail", False)
    chunks = PgChunks(source, StreamedTransactions())
    with pytest.raises(Skippable, match="capture needs to read table"):
        chunks.request(chunk(""))
    with pytest.raises(Skippable, match=r"needs to read rows of table s\.public\.users"):
        chunks.request(chunk("", keys=({"id": 1},)))


def test_the_check_shows_columns_as_they_leave() -> None:
    """The log of PostgreSQL always names columns."""
    policy = read_policy(POLICY, file="policy.yml", environ={}, content=str)
    tables = {"users": ("id", "ID", "name", "mail", "MAIL"), "cards": ("id", "NUMBER"), "Cards": ("id",)}
    database = ServerDatabase(name="public", tables=tables, names_columns=True)
    found = {one.table: one for one in findings(policy.connections["billing-db"], database)}
    users, cards = found["public.users"], found["public.cards"]
    assert (users.plain, users.masked, users.hidden) == (("id", "name"), ("mail",), ("ID", "MAIL"))
    assert (cards.plain, cards.hidden) == (("id",), ("NUMBER",))
    assert not found["public.Cards"].leaves
