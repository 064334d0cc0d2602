"""A policy of polled tables, topics, syslog and MaxScale: the gateway chooses neither addresses, topics nor formats."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.model.schema import TableId
from ingest.agent.catalogs import databases_of, seen
from ingest.agent.policy import NarrowedSource, Policy, narrowed
from ingest.agent.policy_check import findings
from ingest.agent.policy_reader import read_policy
from ingest.fleet.desired import source_of, spec_of
from ingest.fleet.reported import effective_hash
from ingest.mirror.formats import UpstreamChange
from ingest.mirror.kafka_topics_source import TopicsSource
from ingest.poll.sql_reader import connected, sql_reader
from ingest.records.conditions import condition

POLICY = """
dumps: true
connections:
  logs:
    type: syslog
    listen: {udp: "127.0.0.1:5514", unix: /run/log}
    databases: {logs: {tables: {messages: {mask: {text: truncate(3)}, ignored_columns: [host]}}}}
  events:
    type: kafka
    bootstrap_servers: 10.0.0.7:9092
    format: upsert
    databases:
      shop:
        tables:
          orders: {topic: t.orders}
          users: {topic: t.users, ignored_columns: [Mail], mask: {pin: redact}}
  erp:
    type: sql
    url: mssql+pymssql://cdc:hidden@10.0.0.8/erp
    databases:
      dbo:
        tables:
          orders: {}
          users: {ignored_columns: [mail], mask: {pin: redact}}
      whole: all
  cdc:
    type: maxscale
    hostname: 127.0.0.1
    username: cdc
    password: hidden
    databases: {shop: {tables: {orders: {ignored_columns: [note]}}}}
"""
POLLED = {"connection": "erp", "type": "sql", "database": "dbo"}
KAFKA = {"connection": "events", "type": "kafka", "database": "shop"}


def policy(text: str = POLICY) -> Policy:
    return read_policy(text, file="policy.yml", environ={}, content=str)


def run(asked: Mapping[str, Any], text: str = POLICY) -> NarrowedSource:
    """Return the effective configuration of a gateway's configuration."""
    spec = spec_of({"agents": ["a1"], **asked}, "t", "s")
    assert spec_of(spec.to_json(), "t", "s") == spec
    return narrowed(policy(text), spec, source_of(spec, "t", "s"), condition)


def table(name: str, database: str) -> TableId:
    return TableId(source="s", database=database, table=name)


def test_the_endpoint_is_the_policys() -> None:
    """Each kind gets its address from the policy only."""
    syslog = run({"connection": "logs", "type": "syslog", "database": "logs", "tables": {"messages": {}}}).source
    assert syslog.listen is not None
    assert (syslog.listen.udp, syslog.listen.tcp, syslog.listen.unix) == (("127.0.0.1", 5514), None, "/run/log")
    assert [str(one) for one in syslog.tables] == ["s.logs.messages"]
    rule = syslog.rules[syslog.tables[0]]
    assert (rule.leaves_out("host"), rule.mask_of("text"), rule.hides("app")) == (True, "truncate(3)", False)
    polled = run({**POLLED, "tables": ["orders"]}).source
    assert polled.url == "mssql+pymssql://cdc:hidden@10.0.0.8/erp"
    assert "hidden" not in repr(polled) + repr(policy().connections["erp"])
    assert polled.poll is not None
    key = {"message_key_columns": ["id"]}
    maxscale = run({"connection": "cdc", "type": "maxscale", "database": "shop", "tables": {"orders": key}}).source
    assert (maxscale.hostname, maxscale.port, maxscale.username) == ("127.0.0.1", 4001, "cdc")
    assert maxscale.rules[table("orders", "shop")].leaves_out("NOTE")
    with pytest.raises(UsageError, match="connection cdc is of type maxscale, but the configuration is for kafka"):
        run({**KAFKA, "connection": "cdc", "tables": ["orders"]})


def test_topics_and_their_format_are_the_policys() -> None:
    """A gateway could otherwise read a hidden table as another one, or hidden columns as one JSON value."""
    source = run({**KAFKA, "tables": {"orders": {"columns": {"id": "bigint"}}, "users": {}}}).source
    assert source.mirror is not None
    assert source.mirror.topics == {table("orders", "shop"): "t.orders", table("users", "shop"): "t.users"}
    assert (source.mirror.form, source.mirror.brokers.servers) == ("upsert", "10.0.0.7:9092")
    assert source.mirror.columns == {table("orders", "shop"): {"id": "bigint"}}
    rule = source.rules[table("users", "shop")]
    assert [name for name in ("mail", "MAIL", "Pin", "id") if rule.hides(name)] == ["mail", "MAIL", "Pin"]
    for change, why in (
        ({"tables": {"orders": {"topic": "t.users"}}}, "topic of 'orders' cannot be set by the gateway"),
        ({"tables": ["orders"], "format": "debezium"}, "format cannot be set by the gateway"),
        ({"tables": ["orders"], "bootstrap_servers": "evil:9092"}, "bootstrap_servers cannot be set"),
        ({"tables": ["cards"]}, "cards may not leave events"),
        ({"tables": ["orders"], "filter_policy": "accept"}, "not all tables of shop may leave"),
        ({"tables": {"orders": "x"}}, "expected a"),
        ({"tables": {"orders": {"speed": 1}}}, "unknown key speed"),
    ):
        with pytest.raises((UsageError, TopologyError), match=why):
            run({**KAFKA, **change})


SHARED = """
          orders: {topic: t.all}
      crm:
        tables:
          users: {topic: t.all}
"""


@pytest.mark.parametrize("assigned", ["orders", "users"])
def test_a_topic_of_several_tables_is_one_for_each_gateway(assigned: str) -> None:
    """A gateway cannot make a record another table's by assigning only that table: records of the same table of another
    database may have columns that only its own rule hides."""
    old = "          orders: {topic: t.orders}\n          users: {topic: t.users,"
    assert old in POLICY
    text = POLICY.replace(old, "          users: {topic: t.all,").replace("  erp:", SHARED.strip("\n") + "\n  erp:")
    with pytest.raises(TopologyError, match=r"topic t\.all of several tables: records of format upsert name no table"):
        policy(text)
    text = text.replace("format: upsert", "format: maxwell")
    database = "shop" if assigned == "orders" else "crm"
    source = run({**KAFKA, "database": database, "tables": [assigned]}, text).source
    assert source.mirror is not None
    [one] = TopicsSource(source, source.mirror).mirrored
    names = [("shop", "users"), ("shop", "orders"), ("crm", "users"), ("crm", "orders"), ("", ""), ("", assigned)]
    found = [name for name in names if one.contains(UpstreamChange("c", None, {}, {}, name), only=True)]
    assert found == [(database, assigned)]
    alone = run({**KAFKA, "tables": ["orders"]}).source
    assert alone.mirror is not None
    [one] = TopicsSource(alone, alone.mirror).mirrored
    found = [name for name in names if one.contains(UpstreamChange("c", None, {}, {}, name), only=True)]
    assert found == [("shop", "orders"), ("", "")]


def test_no_hidden_column_can_be_polled() -> None:
    """The checkpoint contains cursors. Polling reads whole tables, so the policy must allow dumps."""
    assert run({**POLLED, "tables": ["users"], "cursor": "changed"}).source.rules[table("users", "dbo")].hides("PIN")
    for cursor in ("pin", "PIN", "mail"):
        with pytest.raises(UsageError, match=f"cannot be polled by {cursor}"):
            run({**POLLED, "tables": ["users"], "cursor": cursor})
    with pytest.raises(UsageError, match="may not be read by polling"):
        run({**POLLED, "tables": ["orders"]}, POLICY.replace("dumps: true", "dumps: false"))
    found = run({**POLLED, "tables": ["orders"], "interval": "10ms"})
    assert found.source.poll is not None
    assert found.source.poll.interval == 0.5
    assert found.restrictions == ("tables are polled every 500 ms",)


def test_what_a_gateway_can_make_a_database_read_is_limited() -> None:
    """A shorter lag could miss rows, so a longer one is refused."""
    asked = {**POLLED, "tables": ["orders"]}
    found = run({**asked, "limit": 100_000})
    assert found.source.poll is not None
    assert (found.source.poll.limit, found.restrictions) == (10_000, ("a query reads at most 10000 rows",))
    with pytest.raises(UsageError, match="lag 61 s is longer than 60000 ms"):
        run({**asked, "lag": "61s"})
    text = POLICY.replace("dumps: true", "dumps: true\nlimits: {poll_lag_ms: 90000, poll_rows: 7}")
    found = run({**asked, "lag": "61s"}, text)
    assert found.source.poll is not None
    assert (found.source.poll.limit, found.source.poll.lag) == (7, 61)


def test_conditions_are_in_the_databases_sql() -> None:
    """A database may ignore accents in names: then only names in plain letters are compared with hidden ones."""
    check = run({**POLLED, "tables": ["users", "orders"]}).source.conditions
    assert check is not None
    users, orders = table("users", "dbo"), table("orders", "dbo")
    assert check(users, "[id] > 5") == "[id] > 5"
    assert check(orders, "[größe] > 5") == "[größe] > 5"
    for where in ("pin = 1", "[p\u00edn] = 1", "[pin ] = 1", "PIN = 1", "1 = (SELECT 1)", "\uff50in = 1"):
        with pytest.raises(UsageError):
            check(users, where)
    other = run({**POLLED, "tables": ["orders"]}, POLICY.replace("mssql+pymssql", "db2")).source.conditions
    assert other is not None
    with pytest.raises(UsageError, match="SQL of db2 cannot be checked"):
        other(orders, "id > 5")


def test_conditions_of_polled_tables_name_their_columns(tmp_path: Path) -> None:
    """Databases have words for columns: SQL Server ROWGUIDCOL and IDENTITYCOL, MySQL _rowid, SQLite rowid."""
    check = run({**POLLED, "tables": ["users"]}).source.conditions
    assert check is not None
    names = {"id": "id", "changed": "changed"}
    assert check(table("users", "dbo"), "id > 5 AND changed IS NULL", names) == "[id] > 5 AND [changed] IS NULL"
    for word in ("ROWGUIDCOL", "IDENTITYCOL", "$IDENTITY", "ID", "other"):
        with pytest.raises(UsageError):
            check(table("users", "dbo"), f"{word} = 5", names)
    with sqlite3.connect(tmp_path / "erp.db") as made:
        made.execute("CREATE TABLE users (id TEXT PRIMARY KEY, mail TEXT, pin TEXT, updated_at DATETIME NOT NULL)")
        made.execute("INSERT INTO users VALUES ('a', 'm', 'p', '2026-01-01 00:00:00.000000')")
    made.close()
    text = POLICY.replace("mssql+pymssql://cdc:hidden@10.0.0.8/erp", f"sqlite:///{tmp_path}/erp.db")
    text = text.replace("      dbo:", "      main:").replace("      whole: all\n", "")
    source = run({**POLLED, "database": "main", "tables": ["users"]}, text).source
    assert source.poll is not None
    with sql_reader(source, source.poll) as reader:
        [schema] = reader.schemas({}).values()
        rows, _ = reader.walk(schema, None, "id = 'a'", 10)
        assert len(rows) == 1
        for where in ("rowid = 1", "_rowid_ = 1", "oid = 1", "mail = 'm'", "pin = 'p'"):
            with pytest.raises(UsageError, match="must not use"):
                reader.walk(schema, None, where, 10)


@pytest.mark.parametrize("url", ["postgresql+psycopg://u:p@ss:hunter2@h/db", "sqlite://u:hunter2@h:hunter2/x", "x"])
def test_an_url_that_cannot_be_parsed_is_not_shown(url: str) -> None:
    """A password with @ or : ends up in the text of SQLAlchemy's error."""
    source = replace(run({**POLLED, "tables": ["orders"]}).source, url=url)
    with pytest.raises(UsageError) as found, connected(source):
        pass
    assert "its URL cannot be parsed" in str(found.value)
    assert "hunter2" not in str(found.value) + repr(found.value.__cause__)
    assert found.value.__suppress_context__


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    format: upsert\n", "", "key format is missing"),
        ("{topic: t.orders}", "{}", "key topic is missing"),
        ("format: upsert", "format: avro", "one of debezium, maxwell, upsert"),
        ("url: mssql+pymssql://cdc:hidden@10.0.0.8/erp", "url: here", "dialect://user"),
        ("      whole: all", "      whole: {filter_policy: accept}", "list its tables"),
        ("{messages: {", "{messages: {topic: x, ", "unknown key topic"),
        ("type: syslog", "type: kafka", "unknown key listen|key bootstrap_servers is missing|key topic is missing"),
    ],
)  # fmt: skip
def test_mistakes_in_a_policy(old: str, new: str, why: str) -> None:
    """Each kind of connection has its own keys."""
    with pytest.raises(TopologyError, match=why):
        policy(POLICY.replace(old, new))


def test_a_source_without_tables_is_only_mapped() -> None:
    """Tables are added later, as for databases."""
    for asked in (POLLED, KAFKA, {"connection": "logs", "type": "syslog", "database": "logs"},
                  {"connection": "cdc", "type": "maxscale", "database": "shop"}):  # fmt: skip
        spec = spec_of({"agents": ["a1"], **asked, "tables": {}}, "t", "s")
        assert (spec.captures, source_of(spec, "t", "s").tables) == (False, ())


def test_the_catalog_of_streams_is_what_the_policy_names() -> None:
    """The check on the host shows which columns are hidden, also if the columns of a topic are unknown."""
    connections = policy().connections
    [logs] = seen(connections["logs"], "a1")
    [messages] = logs.tables
    assert (logs.type, logs.database, messages.name) == ("syslog", "logs", "messages")
    assert "host" not in dict(messages.columns)
    assert dict(messages.columns)["text"] == "longtext"
    [events] = seen(connections["events"], "a1")
    assert [(one.name, one.columns) for one in events.tables] == [("orders", ()), ("users", ())]
    [database] = databases_of(connections["events"])
    shown = {one.table: one for one in findings(connections["events"], database)}
    assert (shown["shop.users"].hidden, shown["shop.users"].masked) == (("Mail",), ("pin",))
    [database] = databases_of(connections["logs"])
    [found] = findings(connections["logs"], database)
    assert (found.hidden, found.masked, "app" in found.plain) == (("host",), ("text",), True)


def test_the_catalog_of_a_polled_database(tmp_path: Path) -> None:
    """Names and types come from the database, without hidden columns and other tables."""
    with sqlite3.connect(tmp_path / "erp.db") as made:
        made.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, mail TEXT, pin TEXT, changed DATETIME)")
        made.execute("CREATE TABLE salaries (id INTEGER PRIMARY KEY)")
    made.close()
    text = POLICY.replace("mssql+pymssql://cdc:hidden@10.0.0.8/erp", f"sqlite:///{tmp_path}/erp.db")
    local = policy(text.replace("      dbo:", "      main:").replace("      whole: all\n", "")).connections["erp"]
    [found] = seen(local, "a1")
    assert [(one.name, [name for name, _ in one.columns]) for one in found.tables] == [
        ("users", ["id", "pin", "changed"])
    ]
    assert (found.type, found.to_json()["type"]) == ("sql", "sql")
    [database] = databases_of(local)
    leaves = {one.table: one.leaves for one in findings(local, database)}
    assert leaves == {"main.orders": False, "main.salaries": False, "main.users": True}


def test_the_hash_of_a_configuration_contains_its_kind() -> None:
    """A changed column or cursor is another configuration; an address is not part of it."""
    one, other = (run({**KAFKA, "tables": {"orders": {"columns": {"id": kind}}}}).source for kind in ("int", "bigint"))
    assert effective_hash(one, b"k") != effective_hash(other, b"k")
    one, other = (run({**POLLED, "tables": ["orders"], "cursor": name}).source for name in ("a", "b"))
    assert effective_hash(one, b"k") != effective_hash(other, b"k")
