"""A replica from which tables are read: its key in topologies and policies, and what it must have executed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pymysql
import pytest

from cdc.model.errors import Retriable, TopologyError, UsageError
from cdc.model.event import Position
from cdc.model.tls import SecuredAddress, Tls
from cdc.topology.reader import read_source
from cdc.topology.topology import Source
from ingest.agent.policy import narrowed
from ingest.agent.policy_reader import read_policy
from ingest.binlog.format.gtid import GtidSet
from ingest.fleet.desired import source_of, spec_of
from ingest.mysql.mysql_connection import Connection, translated
from ingest.mysql.mysql_replica import PrimaryCheck, check_replica, filters_of, on_replica, why_indirect
from ingest.mysql.mysql_snapshot import _Reading
from ingest.records.chunk_requests import ChunkRequest
from ingest.records.conditions import condition
from tests.support.changes_made import schema_of

TEXT = (
    "{{type: {kind}, hostname: db1, username: u, password: p, database: d, tables: [t]{more}, "
    "snapshot: {{hostname: db2, port: 3307, ssl_mode: required}}}}"
)
A, B = "11111111-2222-3333-4444-555555555555", "21111111-2222-3333-4444-555555555555"


def source(kind: str = "mysql", more: str = ", server_id: 7") -> Source:
    return read_source(TEXT.format(kind=kind, more=more), name="s", file="t.yml")


class Primary:
    """A primary that has executed some transactions; it answers the comparison as MySQL does."""

    def __init__(self, executed: str, later: str = "") -> None:
        self.executed, self.later = GtidSet.parse(executed), later

    def cursor(self) -> Primary:
        return self

    def __enter__(self) -> Primary:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, arguments: Any = None) -> None:
        if sql.startswith("SELECT WAIT_FOR_EXECUTED_GTID_SET"):
            self.executed = GtidSet.parse(self.later) if self.later else self.executed
            self.rows = [("0",)]
            return
        assert sql.startswith("SELECT GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)")
        rest = [one for one in arguments[0].split(",") if one and not self.executed.covers(GtidSet.parse(one))]
        self.rows = [(",\n".join(rest),)]

    def fetchall(self) -> list[tuple[str]]:
        return self.rows


def test_tables_are_read_from_another_address() -> None:
    """With its own TLS settings. Everything else is that of the primary."""
    one = source()
    assert one.snapshot == SecuredAddress(hostname="db2", port=3307, tls=Tls(mode="required"))
    there = on_replica(one)
    assert (there.hostname, there.port, there.tls.mode, there.username) == ("db2", 3307, "required", "u")
    assert (one.hostname, one.port, one.tls.mode) == ("db1", 3306, "verify_identity")


@pytest.mark.parametrize(
    ("kind", "more"),
    [("mariadb", ", server_id: 7"), ("postgresql", ", dbname: d"), ("mysql", ", capture: poll")],
)
def test_other_sources_refuse_a_replica(kind: str, more: str) -> None:
    """They have no set of transactions that both servers share, or read no log."""
    with pytest.raises(TopologyError, match="a replica for snapshots, expected no `snapshot:`: only MySQL with GTIDs"):
        source(kind, more)


def test_a_gateway_does_not_choose_the_replica() -> None:
    """It is an address, so it comes from the policy of the host."""
    text = (
        "{dumps: true, connections: {db: {hostname: 127.0.0.1, username: u, password: p, snapshot: {hostname: "
        "127.0.0.1, port: 3307}, databases: {d: all}}}}"
    )
    policy = read_policy(text, file="p", environ={}, content=str)
    asked: dict[str, Any] = {"agents": ["a1"], "connection": "db", "database": "d", "tables": ["t"]}
    spec = spec_of(asked, "t", "s")
    found = narrowed(policy, spec, source_of(spec, "t", "s"), condition).source
    assert found.snapshot == SecuredAddress(hostname="127.0.0.1", port=3307, tls=Tls(mode="preferred"))
    with pytest.raises(UsageError, match="snapshot cannot be set by the gateway"):
        spec_of({**asked, "snapshot": {"hostname": "evil"}}, "t", "s")
    with pytest.raises(TopologyError, match="only MySQL with GTIDs"):
        read_policy(text.replace("{hostname: 127.0.0.1, username", "{type: mariadb, hostname: h, username"),
                    file="p", environ={}, content=str)  # fmt: skip


def test_a_chunk_beyond_the_primary_is_refused() -> None:
    """The stream would never reach it. A replica that is late is no error."""
    check = PrimaryCheck(cast(Connection, Primary(f"{A}:1-10")), source())
    check.check(f"{A}:1-9")
    check.check("")
    with pytest.raises(UsageError, match=f"replica db2:3307 has transactions that its primary lacks \\({B}:1\\)"):
        check.check(f"{A}:1-9,{B}:1")


def test_a_transaction_that_the_primary_still_commits_is_waited_for() -> None:
    """A replica may execute it before its primary does, which waits for another replica's acknowledgement."""
    check = PrimaryCheck(cast(Connection, Primary(f"{A}:1-10", later=f"{A}:1-11")), source())
    check.check(f"{A}:1-11")
    with pytest.raises(UsageError, match="has transactions that its primary lacks"):
        check.check(f"{A}:1-12")


@pytest.mark.parametrize(
    ("name", "value", "hides"),
    [
        ("Replicate_Ignore_DB", "test,shop", True),
        ("Replicate_Ignore_DB", "test", True),
        ("Replicate_Ignore_DB", "mysql", True),
        ("Replicate_Ignore_Table", "mysql.rds_history,shop.t", True),
        ("Replicate_Ignore_Table", "mysql.rds_history", False),
        ("Replicate_Wild_Ignore_Table", "sh%.t%", True),
        ("Replicate_Wild_Ignore_Table", "sho_.%", True),
        ("Replicate_Ignore_Table", "mysql.rds_history,other.t", True),
        ("Replicate_Wild_Ignore_Table", "mysql.rds%", False),
        ("Replicate_Wild_Ignore_Table", "m%.t", True),
        ("Replicate_Do_DB", "shop", True),
        ("Replicate_Do_Table", "shop.t", True),
        ("Replicate_Rewrite_DB", "(a,b)", True),
        ("Replicate_Ignore_Server_Ids", "3", True),
        ("Slave_IO_Running", "Yes", False),
    ],
)
def test_filters_of_a_replica_count_if_they_may_hide_captured_tables(name: str, value: str, hides: bool) -> None:
    """A filtered transaction counts as executed, so that rows would be missing, or remain, without a sign.

    A filter of a database concerns the default one: with `test` ignored, `USE test; TRUNCATE shop.orders` is skipped. A
    statement that names an ignored table is skipped for its other tables, too, such as `DROP TABLE other.t, shop.t`.
    """
    found = list(filters_of([{"Replicate_Do_DB": "", name: value}], {"shop"}))
    assert found == ([(name, value)] if hides else [])


@pytest.mark.parametrize(
    ("channels", "why"),
    [
        ([{"Master_UUID": A}], ""),
        ([{"Master_UUID": A}, {"Master_UUID": A}], ""),
        ([{"Master_UUID": B}], f"replicates from another server than its primary ({B})"),
        ([{"Master_UUID": A}, {"Master_UUID": B}], f"replicates from another server than its primary ({B})"),
        ([{"Master_UUID": ""}], "has not yet connected to the server from which it replicates"),
        ([], "replicates from no server"),
    ],
)
def test_a_replica_of_a_replica_is_refused(channels: list[dict[str, str]], why: str) -> None:
    """The server between the two may have filters, and what it skips counts as executed."""
    assert why_indirect(channels, A) == why


class Member:
    """A primary, or its replica with a filter."""

    description = (("Replica_IO_Running",), ("Source_UUID",), ("Replicate_Ignore_DB",))

    def cursor(self) -> Member:
        return self

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, arguments: Any = None) -> None:
        answers = {"VERSION()": "8.0.36", "gtid_mode": "ON", "gtid_purged": "", "gtid_executed": f"{A}:1"}
        self.rows = [tuple(text for name, text in answers.items() if name in sql)]
        if "REPLICA" in sql:
            self.rows = [("Yes", A, "hidden")]

    def fetchall(self) -> list[tuple[str, ...]]:
        return self.rows


def test_a_transaction_of_the_replica_alone_concerns_no_table() -> None:
    """It is an error of the replica: a privilege on the table would not help."""

    class Read(Member):
        def execute(self, sql: str, arguments: Any = None) -> None:
            super().execute(sql)
            self.rows = self.rows if "@@" in sql or "VERSION" in sql else []

    check = PrimaryCheck(cast(Connection, Primary(f"{B}:1")), source())
    reading = _Reading(cast(Connection, Read()), on_replica(source()), 10, False, check)
    place = Position(file="", pos=0, gtid_set="", sequence=1)
    request = ChunkRequest(number=1, schema=schema_of(v="int"), position=place, after=None, last=None, where="")
    for one in (replace(request, keys=({"id": 1},)), request):
        with pytest.raises(UsageError, match="has transactions that its primary lacks") as found:
            reading.read(one)
        assert "GRANT" not in str(found.value)


def test_a_gateway_learns_neither_the_replica_s_address_nor_its_filters() -> None:
    """Under a policy, messages name the kind of filter, and no name outside the policy. On the host itself they do."""
    server, one = cast(Connection, Member()), source()
    with pytest.raises(UsageError, match=r"replica db2:3307 .*\(Replicate_Ignore_DB: hidden\)"):
        check_replica(server, server, one)
    policed = replace(one, permitted=lambda _: None)
    with pytest.raises(UsageError, match=r"s: replica does .*\(Replicate_Ignore_DB\)"):
        check_replica(server, server, policed)
    for error in (
        pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'DB2' (111)"),
        OSError("db2: no"),
    ):
        with pytest.raises(Retriable, match="db2:3307"), translated(on_replica(one), "connect"):
            raise error
        there = translated(on_replica(policed), "connect")
        with pytest.raises(Retriable, match=r"source s \(replica\): connect: ") as found, there:
            raise error
        assert "db2" not in str(found.value).lower()
        assert "3307" not in str(found.value)
