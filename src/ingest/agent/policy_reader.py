"""Read an agent's policy file, as strictly as a topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import get_args

import yaml

from cdc.model.brokers import Brokers
from cdc.model.filters import mask
from cdc.model.identifiers import fold_identifier
from cdc.model.tls import TLS_IF_OFFERED
from cdc.topology.reader_poll import read_url
from cdc.topology.reader_servers import read_security
from cdc.topology.reader_syslog import read_syslog
from cdc.topology.reader_tls import read_replica, read_tls
from cdc.topology.topology import SourceType, TopicForm
from cdc.topology.values import Section, Value, YamlFile
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
from ingest.fleet.desired import ALIAS, TYPES
from ingest.fleet.message_checks import PLACES

_IDS = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
_PORTS: Mapping[str, int] = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432, "maxscale": 4001}
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
    top = Value(node, "", reader).section()
    nothing: Mapping[str, str] = {}
    policy = Policy(
        dumps=top.take("dumps", _yes),
        locks=top.take("locks", _yes, False),
        labels=top.take("labels", lambda v: {name: label.text() for name, label in v.pairs().items()}, nothing),
        limits=top.take("limits", _limits, AgentLimits()),
        connections=top.take("connections", _connections),
    )
    top.end()
    reported = [(alias, name) for alias, local in policy.connections.items() for name in local.databases]
    size = sum(len(alias) + len(name.encode()) + _AROUND for alias, name in reported)
    if size > _REPORTED or len(reported) > PLACES:  # an agent sends the names of its databases in one message
        most = f"use at most {PLACES}, with {_REPORTED} bytes of names: move some of them to another agent"
        reader.fail(1, "connections", f"{len(reported)} databases with {size} bytes of names", most)
    return policy


def _yes(value: Value) -> bool:
    return bool(value.one_of("true", "false") == "true")


def _limits(value: Value) -> AgentLimits:
    section, default = value.section(), AgentLimits()

    def count(name: str, highest: int) -> int:
        return int(section.take(name, lambda v: v.number(1, highest), getattr(default, name)))

    limits = AgentLimits(
        sources=count("sources", 10_000),
        slots=count("slots", 10_000),
        poll_interval_ms=count("poll_interval_ms", 86_400_000),
        poll_lag_ms=count("poll_lag_ms", 86_400_000),
        poll_rows=count("poll_rows", 100_000),
        snapshot_threads=count("snapshot_threads", 64),
        server_ids=section.take("server_ids", _server_ids, default.server_ids),
        answer_bytes=count("answer_bytes", 2**40),
        receive_rate=count("receive_rate", 2**40),
        assignments_per_minute=count("assignments_per_minute", 1_000_000),
        signals_per_minute=count("signals_per_minute", 1_000_000),
    )
    section.end()
    return limits


def _server_ids(value: Value) -> tuple[int, int]:
    found = _IDS.fullmatch(value.text())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last < 2**32:
        value.fail(repr(value.text()), "a number from 1 to 4294967295, or the first and the last one: 5000-5099")
    return first, last


def _connections(value: Value) -> Mapping[str, LocalConnection]:
    found = {}
    for alias, fields in value.pairs().items():
        if not ALIAS.fullmatch(alias):
            fields.fail(f"alias {alias!r}", "a lower-case letter, then a-z, 0-9, - and _ (at most 63)")
        section = fields.section()
        found[alias] = _connection(alias, section)
        section.end()
    return found or value.fail("it is empty", "at least one connection")


def _connection(alias: str, s: Section) -> LocalConnection:
    kind: SourceType = s.take("type", lambda v: v.one_of(*TYPES), "mysql")
    if kind not in _PORTS:
        topics: dict[tuple[str, str], str] = {}
        databases = s.take("databases", partial(_databases, kind=kind, topics=topics))
        return LocalConnection(
            alias=alias, type=kind, hostname="", port=0, username="", password="", tls=TLS_IF_OFFERED,
            databases=databases, endpoint=_endpoint(s, kind, topics),
        )  # fmt: skip
    hostname = s.take("hostname", Value.text)
    return LocalConnection(
        alias=alias,
        type=kind,
        dbname=s.take("dbname", Value.text) if kind == "postgresql" else "",
        hostname=hostname,
        port=s.take("port", lambda v: v.number(1, 65535), _PORTS[kind]),
        username=s.take("username", Value.text),
        password=s.take("password", Value.text),
        tls=read_tls(s, hostname),
        snapshot=read_replica(s, _PORTS[kind], supported=kind == "mysql"),
        databases=s.take("databases", partial(_databases, kind=kind, topics={})),
    )


def _endpoint(s: Section, kind: SourceType, topics: Mapping[tuple[str, str], str]) -> Endpoint:
    """Read the address of a connection that has no login of its own."""
    if kind == "sql":
        return Endpoint(url=s.take("url", read_url))
    if kind == "syslog":
        return Endpoint(listen=read_syslog(s)["listen"])
    brokers = Brokers(s.take("bootstrap_servers", Value.text), s.take("security", read_security, None))
    form: TopicForm = s.take("format", lambda v: v.one_of(*get_args(TopicForm)))
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
        section = content.section()
        own = partial(_topic, topics=topics, database=name) if kind == "kafka" else _no_options
        if kind not in _LOGS and "filter_policy" in section.pairs:
            section.pairs["filter_policy"].fail("filter_policy of a source without a catalog", "list its tables")
        found[name] = _database(section, own)
        section.end()
    return found or value.fail("it is empty", "at least one database")


def _no_options(table: str, s: Section) -> None:
    """Read no further options of a table."""


def _topic(table: str, s: Section, *, topics: dict[tuple[str, str], str], database: str) -> None:
    topics[database, table] = s.take("topic", Value.text)


def _database(s: Section, own: Callable[[str, Section], None]) -> DatabasePolicy:
    """Read `filter_policy`, the columns that are hidden in every table, and the exceptions of tables."""
    accept = s.take("filter_policy", lambda v: v.one_of("accept", "drop"), "drop") == "accept"
    every = TablePolicy(
        ignored=s.take("ignored_columns", _columns, ()), masks=s.take("mask", _masks, {})
    )  # fmt: skip
    nothing: Mapping[str, TablePolicy | None] = {}
    read: Callable[[Value], Mapping[str, TablePolicy | None]] = partial(_tables, every=every, accept=accept, own=own)
    tables = s.take("tables", read, nothing) if accept else s.take("tables", read)
    return DatabasePolicy(tables=tables, default=every if accept else None)


def _tables(
    value: Value, *, every: TablePolicy, accept: bool, own: Callable[[str, Section], None]
) -> Mapping[str, TablePolicy | None]:
    """Read the policies of listed tables. With `accept`, a table without options must not leave the host. `own` reads
    the options that only this kind of connection has."""
    found: dict[str, TablePolicy | None] = {}
    for name, content in value.pairs().items():
        if accept and content.node.tag == _NULL:
            found[name] = None
            continue
        section = content.section()
        only: tuple[str, ...] | None = None
        own(name, section)
        listed = TablePolicy(
            columns=section.take("columns", _columns, only),
            ignored=section.take("ignored_columns", _columns, ()),
            masks=section.take("mask", _masks, {}),
        )
        kept = not accept or listed != WHOLE_TABLE or "ignored_columns" in section.pairs
        found[name] = listed.with_every(every) if kept else None
        section.end()
    return found


def _columns(value: Value) -> tuple[str, ...]:
    names = value.texts()
    _each_once(value, names)
    return names


def _each_once(value: Value, names: Iterable[str]) -> None:
    """Fail if a column is named twice, in any case: a mask for `Mail` is one for `mail` on every server."""
    seen = set[str]()
    for name in names:
        if fold_identifier(name) in seen:
            value.fail(f"column {name} twice", "name each column once, in any case")
        seen.add(fold_identifier(name))


def _masks(value: Value) -> Mapping[str, str]:
    _each_once(value, value.pairs())
    for text in value.pairs().values():
        try:
            mask(text.text())
        except ValueError as error:
            text.fail(str(error), "sha256(salt), truncate(n) or redact")
    return {column: text.text() for column, text in value.pairs().items()}
