"""What the fleet shall capture: each source's configuration, by version; pure.

A version is never changed: whoever wants another configuration writes the next version, and to roll back is to write an
older version's words again. Of two that are written at once under one number, the first in the topic counts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from cdc.model.errors import UsageError
from cdc.model.escapes import table_parts
from cdc.model.schema import TableId
from cdc.topology.reader import read_source
from cdc.topology.topology import Source
from cdc.topology.values import NAME
from ingest.fleet.identity import identity

# What only the owner of a database's host says, in the agent's policy (docs/fleet.md).
LOCAL = frozenset({"type", "hostname", "port", "username", "password", "ssl_mode", "url"})
ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OWN = ("agents", "connection", "running")
_LONGEST_NAME = 64  # characters of a database's or table's name, on every server
_LONGEST = 512 * 1024  # bytes of a configuration
_NONE_YET = "none_yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source's configuration, checked: `agents` that may have it, first choice first; the alias of its connection in
    their policies; and `keys`, as they stand under `sources:` of a topology without those of `LOCAL`.
    """

    agents: tuple[str, ...]
    connection: str
    running: bool = True
    keys: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it is stored and sent; inverse of `spec_of`."""
        return {
            "agents": list(self.agents), "connection": self.connection, "running": self.running, **self.keys,
        }  # fmt: skip

    @property
    def tables(self) -> Mapping[str, Any]:
        """What is said of each table, by `table` or `database.table`."""
        said = self.keys.get("tables") or {}
        if isinstance(said, Mapping):
            return said
        return {name: {} for name in said if isinstance(name, str)} if isinstance(said, list | tuple) else {}

    @property
    def captures(self) -> bool:
        """Whether there is anything to capture; a source without tables is only looked at."""
        return bool(self.keys.get("tables")) or self.keys.get("filter_policy") == "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """One version of a source's configuration; `spec` None: the source is no more. `of`: the version rolled back to.
    `writer` is part of its key in the topic, and unlike any other's.
    """

    source: str
    version: int
    spec: SourceSpec | None
    by: str = ""
    at_ms: int = 0
    of: int | None = None
    writer: str = field(default="", compare=False)


def spec_of(reported: Any, topology: str, name: str) -> SourceSpec:
    """The configuration of source `name` that somebody tells; UsageError says what is wrong with it, and why a key is
    refused that only a host's owner may set.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is no source's name", "a small letter, then small letters, digits and _")
    if not isinstance(reported, Mapping) or not all(isinstance(key, str) for key in reported):
        raise UsageError(f"source {name}: no configuration", "an object with agents, connection, database, tables")
    if local := sorted(LOCAL & reported.keys()):
        where = "the agent's policy file says it, under connections:"
        raise UsageError(f"source {name}: {local[0]} is not the gateway's to say", where)
    if "agent" in reported:
        raise UsageError(f"source {name}: agent is a topology's to say", "here: agents and connection")
    agents = reported.get("agents", ())
    agents = [agents] if isinstance(agents, str) else agents
    if not isinstance(agents, Sequence) or not agents or not all(isinstance(agent, str) for agent in agents):
        raise UsageError(f"source {name}: no agents", "agents: the names of those that may capture it")
    for agent in agents:
        identity("any", "agents", agent)
    alias, running = reported.get("connection"), reported.get("running", True)
    if not isinstance(alias, str) or not ALIAS.fullmatch(alias):
        raise UsageError(f"source {name}: no connection", "connection: the alias in the agent's policy file")
    if not isinstance(running, bool):
        raise UsageError(f"source {name}: running is {running!r}", "running: true, or false")
    keys = {key: value for key, value in reported.items() if key not in _OWN}
    spec = SourceSpec(agents=tuple(dict.fromkeys(agents)), connection=alias, running=running, keys=keys)
    for table in source_of(spec, topology, name).tables:
        if max(len(table.database), len(table.table)) > _LONGEST_NAME:
            raise UsageError(f"table {str(table)[:80]}: the name is too long", f"{_LONGEST_NAME} characters at most")
        if not (table.database + table.table).isprintable():
            raise UsageError(f"table {table}: a control character in the name", "a name that can be shown")
    return spec


def source_of(spec: SourceSpec, topology: str, name: str) -> Source:
    """The source that a configuration describes, with no server yet; UsageError (a TopologyError) where it is none."""
    try:
        text = orjson.dumps(spec.keys)
    except TypeError as error:
        raise UsageError(f"source {name}: {error}"[:200], "the keys of a source, as in a topology") from error
    if b"${" in text or len(text) > _LONGEST:
        raise UsageError(f"source {name}: it names a variable, or is longer than {_LONGEST} bytes", "plain values")
    default = 1_000_000_000 + zlib.crc32(f"{topology}.{name}".encode()) % 2_000_000_000
    said = {
        "type": "mysql", "hostname": "-", "username": "-", "password": "-", "server_id": default, **spec.keys
    }  # fmt: skip
    if not spec.captures:
        said["tables"] = [_NONE_YET]
    if said.get("capture", "log") != "log":
        raise UsageError(f"source {name}: an agent reads logs, it does not poll", "capture: log")
    try:
        source = read_source(orjson.dumps(said).decode(), name=name, file=f"configuration of {name}")
    except RecursionError as error:
        raise UsageError(f"source {name}: lists within lists", "the keys of a source, as in a topology") from error
    return source if spec.captures else replace(source, tables=(), rules={})


def with_tables(spec: SourceSpec, tables: Mapping[str, Any]) -> SourceSpec:
    """The same with other tables."""
    return replace(spec, keys={**spec.keys, "tables": dict(tables)})


def table_named(source: Source, text: str) -> TableId:
    """The table that `table` or `database.table` means for a source."""
    database, table = table_parts(text, source.database)
    if not database or not table:
        raise UsageError(f"{text[:80]!r} is no table", "table, or database.table")
    return TableId(source=source.name, database=database, table=table)


def tables_named(source: Source, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables by one name each, however they were named before; the last word counts."""
    found: dict[TableId, tuple[str, Any]] = {}
    for name, said in tables.items():
        table = table_named(source, name)
        found[table] = (found[table][0] if table in found else name, said)
    return dict(found.values())
