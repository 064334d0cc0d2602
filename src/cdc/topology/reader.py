"""Read a topology file strictly: an unknown key, a wrong type, a missing variable or a dangling name is an error.

Every error is a TopologyError with file, line and path. YAML is composed, not loaded, so that each value keeps its
line, duplicate keys are detected, and YAML 1.1's traps (`no`, `1:30`) stay the text that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from errno import ENOENT
from functools import partial
from typing import Any

import yaml

from cdc.grammar.keys import Keys, Section, empty_mapping, named
from cdc.grammar.values import NAME, Value, YamlFile
from cdc.model.escapes import table_parts
from cdc.model.filters import FilterPolicy, TableRule
from cdc.model.patterns import is_pattern
from cdc.model.schema import TableId
from cdc.stored.foreign import ForeignTable
from cdc.topology.copies import copies_of, copy_query
from cdc.topology.hooks.reader_webhooks import WEBHOOK, read_webhook
from cdc.topology.reader_agent import read_agent
from cdc.topology.reader_checks import CHECK, check_checks, read_check
from cdc.topology.reader_foreign import FOREIGN, foreign_table
from cdc.topology.reader_names import check_names
from cdc.topology.reader_panels import DASHBOARD, read_dashboard
from cdc.topology.reader_poll import check_capture, read_poll, refuse_filters
from cdc.topology.reader_postgres import check_slots, read_postgres
from cdc.topology.reader_rules import RULE, TOPIC_RULE, read_merged, read_rule
from cdc.topology.reader_servers import (
    read_hbase,
    read_iceberg,
    read_joins,
    read_log,
    read_opensearch,
    read_postgres_server,
    read_solr,
)
from cdc.topology.reader_streams import MirrorReader, check_keys, check_mirrors, messages_alone, read_syslog
from cdc.topology.reader_tls import read_replica, read_tls
from cdc.topology.source_keys import SOURCE
from cdc.topology.topology import Check, Dashboard, Delivery, Index, Source, Table, Topology
from cdc.topology.topology_keys import COPY, INDEX, TABLE, TOPOLOGY

_DELIVERIES: tuple[Delivery, Delivery] = ("exactly_once", "at_least_once")


def _no_file(path: str) -> str:
    raise FileNotFoundError(ENOENT, "files are not read here", path)


def read_topology(
    text: str, *, file: str, environ: Mapping[str, str], content: Callable[[str], str] = _no_file
) -> Topology:
    """Return the topology that `text` declares. Raises TopologyError (exit 2) for the first mistake.

    `file` is used in messages. `environ` supplies `${NAME}` and `${NAME:-default}`, `content` the text of the file in
    `${file:path}` (or an OSError). Queries are not parsed here: `joins` does that with the sources' schemas.
    """
    reader = YamlFile(file, environ, content)
    node = reader.composed(text, "YAML as in topologies/README.md")
    if node is None:
        reader.fail(1, "(top)", "an empty file", "name, sources and, to join them, tables")
    top = Section(Value(node, "", reader), TOPOLOGY)
    name = top.take("name")
    foreign: Mapping[str, ForeignTable] = top.take(
        "foreign_tables", {}, read=lambda v: named(v, FOREIGN, foreign_table)
    )
    # a topology that only indexes external tables captures and joins nothing
    sources: Mapping[str, Source] = top.take(
        "sources", {}, read=lambda v: named(v, SOURCE, _source), required=not foreign
    )
    servers = _servers(name, top)
    joins = top.take("joins", read=read_joins) or read_joins(empty_mapping())
    # without tables the sources are only captured into their topics
    tables: Mapping[str, Table] = top.take("tables", {}, read=lambda v: _tables(v, sources))
    indexes: Mapping[str, Index] = top.take(
        "indexes", {}, read=lambda v: named(v, INDEX, lambda n, s: _index(name, n, s))
    )
    dashboards: Mapping[str, Dashboard] = top.take("dashboards", {}, read=lambda v: named(v, DASHBOARD, read_dashboard))
    webhooks = top.take("webhooks", {}, read=lambda v: named(v, WEBHOOK, read_webhook))
    checks: Mapping[str, Check] = top.take("checks", {}, read=lambda v: named(v, CHECK, read_check))
    top.end()
    topology = Topology(
        name=name,
        file=file,
        sources=sources,
        tables=tables,
        indexes=indexes,
        dashboards=dashboards,
        foreign_tables=foreign,
        joins=joins,
        checks=checks,
        webhooks=webhooks,
        lines=reader.lines,
        **servers,
    )
    _check_references(topology)
    check_slots(topology)
    check_mirrors(topology)
    check_names(topology)
    check_checks(topology)
    return topology


def _servers(topology: str, top: Section) -> Mapping[str, Any]:
    """Read the servers, by the name of their field in `Topology`."""
    nothing = empty_mapping()
    return {
        "log": top.take("log", read=read_log) or read_log(nothing),
        "hbase": top.take("hbase", read=read_hbase) or read_hbase(nothing),
        "solr": top.take("solr", read=read_solr) or read_solr(nothing),
        "opensearch": top.take("opensearch", read=read_opensearch) or read_opensearch(nothing),
        "postgres": top.take("postgres", read=lambda v: read_postgres_server(v, topology)),
        "iceberg": top.take("iceberg", read=lambda v: read_iceberg(v, topology)),
    }


def read_source(text: str, *, name: str, file: str) -> Source:
    """Return the one source that `text` declares, with the keys of an entry under `sources:`, but no variables or
    files.

    Raises TopologyError for the first mistake.
    """
    reader = YamlFile(file, {}, _no_file)
    node = reader.composed(text, "the keys of a source")
    if node is None:
        reader.fail(1, "(top)", "nothing", "the keys of a source")
    found: Source = named(Value(_under(name, node), "", reader), SOURCE, _source)[name]
    if found.merged:
        what = f"pattern {found.merged[0].table_id.name} in a source that agents capture"
        reader.fail(1, "tables", what, "the names of single tables")
    return found


def _under(name: str, node: yaml.Node) -> yaml.MappingNode:
    key = yaml.ScalarNode("tag:yaml.org,2002:str", name, node.start_mark, node.end_mark)
    return yaml.MappingNode("tag:yaml.org,2002:map", [(key, node)], node.start_mark, node.end_mark)


def _source(name: str, s: Section) -> Source:
    kind = s.take("type")
    postgres = read_postgres(s) if kind == "postgresql" else {}
    mirror = MirrorReader(s) if kind == "kafka" else None
    syslog = read_syslog(s) if kind == "syslog" else {}
    database = s.take("database")
    policy: FilterPolicy = s.take("filter_policy")

    def rules(value: Value) -> Mapping[TableId, TableRule]:
        found = _rules(value, name, database, mirror, exact_case=kind not in ("mysql", "mariadb"))
        return found if found or policy == "accept" else value.fail("no table", "one table at least")

    table_rules: Mapping[TableId, TableRule] = s.take("tables", {}, read=rules)
    if kind == "syslog":
        table_rules = messages_alone(s, table_rules, TableId(source=name, database=database, table="messages"))
    polled = s.take("capture") == "poll"
    check_capture(s, kind, polled=polled)
    if polled:
        refuse_filters(s, policy, table_rules)
    by_url = kind == "sql"
    own = {**postgres, **syslog} if mirror is None else mirror.read()
    by_login = not by_url and mirror is None and not syslog
    if kind == "maxscale":
        check_keys(s, table_rules)
    where = {"polled": polled, "policy": policy, "agent": "agent" in s.pairs}
    where["snapshot"] = "snapshot" in s.pairs
    merged = read_merged(s, kind, table_rules, where)
    listed = (table for table, rule in table_rules.items() if policy == "drop" or not rule.empty)
    return Source(
        name=name,
        type=kind,
        url=s.take("url", ""),
        database=database,
        tables=tuple(table for table in listed if not is_pattern(table.database)),
        merged=merged,
        filter_policy=policy,
        rules=table_rules,
        position_lost=s.take("position_lost"),
        cascades=s.take("cascades"),
        snapshot_max_threads=s.take("snapshot_max_threads"),
        snapshot_locking_mode=s.take("snapshot_locking_mode"),
        unrepresentable=s.take("unrepresentable"),
        heartbeat_interval_ms=0 if polled else s.take("heartbeat_interval_ms"),
        server_id=s.take("server_id", 0),
        snapshot_mode="never" if mirror or kind == "maxscale" else "initial" if polled else s.take("snapshot_mode"),
        poll=read_poll(s) if polled else None,
        snapshot=read_replica(s, 3306, supported=kind == "mysql" and not polled),
        agent=read_agent(s, supported=by_url or not polled),
        delivery=s.take("delivery", _DELIVERIES[kind in ("kafka", "maxscale")]),
        **(_login(s, _PORTS.get(kind, 3306)) if by_login else _NO_LOGIN),
        **own,
    )


def _rules(
    value: Value, source: str, database: str, mirror: MirrorReader | None, *, exact_case: bool
) -> dict[TableId, TableRule]:
    """Return the rules of the listed tables."""
    found: dict[TableId, TableRule] = {}
    keys = RULE if mirror is None else TOPIC_RULE
    listed = not isinstance(value.node, yaml.MappingNode)
    pairs = [(item.text(), None, item) for item in value.items()] if listed else [
        (text, item, item) for text, item in value.pairs().items()
    ]  # fmt: skip
    for text, options, item in pairs:
        parts = table_parts(text, database)
        if not all(parts):
            item.fail(repr(text), "table, or database.table, a name with dots in backticks")
        table = TableId(source=source, database=parts[0], table=parts[1])
        if table in found:
            item.fail(f"table {text} twice", "each table once")
        if mirror is not None and options is None:
            mirror.listed(item)
        also = partial(mirror.table, table) if mirror is not None else lambda section: None
        found[table] = (
            read_rule(options, keys, also, exact_case=exact_case) if options else TableRule(exact_case=exact_case)
        )
    return found


_PORTS = {"postgresql": 5432, "maxscale": 4001}
_NO_LOGIN: Mapping[str, Any] = {"hostname": "", "port": 0, "username": "", "password": ""}


def _login(s: Section, port: int) -> Mapping[str, Any]:
    """Return a server's address, login and TLS settings."""
    hostname = s.take("hostname")
    return {
        "hostname": hostname,
        "tls": read_tls(s, hostname),
        "port": s.take("port", port),
        "username": s.take("username"),
        "password": s.take("password"),
    }


def _tables(value: Value, sources: Mapping[str, Source]) -> Mapping[str, Table]:
    """Return joined tables by name; `shop.*`, alone, in a list or as a key, means a copy of each table."""
    if isinstance(value.node, yaml.MappingNode):
        declared = [(name, item, Section(item, _keys(name))) for name, item in value.pairs().items()]
    else:
        items = value.items() if isinstance(value.node, yaml.SequenceNode) else [value]
        declared = [(item.text(), item, Section(empty_mapping(), COPY)) for item in items]
    result: dict[str, Table] = {}
    for text, item, s in declared:
        copied: list[tuple[str, TableId | None]] = [(text, None)]
        if "." in text or not isinstance(value.node, yaml.MappingNode):
            try:
                copied = [*copies_of(text, sources)]
            except ValueError as error:
                known = ", ".join(f"{source}.*" for source in sources)
                item.fail(str(error), f"source.*, source.table or source.database.table; sources are {known}")
        for name, table in copied:
            if not NAME.fullmatch(name) or name in result:
                what = f"{name!r} twice" if name in result else f"name {name!r}"
                item.fail(what, "a name of its own: a lower-case letter, then letters, digits and _ (63 at most)")
            result[name] = _table(name, s, table)
        s.end()
    return result or value.fail("nothing in it", "one entry at least")


def _keys(name: str) -> Keys:
    return COPY if "." in name else TABLE


def _table(name: str, s: Section, copied: TableId | None = None) -> Table:
    def engine(value: Value) -> None:
        if value.text() == "python":
            remedy = f"`tailorbird run {s.value.reader.file} --rebuild {name}` then builds the table's state again"
            value.fail("`engine: python` was removed", f"no key `engine`: joins run in the JVM. {remedy}")
        value.one_of("jvm")

    s.take("engine", read=engine)  # older files name the engine that is now the only one
    return Table(
        name=name,
        query=s.take("query") if copied is None else copy_query(copied),
        row_key=s.take("row_key") if copied is None else (),
        family=s.take("family"),
        salt_buckets=s.take("salt_buckets"),
        sink=s.take("sink"),
        schema_change_behavior=s.take("schema_change_behavior"),
        state_partitions=s.take("state_partitions"),
        max_changes_per_batch=s.take("max_changes_per_batch"),
    )


def _index(topology: str, name: str, s: Section) -> Index:
    return Index(
        name=name,
        table=s.take("table"),
        collection=s.take("collection", f"{topology}_{name}"),
        search=s.take("search", ()),
        commit_within=s.take("commit_within"),
        stub_retention=s.take("stub_retention"),
        shards=s.take("shards"),
        type=s.take("type"),
    )


def _check_references(topology: Topology) -> None:
    for name in topology.foreign_tables.keys() & topology.tables.keys():
        raise topology.error(f"foreign_tables.{name}", f"name {name} is that of a joined table", "another name")
    known_tables = (*topology.tables, *topology.foreign_tables)
    for index in topology.indexes.values():
        path = f"indexes.{index.name}.table"
        if index.table not in known_tables:
            raise topology.error(path, f"unknown table {index.table}", "one of " + ", ".join(known_tables))
        if index.table in topology.tables and topology.tables[index.table].sink != "hbase":
            raise topology.error(path, f"table {index.table} is not in HBase", "a table with `sink: hbase`")
    for table in topology.tables.values():
        if table.sink == "postgres" and topology.postgres is None:
            what = "no server for `sink: postgres`"
            raise topology.error(f"tables.{table.name}", what, "a section `postgres:` with hostname, dbname and login")
        if table.sink == "iceberg" and topology.iceberg is None:
            what = "no catalog for `sink: iceberg`"
            raise topology.error(f"tables.{table.name}", what, "a section `iceberg:` with uri and warehouse")
    for dashboard in topology.dashboards.values():
        if dashboard.index not in topology.indexes:
            path = f"dashboards.{dashboard.name}.index"
            known = ", ".join(topology.indexes) or "an index under `indexes:`"
            raise topology.error(path, f"unknown index {dashboard.index}", f"one of {known}")
        if dashboard.panels and topology.indexes[dashboard.index].type != "solr":
            path, what = f"dashboards.{dashboard.name}.panels", f"index {dashboard.index} is in OpenSearch"
            raise topology.error(path, f"{what}, which pages cannot read", "no panels, or an index with `type: solr`")
    seen: dict[tuple[str, int, int], str] = {}
    for source in topology.sources.values():
        if source.needs_latest and (tables := [t.table for t, rule in source.rules.items() if rule.append_only]):
            path = f"sources.{source.name}.tables.{tables[0]}"
            what = "append_only in a source whose log may repeat and reorder, where an update looks like an insert"
            raise topology.error(path, what, "delivery: exactly_once, and its log captured")
        if source.poll is not None or not source.server_id:
            continue
        key = (source.hostname, source.port, source.server_id)
        if key in seen:
            path = f"sources.{source.name}.server_id"
            raise topology.error(path, f"server_id {source.server_id} is taken by {seen[key]}", "another number")
        seen[key] = source.name
