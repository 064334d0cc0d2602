"""Reads an agent's policy file as strictly as a topology; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import yaml

from cdc.model.filters import mask
from cdc.topology.values import Section, Value, YamlFile
from ingest.agent.policy import LocalConnection, Policy, TablePolicy
from ingest.fleet.desired import ALIAS
from ingest.fleet.improper import PLACES

_NULL = "tag:yaml.org,2002:null"
_REPORTED, _AROUND = 768 * 1024, 10  # bytes: of all databases' names, in a message of 1 MiB, and around each of them


def read_policy(text: str, *, file: str, environ: Mapping[str, str], content: Callable[[str], str]) -> Policy:
    """The policy that `text` declares; TopologyError (exit 2) for the first mistake found.

    `environ` supplies `${NAME}`, `content` what is in the file of `${file:path}` (or an OSError).
    """
    reader = YamlFile(file, environ, content)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        reader.fail(1, "(top)", f"not YAML: {error}", "YAML as in docs/fleet.md")
    if node is None:
        reader.fail(1, "(top)", "an empty file", "dumps, connections")
    top = Value(node, "", reader).section()
    nothing: Mapping[str, str] = {}
    policy = Policy(
        dumps=top.take("dumps", _yes),
        locks=top.take("locks", _yes, False),
        labels=top.take("labels", lambda v: {name: said.text() for name, said in v.pairs().items()}, nothing),
        connections=top.take("connections", _connections),
    )
    top.end()
    reported = [(alias, name) for alias, local in policy.connections.items() for name in local.databases]
    size = sum(len(alias) + len(name.encode()) + _AROUND for alias, name in reported)
    if size > _REPORTED or len(reported) > PLACES:  # an agent says in one message what it may tell of
        most = f"{PLACES} at most, of {_REPORTED} bytes of names: give some of them to another agent"
        reader.fail(1, "connections", f"{len(reported)} databases, of {size} bytes of names", most)
    return policy


def _yes(value: Value) -> bool:
    return bool(value.one_of("true", "false") == "true")


def _connections(value: Value) -> Mapping[str, LocalConnection]:
    found = {}
    for alias, said in value.pairs().items():
        if not ALIAS.fullmatch(alias):
            said.fail(f"alias {alias!r}", "a small letter, then small letters, digits, - and _ (63 at most)")
        section = said.section()
        found[alias] = _connection(alias, section)
        section.end()
    return found or value.fail("nothing in it", "one connection at least")


def _connection(alias: str, s: Section) -> LocalConnection:
    return LocalConnection(
        alias=alias,
        type=s.take("type", lambda v: v.one_of("mysql", "mariadb"), "mysql"),
        hostname=s.take("hostname", Value.text),
        port=s.take("port", lambda v: v.number(1, 65535), 3306),
        username=s.take("username", Value.text),
        password=s.take("password", Value.text),
        ssl_mode=s.take("ssl_mode", lambda v: v.one_of("preferred", "required", "disabled"), "preferred"),
        databases=s.take("databases", _databases),
    )


def _databases(value: Value) -> Mapping[str, Mapping[str, TablePolicy] | None]:
    found: dict[str, Mapping[str, TablePolicy] | None] = {}
    for name, said in value.pairs().items():
        if said.node.tag == _NULL:
            said.fail("nothing is said of it", "`all`, or `{tables: {…}}`")
        if isinstance(said.node, yaml.ScalarNode):
            said.one_of("all")
            found[name] = None
            continue
        section = said.section()
        found[name] = section.take("tables", _tables)
        section.end()
    return found or value.fail("nothing in it", "one database at least")


def _tables(value: Value) -> Mapping[str, TablePolicy]:
    found = {}
    for name, said in value.pairs().items():
        section = said.section()
        only: tuple[str, ...] | None = None
        found[name] = TablePolicy(
            columns=section.take("columns", _columns, only),
            ignored=section.take("ignored_columns", _columns, ()),
            masks=section.take("mask", _masks, {}),
        )
        section.end()
    return found


def _columns(value: Value) -> tuple[str, ...]:
    names = value.texts()
    _each_once(value, names)
    return names


def _each_once(value: Value, names: Iterable[str]) -> None:
    """Two masks of one column would leave it open which one holds; MySQL's columns are the same in any case."""
    reported = set[str]()
    for name in names:
        if name.lower() in reported:
            value.fail(f"column {name} twice", "each column once: names of columns are the same in any case")
        reported.add(name.lower())


def _masks(value: Value) -> Mapping[str, str]:
    _each_once(value, value.pairs())
    for text in value.pairs().values():
        try:
            mask(text.text())
        except ValueError as error:
            text.fail(str(error), "sha256(salt), truncate(n) or redact")
    return {column: text.text() for column, text in value.pairs().items()}
