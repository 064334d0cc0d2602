"""`tailorbird binlog …`: read binlogs from files and servers, without the rest of the pipeline."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc.model.errors import TailorbirdError, UsageError
from tailorbird.cli.capture.cli_binlog_compare import compare, tables_filter

if TYPE_CHECKING:
    from ingest.binlog.reading.events import RawEvent
    from ingest.binlog.reading.position import BinlogPosition
    from ingest.binlog.reading.reader import Transport
    from ingest.binlog.reading.stream import StreamOptions

app = typer.Typer(
    no_args_is_help=True,
    help="Read binlogs of MySQL and MariaDB.\n\nExample: tailorbird binlog dump /var/lib/mysql/binlog.000012 --stats",
)

_Uris = Annotated[list[str], typer.Argument(metavar="URI…", help="mysql://…, mariadb://…, file:///… or a path")]


@app.command()
def dump(
    uris: _Uris,
    start: Annotated[
        str, typer.Option("--from", help="FILE:POSITION, POSITION, or a GTID set; default: the oldest available")
    ] = "",
    tables: Annotated[str, typer.Option(help="only these, e.g. shop.orders,crm.*")] = "",
    events: Annotated[bool, typer.Option("--events", help="every event instead of row changes")] = False,
    output: Annotated[str, typer.Option("--format", help="jsonl, text or none")] = "jsonl",
    stats: Annotated[bool, typer.Option("--stats", help="counts and changes/s at the end")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="follow a server's new events until Ctrl-C")] = False,
    unknown_sign: Annotated[
        str, typer.Option(help="integers whose sign the binlog does not contain: refuse, signed or unsigned")
    ] = "refuse",
    as_json: Annotated[
        bool, typer.Option("--json", help="the same as --format jsonl; --stats as one JSON line")
    ] = False,
) -> None:
    """Print the row changes of binlogs in commit order.

    Exit code 3: a file is corrupt; the message has the file and the offset.

    Example: tailorbird binlog dump mysql://cdc:cdc@127.0.0.1:3307 --tables shop.orders

    Example: tailorbird binlog dump binlog.index --format none --stats
    """
    if output not in ("jsonl", "text", "none"):
        raise UsageError(f"--format {output}: unknown format", "choose jsonl, text or none")
    begin, options = _begin(start), _options(unknown_sign, tables)
    printer = _Printer("jsonl" if as_json else output)
    started = time.perf_counter()
    failure: TailorbirdError | None = None
    try:
        for uri in uris:
            transport, place = _open(uri, begin, follow)
            (printer.events if events else printer.changes)(transport, place, options)
    except TailorbirdError as error:
        failure = error
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe; this suppresses the interpreter's message about the flush
        raise typer.Exit(0) from None
    sys.stdout.buffer.flush()
    if stats:
        printer.statistics(time.perf_counter() - started, as_json)
    if failure is not None:
        if not stats:
            print(f"read before the error: {printer.summary()}", file=sys.stderr)
        print(f"tailorbird: {failure}", file=sys.stderr)
        raise typer.Exit(failure.exit_code)


def _begin(start: str) -> BinlogPosition:
    from ingest.binlog.reading.position import BinlogPosition, parse_position

    try:
        return parse_position(start) if start else BinlogPosition()
    except ValueError as error:
        raise UsageError(f"--from {start}: {error}", "write FILE:POSITION or a GTID set") from error


def _options(unknown_sign: str, tables: str) -> StreamOptions:
    from ingest.binlog.format.flavour import Flavour
    from ingest.binlog.reading.stream import StreamOptions

    if unknown_sign not in ("refuse", "signed", "unsigned"):
        raise UsageError(f"--unknown-sign {unknown_sign}", "write refuse, signed or unsigned")
    flavour = Flavour(unknown_sign=unknown_sign)  # type: ignore[arg-type]  # checked above
    return StreamOptions(flavour=flavour, tables=tables_filter(tables))


def _open(uri: str, begin: BinlogPosition, follow: bool) -> tuple[Transport, BinlogPosition]:
    from dataclasses import replace

    from ingest.binlog.reading.position import BinlogPosition
    from ingest.binlog.transports.file_transport import FileTransport
    from ingest.binlog.transports.mysql_transport import MysqlTransport
    from ingest.binlog.transports.uri import FileAddress, parse_uri

    address = parse_uri(uri)
    if isinstance(address, FileAddress):
        return FileTransport(address.path), begin
    server = MysqlTransport(replace(address, follow=follow))
    if begin == BinlogPosition():
        return server, server.first()
    return server, begin


class _Printer:
    """Writes and counts changes or events."""

    def __init__(self, form: str) -> None:
        from ingest.binlog.reading.jsonl import JsonLines

        self._form = form
        self._lines = JsonLines()
        self._counts: Counter[str] = Counter()
        self._last: RawEvent | None = None

    def changes(self, transport: Transport, begin: BinlogPosition, options: StreamOptions) -> None:
        """Write every change of a transport in the chosen format."""
        from ingest.binlog.reading.reader import BinlogReader
        from ingest.binlog.reading.stream import RowBatch

        reader = BinlogReader(transport, begin, options)
        counts, write = self._counts, sys.stdout.buffer.write
        none = self._form == "none"
        for change in reader.changes():
            if isinstance(change, RowBatch):
                counts[change.operation] += len(change.rows)
                self._last = change.raw
            if none:
                continue
            for line in self._lines.lines(change):
                write(_as_text(line) if self._form == "text" else line)
                write(b"\n")
            while self._lines.warnings:
                print(f"warning: {self._lines.warnings.pop(0)}", file=sys.stderr)

    def events(self, transport: Transport, begin: BinlogPosition, options: StreamOptions) -> None:
        """Write every event of a transport, one line each."""
        from ingest.binlog.reading.reader import BinlogReader

        reader = BinlogReader(transport, begin, options)
        write = sys.stdout.buffer.write
        for raw in reader.raw_events():
            event = reader.stream.typed(raw)
            self._counts[event.name] += 1
            self._last = raw
            if self._form == "none":
                continue
            facts = dict(_facts(event))
            if self._form == "text":
                rest = " ".join(f"{name}={value}" for name, value in facts.items() if name not in ("event", "at"))
                write(f"{facts['at']:<28} {facts['event']:<22} {rest}\n".encode())
            else:
                write(_json(facts) + b"\n")

    def summary(self) -> str:
        """Return the counts as text, with the position of the last counted event."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self._counts.items())) or "nothing"
        return f"{counts} (last at {self._last.where})" if self._last else counts

    def statistics(self, seconds: float, as_json: bool) -> None:
        """Print the counts and the rate; the rate line is `N changes/s`."""
        total = sum(self._counts.values())
        rate = total / seconds if seconds else 0.0
        if as_json:
            line = {**self._counts, "changes": total, "seconds": round(seconds, 3), "changes_per_second": round(rate)}
            print(_json(line).decode())
            return
        print(self.summary(), file=sys.stderr if self._form != "none" else sys.stdout)
        print(f"{rate:.0f} changes/s", file=sys.stderr if self._form != "none" else sys.stdout)


def _as_text(line: bytes) -> bytes:
    import orjson

    change = orjson.loads(line)
    name = f"{change['db']}.{change['table']}"
    if change["op"] == "rename":
        return f"rename {name} to {change['to_db']}.{change['to_table']}".encode()
    images = [f"{image}: {orjson.dumps(change[image]).decode()}" for image in ("before", "after") if image in change]
    return " ".join([change["op"], name, *images]).encode()


def _json(value: Any) -> bytes:
    import orjson

    def default(item: Any) -> Any:
        return {"hex": item.hex()} if isinstance(item, bytes) else str(item)

    return orjson.dumps(value, default=default, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _facts(event: Any) -> Iterator[tuple[str, Any]]:
    from ingest.binlog.reading.events import Rows, TableMapped

    yield "event", event.name
    yield "at", f"{event.file}:{event.offset}"
    yield "timestamp", event.header.timestamp
    yield "server_id", event.header.server_id
    if isinstance(event, TableMapped):
        yield "table_id", event.table.table_id
        yield "table", event.table.name
        yield "columns", {column.name: column.type.name for column in event.table.columns}
        return
    if isinstance(event, Rows):
        yield "table", event.table.name
        yield "rows", len(event.rows())
        return
    if is_dataclass(event):
        for field in fields(event):
            if field.name not in ("header", "file", "offset"):
                yield field.name, getattr(event, field.name)


@app.command()
def position(
    uri: Annotated[str, typer.Argument(metavar="URI", help="mysql://… or mariadb://…")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Print a server's newest position and GTID set, for `--from`.

    Example: tailorbird binlog position mysql://cdc:cdc@127.0.0.1:3307
    """
    from ingest.binlog.transports.mysql_transport import MysqlTransport
    from ingest.binlog.transports.uri import FileAddress, parse_uri

    address = parse_uri(uri)
    if isinstance(address, FileAddress):
        raise UsageError(f"{uri} is a file", "give a server: mysql://user:password@host:port")
    head = MysqlTransport(address).head()
    if as_json:
        gtids = None if head.gtids is None else str(head.gtids)
        print(_json({"file": head.file, "position": head.position, "gtids": gtids}).decode())
    else:
        print(f"{head.file}:{head.position}" + (f"\n{head.gtids}" if head.gtids else ""))


app.command("compare")(compare)
