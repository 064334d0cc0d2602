"""Write the text of a drafted topology, with the reason of each choice as a comment."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Iterable, Iterator, Mapping

from cdc.model.escapes import dotted
from cdc.model.tls import Tls, default_mode
from tailorbird.deploy.draft.draft import Draft, DraftFields, DraftJoin, DraftSource, DraftTable, ReasonedName
from tailorbird.deploy.draft.naming import key, listing, literal, quoted, scalar
from tailorbird.deploy.draft.shape import FoundTable

_WIDTH = 118
_SERVERS = """\
# Where Kafka, HBase and Solr are: the ports of `tailorbird stack up`, or your own servers.
log:
  bootstrap_servers: 127.0.0.1:${TAILORBIRD_PORT_KAFKA:-9092}
hbase:
  thrift: 127.0.0.1:${TAILORBIRD_PORT_THRIFT:-9090}
  zookeeper: 127.0.0.1:${TAILORBIRD_PORT_ZOOKEEPER:-2181}
solr:
  url: http://127.0.0.1:${TAILORBIRD_PORT_SOLR:-8983}/solr
"""


def topology_text(draft: Draft, fields: Mapping[str, DraftFields]) -> str:
    """Return the text of the topology file. `fields` has the index fields of each joined table by name."""
    lines = [
        "# Written by `tailorbird init` from the tables of your databases. Every choice is a guess, with its reason in",
        "# a comment. Change what you like (topologies/README.md lists every key), then run `tailorbird validate`.",
        f"name: {draft.name}",
        "",
        *_comment(draft.notes),
        "sources:",
    ]
    for source in draft.sources:
        lines += _source(draft, source)
    lines += ["", *_SERVERS.splitlines(), "", "tables:"]
    for table in draft.tables:
        lines += _table(table)
    lines += ["", "indexes:"]
    for table in draft.tables:
        lines += _index(table, fields[table.name])
    lines += ["", "dashboards:"]
    for table in draft.tables:
        lines += _dashboard(table, fields[table.name])
    return "\n".join(lines) + "\n"


def server_id(topology: str, source: str) -> int:
    """Return a replica server_id for a source. It derives from the names, so two topologies rarely collide."""
    return 10_000 + zlib.crc32(f"{topology}.{source}".encode()) % 4_000_000


def _source(draft: Draft, source: DraftSource) -> Iterator[str]:
    server = source.server
    yield f"  {server.source}:"
    yield f"    type: {server.kind}"
    yield f"    hostname: {scalar(server.hostname)}"
    yield f"    port: {server.port}"
    yield f"    username: {scalar(server.username)}"
    yield f"    password: ${{{server.password_env}}}"
    if server.tls != Tls(mode=default_mode(server.hostname)):
        yield from (f"    {key}: {scalar(value)}" for key, value in server.tls.settings().items())
    if server.kind == "postgresql":
        yield f"    dbname: {scalar(server.dbname)}"
        yield f"    database: {scalar(server.database)}  # the schema"
    else:
        yield f"    database: {scalar(server.database)}"
        own = server_id(draft.name, server.source)
        yield f"    server_id: {own}  # unique among the server's replicas"
    captured = list(draft.captured(source))
    silent = [r for r in server.references if r.rules and r.child in {table.table_id for table in captured}]
    if silent:
        reported = [f"{r}: {' and '.join(r.rules)} of {r.parent.table}" for r in silent]
        what = "The log does not contain rows that these foreign keys change; capture reads them (`cascades: follow`):"
        yield from _comment([what, *reported], 4)
    yield "    tables:"
    for table in captured:
        yield from _captured(source, table)
    names = {table.name for table in captured}
    others = [ReasonedName(name=t, why="in no joined table below") for t in source.ignored if t not in names]
    left = [f"{each.name}: {each.why}" for each in (*source.left, *others)]
    if left:
        yield from _comment(["Not captured:", *left], 4)


def _captured(source: DraftSource, table: FoundTable) -> Iterator[str]:
    hidden = source.ignored[table.name]
    for each in hidden:
        yield from _comment([f"{each.name} is ignored: {each.why}"], 6)
    name = dotted(table.name)
    said = f" {{ignored_columns: {listing([each.name for each in hidden])}}}" if hidden else " {}"
    yield f"      {key(name)}:{said}"


def _table(table: DraftTable) -> Iterator[str]:
    yield from _comment([table.why], 2)
    if guessed := [f"{j.by} → {j.table.name}: {j.by.guessed}" for j in table.joins if j.by and j.by.guessed]:
        yield from _comment(["Joins guessed from names:", *guessed], 2)
    if table.left:
        yield from _comment(["Left out:", *table.left], 2)
    for warning in table.warnings:
        yield from _comment([f"Note: {warning}"], 2)
    yield f"  {table.name}:"
    yield "    query: |"
    yield from map(literal, _select(table))
    yield f"    row_key: {listing(table.row_key)}  # the key of {_shown(table.root.table.name)}, the root of the join"


def _select(table: DraftTable) -> Iterator[str]:
    line, alias = "      SELECT", table.root.alias
    for number, column in enumerate(table.columns):
        item = f" {quoted(column.alias)}.{quoted(column.column.name)}"
        if column.output != column.column.name:
            item += f" AS {quoted(column.output)}"
        item += "," if number < len(table.columns) - 1 else ""
        # a line of its own for each table's columns
        if column.alias != alias or len(line + item) > _WIDTH:
            yield line
            line, alias = " " * 12, column.alias
        line += item
    yield line
    yield f"      FROM {_name(table.root)} {quoted(table.root.alias)}"
    for join in table.joins[1:]:
        assert join.by is not None, "only the root has no reference"
        pairs = zip(join.by.referenced, join.by.columns, strict=True)
        on = " AND ".join(
            f"{quoted(join.alias)}.{quoted(theirs)} = {quoted(join.parent)}.{quoted(own)}" for theirs, own in pairs
        )
        yield f"      LEFT JOIN {_name(join)} {quoted(join.alias)} ON {on}"


def _name(join: DraftJoin) -> str:
    table = join.table.table_id
    return f"{quoted(table.source)}.{quoted(table.table)}"


def _index(table: DraftTable, fields: DraftFields) -> Iterator[str]:
    yield f"  {table.name}:"
    yield f"    table: {table.name}"
    if fields.search:
        yield from _chosen("search", fields.search)
    else:
        yield "    search: []  # no column with long texts"


def _dashboard(table: DraftTable, fields: DraftFields) -> Iterator[str]:
    yield f"  {table.name}:"
    yield f"    index: {table.name}"
    yield f"    title: {scalar(table.name.replace('_', ' ').capitalize())}"
    if fields.facets:
        yield from _chosen("facets", fields.facets)
    else:
        yield "    # facets: [column]   # no enum, no boolean, no text with few values in the rows read"
    if fields.time is None:
        yield "    # time: column       # no date or datetime, so no histogram and no order by time"
    else:
        yield from _comment([fields.time.why], 4)
        yield f"    time: {fields.time.name}"
    yield from textwrap.wrap(
        f"columns: {listing(list(fields.columns))}", _WIDTH, initial_indent="    ", subsequent_indent="      "
    )


def _chosen(key: str, found: Iterable[ReasonedName]) -> Iterator[str]:
    yield f"    {key}:"
    for each in found:
        yield f"      - {each.name}  # {_shown(each.why)}"


def _comment(lines: Iterable[str], indent: int = 0) -> Iterator[str]:
    for number, line in enumerate(lines):
        first = " " * indent + "# " + ("  " if number and indent else "")
        yield from textwrap.wrap(
            _shown(line), _WIDTH, initial_indent=first, subsequent_indent=" " * indent + "#     ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _shown(text: str) -> str:
    """Return the text on one line, so that all of it stays within a YAML comment."""
    return " ".join(text.split())
