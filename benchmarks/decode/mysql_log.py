"""Run a private MySQL 8.0 with both binlogs, which are created once, kept in the cache, and read by every library.

The server is the one of the local stack, with its own home folder and port. It does not sync to disk, because the data
can be created again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pymysql

from benchmarks.decode.workload import DATABASE, Shape, fingerprint
from cdc.model.errors import TailorbirdError, UsageError
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import locked
from tailorbird.devtools.stack.settings import LOAD_LOGIN, Ports, StackSettings

Report = Callable[[str], None]
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The place where a shape's changes begin.

    `position` is an offset in `file`, `gtids` are the earlier transactions, `size` is in bytes.
    """

    file: str
    position: int
    gtids: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServer:
    """A running server, its version, and the place of each shape by name."""

    port: int
    version: str
    places: dict[str, LogPlace]


@contextmanager
def serve_logs(cache: Path, shapes: tuple[Shape, ...], port: int, report: Report) -> Iterator[LogServer]:
    """Start the server, create the binlogs if they do not exist yet, and stop the server at the end."""
    kept = cache / "bench-decode" / f"log-{fingerprint(shapes)}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    # A second run waits: it would share the server, and the first to end would stop it.
    with locked(kept.parent / "lock"):
        yield from _serve(kept, cache, shapes, port, report)


def _serve(kept: Path, cache: Path, shapes: tuple[Shape, ...], port: int, report: Report) -> Iterator[LogServer]:
    manifest = kept / "places.json"
    if kept.exists() and not manifest.exists():
        # the generation was interrupted: its incomplete binlog must not be measured
        shutil.rmtree(kept)
    stack = Stack(StackSettings(home=kept / "stack", cache=cache, ports=Ports(mysql_shop=port)))
    report(f"starting MySQL on port {port}")
    try:
        _start(stack, port)
        with _connected(port) as cursor:
            if not manifest.exists():
                places = _make(cursor, shapes, report)
                manifest.write_text(json.dumps({name: asdict(place) for name, place in places.items()}))
            places = {name: LogPlace(**place) for name, place in json.loads(manifest.read_text()).items()}
            _check_present(cursor, places, kept)
            cursor.execute("SELECT VERSION()")
            version = str(cursor.fetchall()[0][0])
        yield LogServer(port=port, version=version, places=places)
    except pymysql.MySQLError as error:
        raise TailorbirdError(f"MySQL: {error.args[-1]}", f"remove {kept} and repeat") from error
    finally:
        stack.stop("mysql-shop")


def _start(stack: Stack, port: int) -> None:
    try:
        stack.up(services=["mysql-shop"])
    except UsageError as error:
        if f"port {port}" in error.message:
            raise UsageError(error.message, "choose another with --port") from error
        raise


@contextmanager
def _connected(port: int) -> Iterator[pymysql.cursors.Cursor]:
    login = LOAD_LOGIN
    with (
        pymysql.connect(
            host=HOST, port=port, user=login.user, password=login.password, autocommit=True, charset="utf8mb4"
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def _make(cursor: pymysql.cursors.Cursor, shapes: tuple[Shape, ...], report: Report) -> dict[str, LogPlace]:
    for setting in ("sync_binlog = 0", "innodb_flush_log_at_trx_commit = 0"):
        cursor.execute(f"SET GLOBAL {setting}")
    cursor.execute(f"CREATE DATABASE {DATABASE}")
    for shape in shapes:
        for statement in shape.preparation:
            cursor.execute(statement)
    places: dict[str, LogPlace] = {}
    for shape in shapes:
        report(f"creating the {shape.name} binlog of {shape.changes:,} changes (kept for later runs)")
        began = time.monotonic()
        cursor.execute("FLUSH BINARY LOGS")
        file, position, gtids = _position(cursor)
        for statement in shape.statements:
            cursor.execute(statement)
        end_file, end, _ = _position(cursor)
        if end_file != file:
            raise TailorbirdError(f"the {shape.name} binlog does not fit into one file", "request fewer changes")
        places[shape.name] = LogPlace(file=file, position=position, gtids=gtids, size=end - position)
        report(f"created {(end - position) / 1e6:,.0f} MB in {time.monotonic() - began:.0f} s")
    return places


def _position(cursor: pymysql.cursors.Cursor) -> tuple[str, int, str]:
    cursor.execute("SHOW MASTER STATUS")
    file, position, _, _, gtids = cursor.fetchall()[0]
    return str(file), int(position), str(gtids).replace("\n", "")


def _check_present(cursor: pymysql.cursors.Cursor, places: dict[str, LogPlace], kept: Path) -> None:
    cursor.execute("SHOW BINARY LOGS")
    present = {row[0] for row in cursor.fetchall()}
    for name, place in places.items():
        if place.file not in present:
            raise TailorbirdError(f"the server has purged {place.file}, the {name} binlog", f"remove {kept} and repeat")
