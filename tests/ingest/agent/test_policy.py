"""The agent's policy takes precedence: no configuration of a gateway makes more data leave the host."""

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
from ingest.agent.policy import NarrowedSource, narrowed, refused_signal
from ingest.agent.policy_reader import read_policy
from ingest.events.published import published
from ingest.fleet.desired import LOCAL, source_of, spec_of
from ingest.fleet.fleet_pb2 import MapPlace, Ready
from ingest.fleet.reported import effective_hash
from ingest.fleet.wire import MESSAGE
from ingest.mysql.mysql_snapshot import MySqlChunks
from ingest.records.chunk_requests import ChunkRequest
from ingest.records.conditions import condition

KEY = b"of this agent"
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


def run(reported: Mapping[str, Any], text: str = POLICY) -> NarrowedSource:
    """Return the effective configuration of a gateway's configuration."""
    base = {"agents": ["a1"], "connection": "shop-db", "database": "shop"}
    spec = spec_of({**base, **reported}, "t", "s")
    return narrowed(policy(text), spec, source_of(spec, "t", "s"), condition)


def table(name: str, database: str = "shop") -> TableId:
    return TableId(source="s", database=database, table=name)


def row_of(effective: NarrowedSource, name: str, row: dict[str, object]) -> dict[str, object]:
    """Return a row of a table as it is published."""
    shape = shape_of(effective.source.rules[table(name)])
    if shape is not None:
        shape(row)
    return row


USER: dict[str, object] = {"id": 1, "name": "n", "mail": "m@x", "phone": "555"}


def test_columns_can_not_be_widened() -> None:
    """Only listed columns leave, whatever the configuration contains. A column that is added later does not leave."""
    every: list[dict[str, Any]] = [{}, {"ignored_columns": []}, {"mask": {}}, {"message_key_columns": ["phone"]}]
    for said in every:
        effective = run({"tables": {"users": said, "cards": said}})
        left = row_of(effective, "users", {**USER, "added_later": 1})
        assert set(left) == {"id", "name", "mail"}
        assert row_of(effective, "cards", {"id": 1, "number": "4711"}) == {"id": 1}
        assert effective.restrictions
    assert set(row_of(run({"tables": {"users": {"ignored_columns": ["name"]}}}), "users", dict(USER))) == {"id", "mail"}


def test_column_names_are_case_insensitive() -> None:
    """MySQL's column names are case-insensitive.

    A column whose name has another case on the server is hidden and masked, too. A gateway's mask with such a name does
    not replace the policy's mask.
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
        assert row_of(effective, "users", {"id": 1, "maİl": "m@x"}) == {"id": 1, "maİl": expected}
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
    """Neither names nor values of hidden columns leave. The capture refuses a key with a hidden column."""
    columns = tuple(Column(name=name, column_type="varchar(9)", nullable=False) for name in USER)
    schema = TableSchema(table_id=table("users"), version=1, columns=columns, primary_key=("id",))
    rule = run({"tables": {"users": {}}}).source.rules[table("users")]
    assert [column.name for column in published(schema, (), rule).columns] == ["id", "name", "mail"]
    keyed = run({"tables": {"users": {"message_key_columns": ["phone"]}}}).source.rules[table("users")]
    with pytest.raises(TailorbirdError, match="phone is part of its key"):
        published(schema, (), keyed)


def test_tables_can_not_be_widened() -> None:
    """A configuration is refused as a whole if it names more than the policy.

    Cases: an unlisted table or database, all tables of a database with listed tables, an unknown connection.
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
    """A gateway's mask does not replace the policy's. A gateway may mask further columns."""
    for said in ({}, {"mask": {"mail": "truncate(100)"}}, {"mask": {"mail": "sha256(known)"}}):
        left = row_of(run({"tables": {"users": said}}), "users", dict(USER))
        expected = row_of(run({"tables": {"users": {}}}), "users", dict(USER))["mail"]
        assert left["mail"] == expected
        assert str(left["mail"]) not in ("m@x", "")
    assert row_of(run({"tables": {"users": {"mask": {"name": "redact"}}}}), "users", dict(USER))["name"] == "***"


def test_dumps_can_not_be_widened() -> None:
    """If tables must not be read, no configuration and no signal reads one. The reader itself refuses, too."""
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
    # a gateway's checkpoint may contain some
    with pytest.raises(Skippable, match=r"needs to read rows of table s\.shop\.users"):
        MySqlChunks(source).request(replace(chunk(""), keys=({"id": 1},)))


def chunk(where: str) -> ChunkRequest:
    schema = TableSchema(table_id=table("users"), version=1, columns=(), primary_key=("id",))
    position = Position(file="f", pos=4, gtid_set="", sequence=0)
    return ChunkRequest(number=1, schema=schema, position=position, after=None, last=None, where=where)


@pytest.mark.parametrize("key", sorted(LOCAL))
def test_an_alias_is_not_another_host(key: str) -> None:
    """Address, user, password and TLS come from the policy. A configuration with one of them is refused."""
    with pytest.raises(UsageError, match="cannot be set by the gateway"):
        run({"tables": {"orders": {}}, key: "evil"})
    source = run({"tables": {"orders": {}}}).source
    assert (source.hostname, source.port, source.username, source.password) == ("10.0.0.5", 3306, "cdc", "hidden")
    assert (source.type, source.tls.mode, source.url) == ("mysql", "required", "")
    assert "hidden" not in repr(source)


@pytest.mark.parametrize(
    "replica",
    [
        {"hostname": "evil.example.org"},
        {"hostname": "10.0.0.6", "port": 3306, "ssl_mode": "disabled"},
        {},
        None,
        "evil",
    ],
)
def test_a_gateway_names_no_replica(replica: Any) -> None:
    """The agent logs in at the replica and reads tables from it, so its address is the policy's, or there is none."""
    with pytest.raises(UsageError, match="snapshot cannot be set by the gateway"):
        run({"tables": {"orders": {}}, "snapshot": replica})
    own = "    snapshot: {hostname: 10.0.0.7, ssl_mode: required}\n    databases:"
    for text, address in ((POLICY, None), (POLICY.replace("    databases:", own), "10.0.0.7")):
        spec = spec_of({"agents": ["a1"], "connection": "shop-db", "database": "shop", "tables": ["orders"]}, "t", "s")
        forged = replace(spec, keys={**spec.keys, "snapshot": {"hostname": "evil.example.org"}})
        found = narrowed(policy(text), forged, source_of(forged, "t", "s"), condition).source.snapshot
        assert (found and found.hostname) == address


def test_conditions_use_no_column_that_must_not_leave() -> None:
    """Conditions of configurations and signals are checked, because their results would reveal hidden values.

    The reader also checks a condition that comes from a checkpoint.
    """
    for where, why in (
        ("phone = '555'", "must not use column phone"),
        ("PHONE = '555'", "must not use column PHONE"),
        ("maİl LIKE 'a%'", "must not use column maİl"),
        ("mail LIKE 'a%'", "must not use column mail"),
        ("id IN (SELECT id FROM salaries)", "must not contain"),
    ):
        with pytest.raises(UsageError, match=why):
            run({"tables": {"users": {"where": where}}})
        with pytest.raises(Skippable, match=why):
            MySqlChunks(run({"tables": {"users": {}}}).source).request(chunk(where))
    assert run({"tables": {"users": {"where": "id>3 and name is not null"}}}).source.rules[table("users")].where == (
        "id > 3 AND NOT name IS NULL"
    )


def test_a_schema_set_by_hand_could_unmask_columns() -> None:
    """So it is refused for a table with hidden or masked columns."""
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


def test_locks_must_be_allowed_by_the_policy() -> None:
    """FLUSH TABLES WITH READ LOCK blocks a server's writers."""
    reported = {"tables": {"orders": {}}, "snapshot_locking_mode": "minimal"}
    assert run(reported).source.snapshot_locking_mode == "none"
    assert run(reported, "locks: true" + POLICY).source.snapshot_locking_mode == "minimal"


def test_the_hash_reports_what_runs() -> None:
    """Equal effective configurations have one hash; a narrower policy has another. Passwords are not part of it.

    Without the key, guessed peppers cannot be tested: another key gives another hash.
    """
    one, same = run({"tables": {"users": {}}}), run({"tables": {"users": {"mask": {"mail": "sha256(pepper)"}}}})
    assert effective_hash(one.source, KEY) == effective_hash(same.source, KEY) != effective_hash(one.source, b"guess")
    narrower = run({"tables": {"users": {}}}, POLICY.replace("[id, name, mail]", "[id, mail]"))
    assert effective_hash(narrower.source, KEY) != effective_hash(one.source, KEY)
    assert effective_hash(replace(one.source, password="x", hostname="y"), KEY) == effective_hash(one.source, KEY)


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
    """A misspelt key could let data leave."""
    with pytest.raises(TopologyError, match=why):
        policy(POLICY.replace(*change))


def test_more_databases_than_an_agent_can_report_are_refused() -> None:
    """The agent sends the names of its databases in one message. If it were too long, each stream would end."""

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
        ("id = x'00ff'", "id = x'00ff'"),
    ],
)
def test_conditions_that_are_allowed(text: str, asked: str) -> None:
    """The condition is generated from the parsed tree. An executable comment is removed."""
    assert condition(text, lambda column: True) == asked


@pytest.mark.parametrize(
    "text",
    [
        "", "id = 1; DROP TABLE t", "SLEEP(10)", "id = SLEEP(10)", "id = (SELECT 1)", "EXISTS (SELECT 1 FROM t)",
        "1 = 1) UNION SELECT 1 --", "other.t.id = 1", "mysql.user.x = 1", "id = @@version", "id = @x",
        "LOAD_FILE('/etc/passwd') IS NULL", "id = 1 INTO OUTFILE 'x'", "a = b COLLATE x", "CASE WHEN a THEN 1 END",
        "(" * 3000, "DELETE FROM t", "a REGEXP '(a+)+'", "x" * 20_000,
    ],
)  # fmt: skip
def test_conditions_that_are_refused(text: str) -> None:
    """Functions, other tables, variables, statements, and invalid conditions are refused."""
    with pytest.raises(UsageError):
        condition(text, lambda column: True)
