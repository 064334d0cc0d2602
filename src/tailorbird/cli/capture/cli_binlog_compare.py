"""`tailorbird binlog compare`: decode the log of a server twice, by two libraries, and print where they differ."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from ingest.binlog.reading.position import BinlogPosition
    from ingest.binlog.reading.reader import BinlogReader
    from ingest.binlog.reading.second_opinion import DecoderComparison, DecoderDifference, TableFilter
    from ingest.binlog.reading.stream import RowBatch
    from ingest.binlog.transports.uri import ServerAddress

_EVERY = 2.0  # seconds between two lines of progress

Hides = Callable[[str, str], bool]


def tables_filter(text: str) -> TableFilter | None:
    """Return a filter of (database, table) for a text such as `a.b,c.*`. An empty text gives None: no filter."""
    from ingest.binlog.reading.second_opinion import TableFilter

    wanted = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    for name in wanted:
        if name.count(".") != 1:
            raise UsageError(
                f"--tables {name}: not a table", "write database.table, or database.* for all of its tables"
            )
    if not wanted:
        return None

    def accepts(database: str, table: str) -> bool:
        return bool({f"{database}.{table}".lower(), f"{database}.*".lower()} & wanted)

    return TableFilter(accepts=accepts, names=wanted)


def _line(one: DecoderDifference) -> str:
    head = f"{one.place} {one.table}"
    if one.kind == "value":
        return f"{head} row {one.row} {one.column}: {one.ours}; mysql-replication: {one.theirs}"
    if one.kind == "rows":
        return f"{head}: {one.ours} rows; mysql-replication: {one.theirs}"
    texts = {"missing": "mysql-replication lacks this event", "extra": "only mysql-replication has this event"}
    return f"{head}: {texts.get(one.kind, one.theirs)}"


def compare(
    target: Annotated[str, typer.Argument(metavar="URI|TOPOLOGY", help="mysql://…, mariadb://…, or a topology file")],
    source: Annotated[str, typer.Option("--source", help="the topology's source, if it has several")] = "",
    start: Annotated[str, typer.Option("--from", help="FILE:POSITION; default: the oldest available")] = "",
    tables: Annotated[str, typer.Option(help="only these, e.g. shop.orders,crm.*")] = "",
    hide: Annotated[str, typer.Option(help="columns without values: shop.users.mail,shop.users.pin")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per difference, and one at the end")] = False,
) -> None:
    """Decode a server's log with mysql-replication, too, and print where it differs from Tailorbird.

    Reads up to the newest event. Needs binlog_row_metadata=FULL. Columns that the topology ignores or masks appear
    without values. Exit code 0: no difference; 1: differences.

    Example: tailorbird binlog compare topologies/shop.yml --source shop
    """
    import orjson

    address, wanted, hides = _target(target, source, tables, hide)
    comparison, differences = compared(address, start, wanted, hides)
    for difference in differences:
        print(orjson.dumps(asdict(difference)).decode() if as_json else _line(difference), flush=True)
    counts = {name: comparison.counts[name] for name in ("events", "rows", "values", "differences")}
    unreadable = comparison.counts["unreadable"]
    if as_json:
        print(orjson.dumps({**counts, "unreadable": unreadable, "not_compared": comparison.not_compared}).decode())
    else:
        print(", ".join(f"{number} {name}" for name, number in counts.items()))
        if comparison.not_compared:
            skipped = ", ".join(f"{number} {kind}" for kind, number in sorted(comparison.not_compared.items()))
            print(f"not compared, because mysql-replication has no such values: {skipped}")
        if unreadable:
            what = "events of unknown tables that mysql-replication cannot read"
            print(f"not counted as differences: {unreadable} {what}")
    if counts["differences"]:
        raise typer.Exit(1)


def compared(
    address: ServerAddress, start: str, wanted: TableFilter | None, hides: Hides
) -> tuple[DecoderComparison, Iterator[DecoderDifference]]:
    """Return the comparison of a server's log up to its newest event, and its differences as they are found."""
    from ingest.binlog.reading.position import BinlogPosition, parse_position
    from ingest.binlog.reading.reader import BinlogReader
    from ingest.binlog.reading.second_opinion import DecoderComparison
    from ingest.binlog.reading.stream import StreamOptions
    from ingest.binlog.transports.mysql_second_opinion import check_metadata, other_rows
    from ingest.binlog.transports.mysql_transport import MysqlTransport

    transport = MysqlTransport(replace(address, follow=False, server_id=0))
    check_metadata(address)
    try:
        begin = parse_position(start) if start else transport.first()
    except ValueError as error:
        raise UsageError(f"--from {start}: {error}", "write FILE:POSITION") from error
    if not begin.file:
        raise UsageError(f"--from {start}: the name of the file is missing", "write FILE:POSITION")
    end, comparison = transport.head(), DecoderComparison(hides=hides, filtered=wanted is not None)
    reader = BinlogReader(transport, BinlogPosition(file=begin.file, position=begin.position),
                          StreamOptions(tables=wanted))  # fmt: skip

    def differences() -> Iterator[DecoderDifference]:
        with closing(other_rows(address, begin, end, wanted)) as others:
            yield from comparison.compare(_ours(reader, end, comparison), others)

    return comparison, differences()


def _ours(reader: BinlogReader, end: BinlogPosition, comparison: DecoderComparison) -> Iterator[RowBatch]:
    """Yield the rows events of the reader up to a place, and print the progress to the standard error."""
    from ingest.binlog.reading.second_opinion import ordered, place_of
    from ingest.binlog.reading.stream import RowBatch

    printed = time.monotonic()
    for change in reader.changes():
        if not isinstance(change, RowBatch):
            continue
        if place_of(change) > ordered(end.file, end.position):
            return
        yield change
        if time.monotonic() - printed > _EVERY:
            printed, counts = time.monotonic(), comparison.counts
            where = f"{change.raw.where} of {end.file}:{end.position}"
            print(f"at {where}: {counts['rows']} rows, {counts['differences']} differences", file=sys.stderr)


def _target(target: str, source: str, tables: str, hide: str) -> tuple[ServerAddress, TableFilter | None, Hides]:
    """Return the server, the filter of its tables, and the function that says which columns appear without values."""
    from cdc.model.identifiers import fold_identifier
    from ingest.binlog.transports.uri import FileAddress, parse_uri

    named = {fold_identifier(one.strip()) for one in hide.split(",") if one.strip()}
    if bad := sorted(one for one in named if one.count(".") != 2):
        raise UsageError(f"--hide {bad[0]}: not a column", "write database.table.column")
    wanted = tables_filter(tables)
    if "://" not in target:
        return _of_topology(target, source, wanted, named)
    address = parse_uri(target)
    if isinstance(address, FileAddress):
        raise UsageError(f"{target} is a file", "give a server: mysql://user:password@host:port")
    return address, wanted, lambda table, column: fold_identifier(f"{table}.{column}") in named


def _of_topology(
    file: str, source: str, wanted: TableFilter | None, named: set[str]
) -> tuple[ServerAddress, TableFilter | None, Hides]:
    from cdc.model.identifiers import fold_identifier
    from cdc.model.schema import TableId
    from cdc.process.file_topology import load_topology
    from ingest.binlog.reading.second_opinion import TableFilter
    from ingest.mysql.mysql_connection import address_of
    from ingest.run_capture import choose

    one = choose(load_topology(file), source or None)
    if one.type not in ("mysql", "mariadb") or one.poll is not None:
        raise UsageError(f"source {one.name} has no binlog", "choose a source of MySQL or MariaDB by --source")

    def table_of(database: str, table: str) -> TableId:
        return TableId(source=one.name, database=database, table=table)

    def captured(database: str, table: str) -> bool:
        return one.captures(table_of(database, table)) and (wanted is None or wanted(database, table))

    def hides(table: str, column: str) -> bool:
        rule = one.rule_of(table_of(*table.split(".", 1)))
        return (rule is not None and rule.hides(column)) or fold_identifier(f"{table}.{column}") in named

    accepted = TableFilter(accepts=captured, names=wanted.names if wanted is not None else frozenset())
    return address_of(one), accepted, hides
