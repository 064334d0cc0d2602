"""Read an agent's policy file, as strictly as a topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import yaml

from cdc.grammar.keys import Keys, Section
from cdc.grammar.values import Value, YamlFile
from cdc.model.brokers import Brokers
from cdc.model.tls import TLS_IF_OFFERED
from cdc.topology.reader_rules import MASK
from cdc.topology.reader_servers import read_security
from cdc.topology.reader_streams import read_syslog
from cdc.topology.reader_tls import read_replica, read_tls
from cdc.topology.topology import SourceType, TopicForm
from ingest.agent.kinds import Endpoint, Topics
from ingest.agent.policy import (
    WHOLE_DATABASE,
    WHOLE_TABLE,
    AgentLimits,
    DatabasePolicy,
    LocalConnection,
    Policy,
    TablePolicy,
)
from ingest.agent.policy_keys import CONNECTION, DATABASE, LIMITS, LISTED, POLICY, PORTS, TOPIC, TOPICS, each_once
from ingest.fleet.desired import ALIAS
from ingest.fleet.message_checks import PLACES

_LOGS = ("mysql", "mariadb", "postgresql")  # databases whose log contains every table
_NULL = "tag:yaml.org,2002:null"
_REPORTED, _AROUND = 768 * 1024, 10  # bytes: an agent sends all database names in one message of at most 1 MiB


def read_policy(text: str, *, file: str, environ: Mapping[str, str], content: Callable[[str], str]) -> Policy:
    """Parse a policy file's text. Raises TopologyError (exit 2) for the first mistake.

    `file` is used in messages. `environ` supplies `${NAME}`. `content(path)` returns the text for `${file:path}`, or
    raises OSError.
    """
    reader = YamlFile(file, environ, content)
    node = reader.composed(text, "YAML as in docs/fleet.md")
    if node is None:
        reader.fail(1, "(top)", "the file is empty", "dumps, connections")
    top = Section(Value(node, "", reader), POLICY)
    policy = Policy(
        dumps=top.take("dumps"),
        locks=top.take("locks"),
        labels=top.take("labels", {}),
        limits=top.take("limits", AgentLimits(), read=_limits),
        connections=top.take("connections", read=_connections),
    )
    top.end()
    reported = [(alias, name) for alias, local in policy.connections.items() for name in local.databases]
    size = sum(len(alias) + len(name.encode()) + _AROUND for alias, name in reported)
    if size > _REPORTED or len(reported) > PLACES:  # an agent sends the names of its databases in one message
        most = f"use at most {PLACES}, with {_REPORTED} bytes of names: move some of them to another agent"
        reader.fail(1, "connections", f"{len(reported)} databases with {size} bytes of names", most)
    return policy


def _limits(value: Value) -> AgentLimits:
    section = Section(value, LIMITS)
    limits = AgentLimits(**{name: section.take(name) for name in LIMITS})
    section.end()
    return limits


def _connections(value: Value) -> Mapping[str, LocalConnection]:
    found = {}
    for alias, fields in value.pairs().items():
        if not ALIAS.fullmatch(alias):
            fields.fail(f"alias {alias!r}", "a lower-case letter, then a-z, 0-9, - and _ (at most 63)")
        section = Section(fields, CONNECTION)
        found[alias] = _connection(alias, section)
        section.end()
    return found or value.fail("it is empty", "at least one connection")


def _connection(alias: str, s: Section) -> LocalConnection:
    kind: SourceType = s.take("type")
    if kind not in PORTS:
        topics: dict[tuple[str, str], str] = {}
        databases = s.take("databases", read=partial(_databases, kind=kind, topics=topics))
        return LocalConnection(
            alias=alias, type=kind, hostname="", port=0, username="", password="", tls=TLS_IF_OFFERED,
            databases=databases, endpoint=_endpoint(s, kind, topics),
        )  # fmt: skip
    hostname = s.take("hostname")
    return LocalConnection(
        alias=alias,
        type=kind,
        dbname=s.take("dbname", ""),
        hostname=hostname,
        port=s.take("port", PORTS[kind]),
        username=s.take("username"),
        password=s.take("password"),
        tls=read_tls(s, hostname),
        snapshot=read_replica(s, PORTS[kind], supported=kind == "mysql"),
        databases=s.take("databases", read=partial(_databases, kind=kind, topics={})),
    )


def _endpoint(s: Section, kind: SourceType, topics: Mapping[tuple[str, str], str]) -> Endpoint:
    """Read the address of a connection that has no login of its own."""
    if kind == "sql":
        return Endpoint(url=s.take("url"))
    if kind == "syslog":
        return Endpoint(listen=read_syslog(s)["listen"])
    brokers = Brokers(s.take("bootstrap_servers"), s.take("security", read=read_security))
    form: TopicForm = s.take("format")
    found = Topics(brokers=brokers, form=form, names=topics)
    if form == "upsert" and found.shared:
        what = f"topic {min(found.shared)} of several tables: records of format upsert name no table"
        s.pairs["databases"].fail(what, "a topic of its own for each table")
    return Endpoint(topics=found)


def _databases(value: Value, *, kind: SourceType, topics: dict[tuple[str, str], str]) -> Mapping[str, DatabasePolicy]:
    """Read the policies of databases by name. The topics of Kafka's tables are added to `topics`."""
    found: dict[str, DatabasePolicy] = {}
    for name, content in value.pairs().items():
        if content.node.tag == _NULL:
            content.fail("it has no value", "`all`, or `{filter_policy: accept}`, or `{tables: {…}}`")
        if isinstance(content.node, yaml.ScalarNode) and kind != "kafka":
            content.one_of("all")
            found[name] = WHOLE_DATABASE
            continue
        section = Section(content, TOPICS if kind == "kafka" else DATABASE)
        keys = TOPIC if kind == "kafka" else LISTED
        own = partial(_topic, topics=topics, database=name) if kind == "kafka" else _no_options
        if kind not in _LOGS and "filter_policy" in section.pairs:
            section.pairs["filter_policy"].fail("filter_policy of a source without a catalog", "list its tables")
        found[name] = _database(section, keys, own)
        section.end()
    return found or value.fail("it is empty", "at least one database")


def _no_options(table: str, s: Section) -> None:
    """Read no further options of a table."""


def _topic(table: str, s: Section, *, topics: dict[tuple[str, str], str], database: str) -> None:
    topics[database, table] = s.take("topic")


def _database(s: Section, keys: Keys, own: Callable[[str, Section], None]) -> DatabasePolicy:
    """Read `filter_policy`, the columns that are hidden in every table, and the exceptions of tables."""
    accept = s.take("filter_policy") == "accept"
    every = TablePolicy(
        ignored=s.take("ignored_columns", ()), masks=s.take("mask", {}, read=_masks)
    )  # fmt: skip
    nothing: Mapping[str, TablePolicy | None] = {}
    read: Callable[[Value], Mapping[str, TablePolicy | None]] = partial(
        _tables, keys=keys, every=every, accept=accept, own=own
    )
    tables = s.take("tables", nothing, read=read)
    return DatabasePolicy(tables=tables, default=every if accept else None)


def _tables(
    value: Value, *, keys: Keys, every: TablePolicy, accept: bool, own: Callable[[str, Section], None]
) -> Mapping[str, TablePolicy | None]:
    """Read the policies of listed tables. With `accept`, a table without options must not leave the host. `own` reads
    the options that only this kind of connection has."""
    found: dict[str, TablePolicy | None] = {}
    for name, content in value.pairs().items():
        if accept and content.node.tag == _NULL:
            found[name] = None
            continue
        section = Section(content, keys)
        own(name, section)
        listed = TablePolicy(
            columns=section.take("columns"),
            ignored=section.take("ignored_columns", ()),
            masks=section.take("mask", {}, read=_masks),
        )
        kept = not accept or listed != WHOLE_TABLE or "ignored_columns" in section.pairs
        found[name] = listed.with_every(every) if kept else None
        section.end()
    return found


def _masks(value: Value) -> Mapping[str, str]:
    each_once(value, value.pairs())
    return {column: MASK.read(text) for column, text in value.pairs().items()}
