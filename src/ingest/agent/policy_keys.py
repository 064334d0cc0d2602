"""The keys of an agent's policy file, and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc.grammar.forms import (
    TEXT,
    TEXTS,
    YES,
    Schema,
    ValueForm,
    either,
    mapping,
    matching,
    nullable,
    number,
    one_of,
    read_elsewhere,
)
from cdc.grammar.keys import DRAFT, DeclaredKey, Keys, schema_of, section
from cdc.grammar.values import Value
from cdc.model.identifiers import fold_identifier
from cdc.topology.reader_rules import RULE, TOPIC_RULE
from cdc.topology.reader_tls import TLS
from cdc.topology.source_keys import SOURCE
from ingest.agent.policy import AgentLimits
from ingest.fleet.desired import ALIAS, TYPES

PORTS: Mapping[str, int] = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432, "maxscale": 4001}
_IDS = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")


def _server_ids(value: Value) -> tuple[int, int]:
    found = _IDS.fullmatch(value.text())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last < 2**32:
        value.fail(repr(value.text()), "a number from 1 to 4294967295, or the first and the last one: 5000-5099")
    return first, last


def _columns(value: Value) -> tuple[str, ...]:
    names = value.texts()
    each_once(value, names)
    return names


def each_once(value: Value, names: Iterable[str]) -> None:
    """Fail if a column is named twice, in any case: a mask for `Mail` is one for `mail` on every server."""
    seen = set[str]()
    for name in names:
        if fold_identifier(name) in seen:
            value.fail(f"column {name} twice", "name each column once, in any case")
        seen.add(fold_identifier(name))


_COLUMNS = replace(TEXTS, read=_columns)


def _number(highest: int, about: str, default: int) -> DeclaredKey:
    return DeclaredKey(form=number(1, highest), about=about, default=str(default))


_DEFAULTS = AgentLimits()
LIMITS: Keys = {
    "sources": _number(10_000, "Sources that a gateway may assign.", _DEFAULTS.sources),
    "slots": _number(10_000, "Replication slots at a PostgreSQL server.", _DEFAULTS.slots),
    "poll_interval_ms": _number(86_400_000, "The shortest interval of polls.", _DEFAULTS.poll_interval_ms),
    "poll_lag_ms": _number(86_400_000, "How far back a poll may read.", _DEFAULTS.poll_lag_ms),
    "poll_rows": _number(100_000, "Rows per query of a poll.", _DEFAULTS.poll_rows),
    "snapshot_threads": _number(
        64, "Tables, or ranges of large tables, that are read at the same time.", _DEFAULTS.snapshot_threads
    ),
    "server_ids": DeclaredKey(
        form=matching(r"\d{1,10}(-\d{1,10})?", _server_ids, "5000-5099"),
        about="Replication ids that captures may use.",
        default="-".join(map(str, _DEFAULTS.server_ids)),
    ),
    "answer_bytes": _number(2**40, "Bytes of one answer to the gateway.", _DEFAULTS.answer_bytes),
    "receive_rate": _number(2**40, "Bytes per second from the gateway.", _DEFAULTS.receive_rate),
    "assignments_per_minute": _number(1_000_000, "Assignments per minute.", _DEFAULTS.assignments_per_minute),
    "signals_per_minute": _number(1_000_000, "Signals per minute.", _DEFAULTS.signals_per_minute),
}
_HIDDEN: Keys = {
    "ignored_columns": DeclaredKey(form=_COLUMNS, about="Columns that never leave the host."),
    "mask": RULE["mask"],
}
LISTED: Keys = {"columns": DeclaredKey(form=_COLUMNS, about="The only columns that may leave the host."), **_HIDDEN}
TOPIC: Keys = {"topic": TOPIC_RULE["topic"], **LISTED}
_POLICY = DeclaredKey(
    form=one_of("accept", "drop"),
    about="`drop` releases only the listed tables, `accept` all except those listed without options.",
    default="drop",
)
_DROPPED: Mapping[str, tuple[str, ...]] = {"filter_policy": ("drop",)}
_ACCEPTED: Mapping[str, tuple[str, ...]] = {"filter_policy": ("accept",)}


def _database_keys(table: Keys) -> Keys:
    """Return the keys of a database. Under `accept`, a table without options must not leave the host."""
    about = "Tables that may leave the host, each with the columns to hide; with `accept`, exceptions."
    listed, excepted = section(table), ValueForm(read=read_elsewhere, schema=nullable(schema_of(table)))
    return {
        "filter_policy": _POLICY,
        **_HIDDEN,
        "tables": (
            DeclaredKey(form=mapping(listed), about=about, required=True, only=_DROPPED),
            DeclaredKey(form=mapping(excepted), about=about, only=_ACCEPTED),
        ),
    }


DATABASE, TOPICS = _database_keys(LISTED), _database_keys(TOPIC)
_DATABASES = "Databases that may leave the host: `all`, or their tables. For PostgreSQL, schemas."


def _with_login(key: DeclaredKey | tuple[DeclaredKey, ...]) -> DeclaredKey:
    assert isinstance(key, DeclaredKey)
    return replace(key, only={"type": tuple(PORTS)})


_KAFKA = {"type": ("kafka",)}
CONNECTION: Keys = {
    "type": DeclaredKey(form=one_of(*TYPES), about="The kind of server.", default="mysql"),
    "databases": (
        DeclaredKey(
            form=mapping(either(one_of("all"), section(DATABASE)), at_least=1),
            about=_DATABASES,
            required=True,
            only={"type": tuple(kind for kind in TYPES if kind != "kafka")},
        ),
        DeclaredKey(form=mapping(section(TOPICS), at_least=1), about=_DATABASES, required=True, only=_KAFKA),
    ),
    **{name: _with_login(SOURCE[name]) for name in ("hostname", "port", "username", "password", *TLS)},
    **{name: SOURCE[name] for name in ("dbname", "url", "bootstrap_servers", "security", "format", "listen")},
    "snapshot": _with_login(SOURCE["snapshot"]),
}
POLICY: Keys = {
    "dumps": DeclaredKey(form=YES, about="Whether snapshots may read whole tables.", required=True),
    "locks": DeclaredKey(form=YES, about="Whether snapshots may lock tables for a moment.", default="false"),
    "labels": DeclaredKey(form=mapping(TEXT), about="Labels by which topologies choose agents, such as `site: paris`."),
    "limits": DeclaredKey(form=section(LIMITS), about="Limits of what a gateway may ask for."),
    "connections": DeclaredKey(
        form=mapping(section(CONNECTION), names=f"^{ALIAS.pattern}$", at_least=1),
        about="Database servers and streams by name, and what of them may leave the host.",
        required=True,
    ),
}


def policy_schema() -> Schema:
    """Return the JSON Schema (draft 7) of policy files."""
    return {"$schema": DRAFT, "title": "Tailorbird agent policy", **schema_of(POLICY)}
