"""Read with mysql-replication: `BinLogStreamReader` on the server, including every row's dictionary of values."""

from __future__ import annotations

import time
from calendar import timegm
from datetime import date, datetime
from importlib.metadata import version
from typing import Any, Final

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from benchmarks.decode.canonical import Checksum, Texts, double_text, json_text
from benchmarks.decode.reading import Request, answer, parse_request
from benchmarks.decode.workload import COLUMNS

_EPOCH: Final = date(1970, 1, 1).toordinal()


def _microseconds(value: datetime) -> bytes:
    return b"%d" % (timegm(value.timetuple()) * 1_000_000 + value.microsecond)


def _texts(row: dict[str, Any]) -> list[bytes]:
    values = [row[name] for name in COLUMNS]
    identity, qty, price, ratio, name, note, made, touched, due, attrs, kind, token = values
    return [
        b"%d" % identity,
        b"%d" % qty,
        format(price, "f").encode(),
        b"\0" if ratio is None else double_text(ratio),
        name.encode(),
        b"\0" if note is None else note.encode(),
        _microseconds(made),
        b"%d" % timegm(touched.timetuple()),
        b"\0" if due is None else b"%d" % (due.toordinal() - _EPOCH),
        json_text(attrs),
        kind.encode(),
        token,
    ]


def _images(event: Any, row: dict[str, Any]) -> tuple[Texts, Texts]:
    if isinstance(event, UpdateRowsEvent):
        return _texts(row["before_values"]), _texts(row["after_values"])
    texts = _texts(row["values"])
    return (None, texts) if isinstance(event, WriteRowsEvent) else (texts, None)


def read(request: Request) -> str:
    """Read the requested number of changes; return the answer with the time that it took."""
    stream = BinLogStreamReader(
        {"host": "127.0.0.1", "port": request.port, "user": request.user, "passwd": request.password},
        server_id=9501,
        log_file=request.file,
        log_pos=request.position,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        enable_logging=False,
    )
    checksum = Checksum() if request.check else None
    counts = {WriteRowsEvent: 0, UpdateRowsEvent: 0, DeleteRowsEvent: 0}
    left = request.changes
    began = used = 0.0
    for event in stream:
        # the values are decoded here, at the first access
        rows = event.rows
        if not began:
            began, used = time.perf_counter(), time.process_time()
        counts[type(event)] += len(rows)
        if checksum:
            for row in rows:
                checksum.add(*_images(event, row))
        left -= len(rows)
        if left <= 0:
            break
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    stream.close()
    return answer(
        version=version("mysql-replication"),
        counts=(counts[WriteRowsEvent], counts[UpdateRowsEvent], counts[DeleteRowsEvent]),
        seconds=seconds,
        cpu=cpu,
        checksum=checksum,
    )


if __name__ == "__main__":
    print(read(parse_request()))
