"""Merged tables: which tables a pattern means, their common topic, and what a topology may declare."""

from __future__ import annotations

import random

import pytest

from cdc.model.errors import TopologyError
from cdc.model.naming import change_topic, database_named, table_named
from cdc.model.patterns import MergedTable, expression_of, overlap
from cdc.model.schema import TableId
from cdc.topology.reader import read_source, read_topology
from cdc.topology.topology import Topology

TEXT = """
name: shop
log: {{topics: {topics}}}
sources:
  app: {{type: mysql, hostname: h, username: u, password: p, server_id: 5, database: main, tables: {tables}{more}}}
"""


def topology(tables: str = "[plans, 'tenant_*.orders']", topics: str = "per_table", more: str = "") -> Topology:
    return read_topology(TEXT.format(topics=topics, tables=tables, more=more), file="t.yml", environ={})


def table(database: str, name: str = "orders") -> TableId:
    return TableId(source="app", database=database, table=name)


@pytest.mark.parametrize("topics", ["per_table", "per_database", "per_source"])
def test_tables_of_a_pattern_share_a_topic(topics: str) -> None:
    """Each has its name in the keys, whatever its database is called, and other tables are where they were."""
    made = topology(topics=topics)
    merged, routing = made.sources["app"].merged[0].table_id, made.routing
    for database in ("tenant_1", "tenant_", "tenant_a.b", "tenant_é日本", "tenant_-x0061-"):
        name = change_topic("shop", table(database))
        assert made.sources["app"].captures(table(database))
        assert routing.topic(name) == routing.topic_of(merged) == change_topic("shop", merged)
        key = routing.stored_key(name, b'{"id":1}')
        assert (table_named(key), database_named(key)) == (name, database)
        assert routing.own_key(name, key) == b'{"id":1}'
    for other in (table("main"), table("tenant_1", "lines"), table("xtenant_1")):
        assert not made.sources["app"].captures(other)
        assert routing.topic_of(other) != routing.topic_of(merged)
    assert not made.sources["app"].captures(merged), "it is no table of the server"
    assert made.table_id(("app", "tenant_*", "orders")) == merged


def test_options_of_a_pattern_are_those_of_its_tables() -> None:
    """A mask applies to every tenant."""
    made = topology("{plans: , '*.orders': {mask: {mail: redact}, database_column: tenant}}").sources["app"]
    assert made.merged == (MergedTable(table_id=table("*"), column="tenant"),)
    rule = made.rule_of(table("any"))
    assert rule is not None
    assert rule.mask_of("mail") == "redact"
    assert not any(made.captures(table(name)) for name in ("mysql", "sys", "information_schema"))


@pytest.mark.parametrize(
    ("tables", "more", "why"),
    [
        ("['a*.t', '*b.t']", "", "match the same names"),
        ("['a*.t', a1.t]", "", "matches the listed table"),
        ("{'a*.t': }", ", filter_policy: accept", "with filter_policy: accept"),
        ("['a*.t']", ", agent: {name: x}", "that agents capture"),
        ("['a*.t']", ", capture: poll, mode: feed", "in a polled source"),
        ("['a*.t']", ", snapshot: {hostname: r}", "with a snapshot replica"),
        ("{a.t: {database_column: x}}", "", "database_column of a.t"),
    ],
)
def test_patterns_that_no_capture_reads_are_refused(tables: str, more: str, why: str) -> None:
    """The message names the pattern and the reason."""
    text = TEXT.format(topics="per_table", tables=tables, more=more)
    if "poll" in more:
        text = text.replace("server_id: 5, ", "")
    with pytest.raises(TopologyError, match=why):
        read_topology(text, file="t.yml", environ={})


def test_a_source_of_a_fleet_has_no_patterns() -> None:
    """Sources that are sent to agents are read without the topology's file."""
    text = "{type: mysql, hostname: h, username: u, password: p, server_id: 5, database: d, tables: ['*.t']}"
    with pytest.raises(TopologyError, match="that agents capture"):
        read_source(text, name="s", file="s.yml")


def test_overlap_is_decided() -> None:
    """Two patterns overlap if one of all short names matches both."""
    chance = random.Random(1)
    names = [""]
    for _ in range(5):
        names += [name + letter for name in names for letter in "ab"]
    for _ in range(300):
        one, other = ("".join(chance.choices("ab*?", k=chance.randint(1, 4))) for _ in "12")
        both = any(expression_of(one).fullmatch(name) and expression_of(other).fullmatch(name) for name in names)
        assert overlap(one, other) == both, (one, other)
