"""Read with Tailorbird's library: `open_reader` on the server, rows as dictionaries in its native flavour."""

from __future__ import annotations

import time
from calendar import timegm
from datetime import date, datetime
from importlib.metadata import version
from typing import Any, Final

from benchmarks.decode.canonical import Checksum, double_text, json_text
from benchmarks.decode.reading import Request, answer, parse_request
from benchmarks.decode.workload import COLUMNS
from ingest.binlog import BinlogPosition, RowBatch, open_reader

_EPOCH: Final = date(1970, 1, 1).toordinal()


def _seconds(text: str) -> int:
    return timegm(datetime.fromisoformat(text).timetuple())


def _texts(row: dict[str, Any]) -> list[bytes]:
    values = [row[name] for name in COLUMNS]
    identity, qty, price, ratio, name, note, made, touched, due, attrs, kind, token = values
    return [
        b"%d" % identity,
        b"%d" % qty,
        price.encode(),
        b"\0" if ratio is None else double_text(ratio),
        name.encode(),
        b"\0" if note is None else note.encode(),
        b"%d" % (_seconds(made[:19]) * 1_000_000 + int(made[20:])),
        b"%d" % _seconds(touched),
        b"\0" if due is None else b"%d" % (date.fromisoformat(due).toordinal() - _EPOCH),
        json_text(attrs),
        kind.encode(),
        token,
    ]


def _sum(checksum: Checksum, batch: RowBatch) -> None:
    for row in batch.rows:
        if batch.operation == "update":
            before, after = row
            checksum.add(_texts(before), _texts(after))
        elif batch.operation == "insert":
            checksum.add(None, _texts(row))
        else:
            checksum.add(_texts(row), None)


def read(request: Request) -> str:
    """Read the requested number of changes; return the answer with the time that it took."""
    uri = f"mysql://{request.user}:{request.password}@127.0.0.1:{request.port}?ssl=off&follow=0"
    reader = open_reader(uri, BinlogPosition(file=request.file, position=request.position))
    checksum = Checksum() if request.check else None
    counts = {"insert": 0, "update": 0, "delete": 0}
    left = request.changes
    began = used = 0.0
    for change in reader.changes():
        if not isinstance(change, RowBatch):
            continue
        if not began:
            began, used = time.perf_counter(), time.process_time()
        rows = len(change.rows)
        counts[change.operation] += rows
        if checksum:
            _sum(checksum, change)
        left -= rows
        if left <= 0:
            break
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    reader.close()
    return answer(
        version=version("tailorbird"),
        counts=(counts["insert"], counts["update"], counts["delete"]),
        seconds=seconds,
        cpu=cpu,
        checksum=checksum,
    )


if __name__ == "__main__":
    print(read(parse_request()))
