"""The owner of a database's host has the last word: nothing that a gateway says makes more leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from errno import ENOENT
from typing import Any

import pytest

from cdc.model.errors import Skippable, TailorbirdError, TopologyError, UsageError
from cdc.model.event import Position
from cdc.model.filters import shape_of
from cdc.model.schema import Column, TableId, TableSchema
from ingest.agent.conditions import condition
from ingest.agent.policy import Narrowed, narrowed, refused_signal
from ingest.agent.policy_reader import read_policy
from ingest.events.published import published
from ingest.fleet.desired import LOCAL, source_of, spec_of
from ingest.fleet.fleet_pb2 import MapPlace, Ready
from ingest.fleet.reported import effective_hash
from ingest.fleet.wire import MESSAGE
from ingest.mysql.mysql_snapshot import MySqlChunks
from ingest.records.snapshots import ChunkRequest

POLICY = """
dumps: true
labels: {site: paris}
connections:
  shop-db:
    hostname: 10.0.0.5
    username: cdc
    password: ${file:secret}
    ssl_mode: required
    databases:
      shop:
        tables:
          orders: {}
          users: {columns: [id, name, mail], mask: {mail: sha256(pepper)}}
          cards: {ignored_columns: [number]}
      open: all
"""


def content(path: str) -> str:
    if path != "secret":
        raise FileNotFoundError(ENOENT, "no such file", path)
    return "hidden"


def policy(text: str = POLICY, **replaced: str) -> Any:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return read_policy(text, file="policy.yml", environ={}, content=content)


def run(reported: Mapping[str, Any], text: str = POLICY) -> Narrowed:
    """What runs of a configuration that a gateway tells."""
    base = {"agents": ["a1"], "connection": "shop-db", "database": "shop"}
    spec = spec_of({**base, **reported}, "t", "s")
    return narrowed(policy(text), spec, source_of(spec, "t", "s"), condition)


def table(name: str, database: str = "shop") -> TableId:
    return TableId(source="s", database=database, table=name)


def row_of(effective: Narrowed, name: str, row: dict[str, object]) -> dict[str, object]:
    """A row of a table as it leaves."""
    shape = shape_of(effective.source.rules[table(name)])
    if shape is not None:
        shape(row)
    return row


USER: dict[str, object] = {"id": 1, "name": "n", "mail": "m@x", "phone": "555"}


def test_columns_can_not_be_widened() -> None:
    """Only those of the list leave, whatever the configuration says of the table, and one that comes later neither."""
    every: list[dict[str, Any]] = [{}, {"ignored_columns": []}, {"mask": {}}, {"message_key_columns": ["phone"]}]
    for said in every:
        effective = run({"tables": {"users": said, "cards": said}})
        left = row_of(effective, "users", {**USER, "added_later": 1})
        assert set(left) == {"id", "name", "mail"}
        assert row_of(effective, "cards", {"id": 1, "number": "4711"}) == {"id": 1}
        assert effective.restrictions
    assert set(row_of(run({"tables": {"users": {"ignored_columns": ["name"]}}}), "users", dict(USER))) == {"id", "mail"}


def test_columns_are_meant_in_any_case() -> None:
    """MySQL's column names are: one that the server writes otherwise than the policy does is hidden and masked as it is
    meant, and a gateway's mask under such a name does not take the place of the policy's.
    """
    text = POLICY.replace("[number]", "[Number]").replace(
        "[id, name, mail], mask: {mail:", "[ID, name, Mail], mask: {MAIL:"
    )
    every: list[dict[str, Any]] = [{}, {"mask": {"mail": "truncate(100)"}}, {"mask": {"Mail": "truncate(100)"}}]
    expected = row_of(run({"tables": {"users": {}}}), "users", dict(USER))["mail"]
    for said in every:
        effective = run({"tables": {"users": said, "cards": {}}}, text)
        assert row_of(effective, "users", dict(USER)) == {"id": 1, "name": "n", "mail": expected}
        assert row_of(effective, "users", {"Id": 1, "mAIL": "m@x", "PHONE": 5}) == {"Id": 1, "mAIL": expected}
        assert row_of(effective, "cards", {"id": 1, "number": "4711", "NUMBER": "4711"}) == {"id": 1}
    columns = tuple(Column(name=name, column_type="varchar(9)", nullable=False) for name in USER)
    schema = TableSchema(table_id=table("users"), version=1, columns=columns, primary_key=("id",))
    rule = run({"tables": {"users": {}}}, text).source.rules[table("users")]
    assert [(one.name, one.column_type) for one in published(schema, (), rule).columns] == [
        ("id", "varchar(9)"), ("name", "varchar(9)"), ("mail", "varchar(255)"),
    ]  # fmt: skip
    keyed = replace(schema, primary_key=("mail",))
    with pytest.raises(TailorbirdError, match="mail is part of its key"):
        published(keyed, (), rule)


def test_columns_that_do_not_leave_are_in_no_schema_and_no_key() -> None:
    """Neither their names nor their values: a key of one that is hidden is refused by the capture."""
    columns = tuple(Column(name=name, column_type="varchar(9)", nullable=False) for name in USER)
    schema = TableSchema(table_id=table("users"), version=1, columns=columns, primary_key=("id",))
    rule = run({"tables": {"users": {}}}).source.rules[table("users")]
    assert [column.name for column in published(schema, (), rule).columns] == ["id", "name", "mail"]
    keyed = run({"tables": {"users": {"message_key_columns": ["phone"]}}}).source.rules[table("users")]
    with pytest.raises(TailorbirdError, match="phone is part of its key"):
        published(schema, (), keyed)


def test_tables_can_not_be_widened() -> None:
    """One that the policy does not name, a database that it does not name, all tables of a database whose tables it
    lists, a connection that is not there: the configuration is refused whole.
    """
    for reported, why in (
        ({"tables": {"orders": {}, "salaries": {}}}, r"table shop\.salaries may not leave shop-db"),
        ({"tables": {"mysql.user": {}}}, "database mysql may not leave shop-db"),
        ({"database": "mysql", "tables": {"shop.orders": {}}}, "database mysql may not leave shop-db"),
        ({"filter_policy": "accept"}, "not all tables of shop may leave"),
        ({"filter_policy": "accept", "tables": {"open.x": {"mask": {"a": "redact"}}}}, "not all tables of shop"),
        ({"tables": {"Orders": {}}}, r"table shop\.Orders may not leave"),
        ({"connection": "root-db", "tables": {"orders": {}}}, "has no connection root-db"),
    ):
        with pytest.raises(UsageError, match=why):
            run(reported)
    assert run({"database": "open", "filter_policy": "accept"}).source.captures(table("anything", "open"))
    assert not run({"tables": {"orders": {}}}).source.captures(table("salaries"))


def test_masks_can_not_be_widened() -> None:
    """A mask of the policy stays, another one of the gateway's does not replace it; it may mask more."""
    for said in ({}, {"mask": {"mail": "truncate(100)"}}, {"mask": {"mail": "sha256(known)"}}):
        left = row_of(run({"tables": {"users": said}}), "users", dict(USER))
        expected = row_of(run({"tables": {"users": {}}}), "users", dict(USER))["mail"]
        assert left["mail"] == expected
        assert str(left["mail"]) not in ("m@x", "")
    assert row_of(run({"tables": {"users": {"mask": {"name": "redact"}}}}), "users", dict(USER))["name"] == "***"


def test_dumps_can_not_be_widened() -> None:
    """Where tables may not be read, no configuration and no signal has one read; and were it tried, the reader itself
    refuses.
    """
    text = POLICY.replace("dumps: true", "dumps: false")
    effective = run({"tables": {"orders": {}}, "snapshot_mode": "initial", "position_lost": "resnapshot"}, text)
    source = effective.source
    assert (source.snapshot_mode, source.position_lost, source.dumps) == ("never", "fail", False)
    assert source.cascades == "ignore", "rows that foreign keys change would be read by their keys"
    assert "may not be dumped" in effective.restrictions[0]
    shut, local = policy(text), policy(text).connections["shop-db"]
    for kind in ("execute-snapshot", "mend-rows"):
        assert refused_signal(shut, local, source, kind, (table("orders"),)) == "tables may not be dumped"
    assert refused_signal(shut, local, source, "pause-snapshot", ()) == ""
    assert refused_signal(policy(), local, source, "execute-snapshot", (table("orders"),)) == ""
    with pytest.raises(Skippable, match="capture needs to read table"):
        MySqlChunks(source).request(chunk(""))
    # a gateway's checkpoint may name some
    with pytest.raises(Skippable, match=r"needs to read rows of table s\.shop\.users"):
        MySqlChunks(source).request(replace(chunk(""), keys=({"id": 1},)))


def chunk(where: str) -> ChunkRequest:
    schema = TableSchema(table_id=table("users"), version=1, columns=(), primary_key=("id",))
    position = Position(file="f", pos=4, gtid_set="", sequence=0)
    return ChunkRequest(number=1, schema=schema, position=position, after=None, last=None, where=where)


@pytest.mark.parametrize("key", sorted(LOCAL))
def test_an_alias_is_not_another_host(key: str) -> None:
    """The address, the user, the password, TLS: the policy's, and a configuration that names one is refused."""
    with pytest.raises(UsageError, match="cannot be set by the gateway"):
        run({"tables": {"orders": {}}, key: "evil"})
    source = run({"tables": {"orders": {}}}).source
    assert (source.hostname, source.port, source.username, source.password) == ("10.0.0.5", 3306, "cdc", "hidden")
    assert (source.type, source.ssl_mode, source.url) == ("mysql", "required", "")
    assert "hidden" not in repr(source)


def test_conditions_ask_for_nothing_that_may_not_leave() -> None:
    """Of a configuration, and of a signal: the answer would tell it row by row. Also where a checkpoint of the log's
    brings one back, the reader asks none that was not looked at.
    """
    for where, why in (
        ("phone = '555'", "must not use column phone"),
        ("PHONE = '555'", "must not use column PHONE"),
        ("mail LIKE 'a%'", "must not use column mail"),
        ("id IN (SELECT id FROM salaries)", "must not contain"),
    ):
        with pytest.raises(UsageError, match=why):
            run({"tables": {"users": {"where": where}}})
        with pytest.raises(UsageError, match=why):
            MySqlChunks(run({"tables": {"users": {}}}).source).request(chunk(where))
    assert run({"tables": {"users": {"where": "id>3 and name is not null"}}}).source.rules[table("users")].where == (
        "id > 3 AND NOT name IS NULL"
    )


def test_who_says_what_columns_are_called_could_unmask_them() -> None:
    """So that is refused of a table whose columns do not all leave as they are."""
    source, local = (
        run({"tables": {"users": {}, "orders": {"mask": {"a": "redact"}}}}).source,
        policy().connections["shop-db"],
    )
    for name in ("users", "orders"):
        assert "its schema must come from the server" in refused_signal(
            policy(), local, source, "schema-set", (table(name),)
        )
    plain = run({"tables": {"orders": {}}}).source
    assert refused_signal(policy(), local, plain, "schema-set", (table("orders"),)) == ""
    assert "may not leave" in refused_signal(policy(), local, source, "schema-set", (table("salaries"),))


def test_locks_are_the_owners_to_allow() -> None:
    """FLUSH TABLES WITH READ LOCK stops a server's writers."""
    reported = {"tables": {"orders": {}}, "snapshot_locking_mode": "minimal"}
    assert run(reported).source.snapshot_locking_mode == "none"
    assert run(reported, "locks: true" + POLICY).source.snapshot_locking_mode == "minimal"


def test_the_hash_reports_what_runs() -> None:
    """Two configurations of which the same is left have one; a narrower policy has another; passwords have no part."""
    one, same = run({"tables": {"users": {}}}), run({"tables": {"users": {"mask": {"mail": "sha256(pepper)"}}}})
    assert effective_hash(one.source) == effective_hash(same.source)
    narrower = run({"tables": {"users": {}}}, POLICY.replace("[id, name, mail]", "[id, mail]"))
    assert effective_hash(narrower.source) != effective_hash(one.source)
    assert effective_hash(replace(one.source, password="x", hostname="y")) == effective_hash(one.source)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("dumps: true", ""), "key dumps is missing"),
        (("dumps: true", "dumps: sometimes"), "one of true, false"),
        (("open: all", "open: some"), "one of all"),
        (("open: all", "open:"), "it has no value"),
        (("sha256(pepper)", "reveal"), "none of"),
        (("columns: [id", "colums: [id"), "unknown key colums"),
        (("[id, name", "[id, ID, name"), "column ID twice"),
        (("mask: {mail", "mask: {Mail: redact, mail"), "column mail twice"),
        (("${file:secret}", "${file:other}"), "no such file"),
        (("shop-db:", "Shop DB:"), "alias 'Shop DB'"),
        (("hostname: 10.0.0.5", ""), "expected hostname"),
    ],
)
def test_a_policy_is_read_strictly(change: tuple[str, str], why: str) -> None:
    """A word that is misspelt would let something leave."""
    with pytest.raises(TopologyError, match=why):
        policy(POLICY.replace(*change))


def test_more_databases_than_an_agent_can_report_of_are_refused() -> None:
    """It says in one message what it may tell of: one that is too long would end each of its streams."""

    def reported(databases: list[str]) -> list[MapPlace]:
        read = policy(POLICY.replace("open: all", "\n      ".join(f"{name}: all" for name in databases)))
        return [MapPlace(connection="shop-db", database=name) for name in read.connections["shop-db"].databases]

    long = [f"{'ü' * 55}{number:05}" for number in range(9_000)]
    places = reported(long[:5_500])
    assert len(places) == 5_501
    assert Ready(places=places).ByteSize() < MESSAGE - 100_000
    for databases in (long, [f"d{number}" for number in range(10_001)]):
        with pytest.raises(TopologyError, match="move some of them to another agent"):
            reported(databases)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("id = 1", "id = 1"),
        ("a IN (1, 'x') OR NOT b BETWEEN 1 AND 2", "a IN (1, 'x') OR NOT b BETWEEN 1 AND 2"),
        ("status LIKE 'a%' AND n <= -3", "status LIKE 'a%' AND n <= -3"),
        ("id = 1 /*! OR 1=1 */", "id = 1"),
        ("id = 1 -- x", "id = 1"),
        ("paid", "paid"),
    ],
)
def test_conditions_that_are_asked(text: str, asked: str) -> None:
    """Written anew from what was understood: a comment that a server would execute is not there any more."""
    assert condition(text, lambda column: True) == asked


@pytest.mark.parametrize(
    "text",
    [
        "", "id = 1; DROP TABLE t", "SLEEP(10)", "id = SLEEP(10)", "id = (SELECT 1)", "EXISTS (SELECT 1 FROM t)",
        "1 = 1) UNION SELECT 1 --", "other.t.id = 1", "mysql.user.x = 1", "id = @@version", "id = @x",
        "LOAD_FILE('/etc/passwd') IS NULL", "id = 1 INTO OUTFILE 'x'", "a = b COLLATE x", "CASE WHEN a THEN 1 END",
        "id = 0x41", "(" * 3000, "DELETE FROM t", "a REGEXP '(a+)+'", "x" * 20_000,
    ],
)  # fmt: skip
def test_conditions_that_are_refused(text: str) -> None:
    """Functions, other tables, variables, statements, and what only looks like a condition."""
    with pytest.raises(UsageError):
        condition(text, lambda column: True)
