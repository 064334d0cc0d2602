"""Allowed keys of a source's configuration, and keys that only the agent's policy may set."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.schema import TableId
from ingest.fleet.desired import LOCAL, DesiredSource, source_of, spec_of, table_named, with_tables
from ingest.fleet.reported import effective_hash
from ingest.fleet.state import FleetState, desired_record, folded

GOOD: dict[str, Any] = {
    "agents": ["paris"], "connection": "shop-db", "database": "shop",
    "tables": {"orders": {"ignored_columns": ["note"], "mask": {"mail": "redact"}}, "crm.users": {}},
}  # fmt: skip


def test_a_configuration_is_a_source_of_a_topology() -> None:
    """The same reader reads the same keys. A missing server_id is derived."""
    spec = spec_of(GOOD, "t", "shop")
    source = source_of(spec, "t", "shop")
    assert {(table.database, table.table) for table in source.tables} == {("shop", "orders"), ("crm", "users")}
    assert source.rules[TableId(source="shop", database="shop", table="orders")].masks == {"mail": "redact"}
    assert source.server_id == source_of(spec, "t", "shop").server_id != source_of(spec, "t", "crm").server_id
    state = folded(FleetState(), [desired_record(DesiredSource(source="shop", version=1, spec=spec), "g")])
    assert state.spec("shop") == spec


def test_the_type_of_a_source_chooses_its_keys() -> None:
    """A source of PostgreSQL has its own keys, and a schema by default. The type of others is not stored."""
    said = {**GOOD, "type": "postgresql", "replica_identity": "full", "tables": ["orders"]}
    del said["database"]
    spec = spec_of(said, "t", "shop")
    source = source_of(spec, "t", "shop")
    assert (spec.type, source.type, source.replica_identity) == ("postgresql", "postgresql", "full")
    assert [str(table) for table in source.tables] == ["shop.public.orders"]
    assert source.rules[source.tables[0]].exact_case
    assert spec_of(spec.to_json(), "t", "shop") == spec
    for kind in ("mysql", "mariadb"):
        assert spec_of({**GOOD, "type": kind}, "t", "shop") == spec_of(GOOD, "t", "shop")
    with pytest.raises(TailorbirdError, match="server_id"):
        spec_of({**said, "server_id": 7}, "t", "shop")
    with pytest.raises(TailorbirdError, match="replica_identity"):
        spec_of({**GOOD, "replica_identity": "full"}, "t", "shop")
    unknown: tuple[object, ...] = ("oracle", "", None, 5, [], {})
    for other in unknown:
        with pytest.raises(TailorbirdError, match="agents capture no source of type"):
            spec_of({**GOOD, "type": other}, "t", "shop")


def test_for_a_source_without_tables_only_the_catalog_is_read() -> None:
    """Its agent reports the catalog. A command adds tables later."""
    spec = spec_of({**GOOD, "tables": {}}, "t", "shop")
    assert (spec.captures, source_of(spec, "t", "shop").tables) == (False, ())
    more = with_tables(spec, {"orders": {}})
    assert (more.captures, len(source_of(more, "t", "shop").tables)) == (True, 1)
    assert effective_hash(source_of(more, "t", "shop"), b"k") != effective_hash(source_of(spec, "t", "shop"), b"k")


DEEP: Any = "t"
for _ in range(240):
    DEEP = [DEEP]


@pytest.mark.parametrize("key", sorted(LOCAL))
def test_keys_of_the_policy_are_refused(key: str) -> None:
    """Host, user and password of a server, and names of its slots, never come from the gateway."""
    with pytest.raises(TailorbirdError, match=f"{key} cannot be set by the gateway"):
        spec_of({**GOOD, key: "evil.example.org"}, "t", "shop")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"database": "${file:/etc/passwd}"}, "has a variable"),
        ({"database": "${HOME:-x}"}, "has a variable"),
        ({"tables": {"orders": {"where": "${file:/etc/shadow}"}}}, "has a variable"),
        ({"agents": []}, "no agents"),
        ({"agents": ["../x"]}, "is not a valid"),
        ({"agents": [1]}, "no agents"),
        ({"connection": "Shop DB"}, "no connection"),
        ({"connection": None}, "no connection"),
        ({"running": "yes"}, "running is 'yes'"),
        ({"speed": 1}, "unknown key speed"),
        ({"tables": {"orders": {"mask": {"a": "reveal"}}}}, "none of sha256"),
        ({"tables": {"a\u0000b": {}}}, "(not YAML|control character)"),
        ({"tables": {"x" * 300: {}}}, "64 characters"),
        ({"tables": {"../etc": {}}}, "database.table"),
        ({"capture": "poll"}, "agents cannot poll"),
        ({"agent": {"names": ["a1"], "connection": "db"}}, "agent is a key of topologies"),
        ({"server_id": 2**70}, "64-bit"),
        ({"tables": {"\ud800": {}}}, "(UTF-8|surrogates)"),
        ({"tables": DEEP}, "(nested too deeply|expected a text)"),
        ({"database": DEEP}, "(nested too deeply|expected a text)"),
        ({"tables": 5}, "expected a"),
        ({"tables": [["orders"]]}, "expected a"),
        ({"database": {"a": 1}}, "expected a text"),
        ({"tables": {"orders": {"where": "x" * 600_000}}}, "or more than"),
    ],
)
def test_bad_configurations_are_refused(change: dict[str, Any], why: str) -> None:
    """The error names the broken rule."""
    with pytest.raises(TailorbirdError, match=why):
        spec_of({**GOOD, **change}, "t", "shop")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\0", "x" * 300, "Shop", "sh\u043ep"])
def test_names_of_sources(name: str) -> None:
    """They are parts of topic names."""
    with pytest.raises(TailorbirdError, match="is not a valid source name"):
        spec_of(GOOD, "t", name)
    with pytest.raises(TailorbirdError, match="not a configuration"):
        spec_of([1], "t", "shop")


def test_tables_are_named_by_one_part_or_two() -> None:
    """Names have the same form as in a topology."""
    source = source_of(spec_of(GOOD, "t", "shop"), "t", "shop")
    assert str(table_named(source, "orders")) == "shop.shop.orders"
    assert str(table_named(source, "crm.users")) == "shop.crm.users"
    with pytest.raises(TailorbirdError, match="is not a table name"):
        table_named(source, "crm.")


@pytest.mark.parametrize("topology", ["", "Shop", "sh'op", "shop; DROP TABLE x", "x" * 64])
def test_a_topology_has_a_name_that_is_safe_on_every_server(topology: str) -> None:
    """Names of slots and publications begin with it, and an assignment of a gateway chooses it."""
    with pytest.raises(UsageError, match="is not the name of a topology"):
        source_of(spec_of(GOOD, "t", "shop"), topology, "shop")
