"""Desired state of the fleet: the configuration of each source, in versions.

Versions are immutable. A change writes the next version; a rollback writes the content of an older version as the next
one. If two writers use one version number, the first record in the topic wins.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import orjson

from cdc.grammar.values import NAME
from cdc.model.errors import UsageError
from cdc.model.escapes import table_parts
from cdc.model.schema import TableId
from cdc.topology.reader import read_source
from cdc.topology.topology import Source, SourceType
from ingest.fleet.identity import identity

# Keys that only the agent's policy may set (docs/fleet.md).
LOCAL = frozenset(
    {
        "hostname", "port", "username", "password", "ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "url", "dbname",
        "slot_name", "publication_name", "listen", "bootstrap_servers", "security", "format", "snapshot",
    }
)  # fmt: skip
TYPES = get_args(SourceType)  # that agents capture
_FORMER_TYPES = ("mysql", "mariadb")
TOPIC = "topic"  # the key of a table that only the agent's policy may set
_LOGIN = {"hostname": "-", "username": "-", "password": "-"}
# what a source of each type needs, and only the agent's policy contains
_LOCAL_KEYS: Mapping[str, Mapping[str, Any]] = {
    "mysql": {**_LOGIN, "type": "mysql"}, "postgresql": {**_LOGIN, "dbname": "-"}, "maxscale": _LOGIN,
    "sql": {"url": "sqlite://-", "capture": "poll"}, "syslog": {"listen": {"unix": "-"}},
    "kafka": {"bootstrap_servers": "-", "format": "debezium"},
}  # fmt: skip
_NO_OPTIONS: Mapping[str, Mapping[str, Any]] = {"kafka": {TOPIC: "-"}, "maxscale": {"message_key_columns": ["-"]}}
ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OWN = ("agents", "connection", "running")
_LONGEST_NAME = 64  # characters of a database's or table's name, on every server
_LONGEST = 512 * 1024  # bytes of a configuration
_NONE_YET = "none_yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A validated configuration of a source.

    `agents` are those that may capture it, the preferred first. `connection` is the alias of the server in their
    policies. `keys` are the keys of an entry under `sources:` of a topology, except those in `LOCAL`. They do not
    contain the `type` of MySQL and MariaDB: the previous release refuses this key.
    """

    agents: tuple[str, ...]
    connection: str
    running: bool = True
    keys: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for messages and the topic; inverse of `spec_of`."""
        return {
            "agents": list(self.agents), "connection": self.connection, "running": self.running, **self.keys,
        }  # fmt: skip

    @property
    def type(self) -> str:
        """Return which plugin captures the source: `mysql`, also for MariaDB, or another type of a topology."""
        return str(self.keys.get("type", "mysql"))

    @property
    def tables(self) -> Mapping[str, Any]:
        """Return the settings of each table, by `table` or `database.table`."""
        tables = self.keys.get("tables") or {}
        if isinstance(tables, Mapping):
            return tables
        return {name: {} for name in tables if isinstance(name, str)} if isinstance(tables, list | tuple) else {}

    @property
    def captures(self) -> bool:
        """Return whether there is anything to capture. For a source without tables, the agent reads only the
        catalog."""
        return bool(self.keys.get("tables")) or self.keys.get("filter_policy") == "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSource:
    """One version of a source's configuration. `spec` None: the source was removed.

    `of` is the older version, for a rollback. `by` and `at_ms` are who wrote it, and when. `writer` is a unique text in
    the record's key.
    """

    source: str
    version: int
    spec: SourceSpec | None
    by: str = ""
    at_ms: int = 0
    of: int | None = None
    writer: str = field(default="", compare=False)


def spec_of(value: Any, topology: str, name: str) -> SourceSpec:
    """Validate the configuration of the source `name` that a user supplies.

    Raises UsageError for the first mistake, and for keys that only the agent's policy may set.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is not a valid source name", "a lower-case letter, then a-z, 0-9 and _")
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"source {name}: not a configuration", "an object with agents, connection, database, tables")
    if local := sorted(LOCAL & value.keys()):
        where = "set it in the agent's policy file, under connections:"
        raise UsageError(f"source {name}: {local[0]} cannot be set by the gateway", where)
    if "agent" in value:
        raise UsageError(f"source {name}: agent is a key of topologies", "use agents and connection")
    kind = value.get("type", "mysql")
    if kind not in TYPES:
        raise UsageError(f"source {name}: agents capture no source of type {str(kind)[:80]!r}", ", ".join(TYPES))
    agents = value.get("agents", ())
    agents = [agents] if isinstance(agents, str) else agents
    if not isinstance(agents, Sequence) or not agents or not all(isinstance(agent, str) for agent in agents):
        raise UsageError(f"source {name}: no agents", "agents: the names of the agents that may capture it")
    for agent in agents:
        identity("any", "agents", agent)
    alias, running = value.get("connection"), value.get("running", True)
    if not isinstance(alias, str) or not ALIAS.fullmatch(alias):
        raise UsageError(f"source {name}: no connection", "connection: the alias in the agent's policy file")
    if not isinstance(running, bool):
        raise UsageError(f"source {name}: running is {running!r}", "running: true, or false")
    if kind == "kafka":
        _check_topics(value, name)
    own = (*_OWN, "type") if kind in _FORMER_TYPES else _OWN
    keys = {key: content for key, content in value.items() if key not in own}
    spec = SourceSpec(agents=tuple(dict.fromkeys(agents)), connection=alias, running=running, keys=keys)
    for table in source_of(spec, topology, name).tables:
        if max(len(table.database), len(table.table)) > _LONGEST_NAME:
            raise UsageError(f"table {str(table)[:80]}: the name is too long", f"at most {_LONGEST_NAME} characters")
        if not (table.database + table.table).isprintable():
            raise UsageError(f"table {table}: a control character in the name", "use a printable name")
    return spec


def _check_topics(value: Mapping[str, Any], name: str) -> None:
    """Raise UsageError if a table names its topic: the gateway could read one that the policy restricts."""
    tables = value.get("tables")
    for table, options in tables.items() if isinstance(tables, Mapping) else ():
        if isinstance(options, Mapping) and TOPIC in options:
            where = "set it in the agent's policy file, at the table"
            raise UsageError(f"source {name}: the topic of {str(table)[:80]!r} cannot be set by the gateway", where)


def source_of(spec: SourceSpec, topology: str, name: str) -> Source:
    """Return a configuration as a Source without a server's address. Raises UsageError or TopologyError for a
    mistake."""
    if NAME.fullmatch(topology) is None:  # it becomes a part of names on the database's server
        raise UsageError(f"{topology[:80]!r} is not the name of a topology", "a name such as shop, as in a topology")
    try:
        text = orjson.dumps(spec.keys)
    except TypeError as error:
        raise UsageError(f"source {name}: {error}"[:200], "the keys of a source, as in a topology") from error
    if b"${" in text or len(text) > _LONGEST:
        raise UsageError(f"source {name}: it has a variable, or more than {_LONGEST} bytes", "use plain values")
    keys = {**_LOCAL_KEYS[spec.type], **spec.keys}
    if spec.type == "mysql":
        keys.setdefault("server_id", 1_000_000_000 + zlib.crc32(f"{topology}.{name}".encode()) % 2_000_000_000)
    options = _NO_OPTIONS.get(spec.type, {})
    if not spec.captures and spec.type == "syslog":
        keys.pop("tables", None)
    elif not spec.captures:
        keys["tables"] = {_NONE_YET: options} if options else [_NONE_YET]
    elif spec.type == "kafka":
        keys["tables"] = {
            table: {**one, **options} if isinstance(one, Mapping) else one or options
            for table, one in spec.tables.items()
        }
    if spec.type != "sql" and keys.get("capture", "log") != "log":
        raise UsageError(f"source {name}: agents cannot poll a source of type {spec.type}", "set capture: log")
    try:
        source = read_source(orjson.dumps(keys).decode(), name=name, file=f"configuration of {name}")
    except RecursionError as error:
        raise UsageError(f"source {name}: nested too deeply", "the keys of a source, as in a topology") from error
    return source if spec.captures else replace(source, tables=(), rules={})


def with_tables(spec: SourceSpec, tables: Mapping[str, Any]) -> SourceSpec:
    """Return a copy of the configuration with other tables."""
    return replace(spec, keys={**spec.keys, "tables": dict(tables)})


def table_named(source: Source, text: str) -> TableId:
    """Return the table of a source for `table` or `database.table`. Raises UsageError for anything else."""
    database, table = table_parts(text, source.database)
    if not database or not table:
        raise UsageError(f"{text[:80]!r} is not a table name", "use table or database.table")
    return TableId(source=source.name, database=database, table=table)


def tables_named(source: Source, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of tables that are listed as both `table` and `database.table`. The later ones win."""
    found: dict[TableId, tuple[str, Any]] = {}
    for name, settings in tables.items():
        table = table_named(source, name)
        found[table] = (found[table][0] if table in found else name, settings)
    return dict(found.values())
