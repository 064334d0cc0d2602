"""Convert syslog messages to log events: rows of `messages`, the only table of a syslog source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.ddl.catalog import ColumnDefinition, Key, TableDefinition
from ingest.events.log_events import (
    CAUGHT_UP,
    Image,
    LogEvent,
    RefusedImage,
    RowsLogged,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.records.capture_interfaces import Checkpoint
from ingest.syslog.lines import parsed

TABLE, LOG = "messages", "syslog"
COLUMNS = (
    ("id", "varchar(32)"), ("received", "timestamp(6)"), ("host", "varchar(255)"), ("app", "varchar(48)"),
    ("proc", "varchar(128)"), ("msgid", "varchar(32)"), ("facility", "varchar(8)"), ("severity", "tinyint"),
    ("timestamp", "timestamp(6)"), ("structured", "json"), ("text", "longtext"),
)  # fmt: skip
HEADER = ("host", "app", "proc", "msgid", "timestamp", "structured")  # columns that may be part of the text otherwise
_REQUIRED = ("id", "received", "facility", "severity", "text")
DEFINITION = TableDefinition(
    columns=tuple(
        ColumnDefinition(name=name, column_type=kind, nullable=name not in _REQUIRED, charset=None)
        for name, kind in COLUMNS
    ),
    keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),),
)


class ReceivedMessage(NamedTuple):
    """A message with the time of its arrival (UTC) and its sender (`udp 10.0.0.7`)."""

    data: bytes
    at: dt.datetime
    sender: str


class SyslogFeed(Protocol):
    """Endless iterator over messages; it yields None when no message is waiting."""

    def __iter__(self) -> Iterator[ReceivedMessage | None]: ...


class SyslogEvents:
    """Iterator over the log events of one feed.

    `own` is a text, unique per process, that is part of the row keys, because a clock may return the same time twice.
    `hides_header`: columns of the header are not published, so neither is a message whose text may contain them.
    """

    gtid_set = ""
    state: Mapping[str, Any] = {}  # empty, because messages cannot be received again

    def __init__(
        self, feed: SyslogFeed, table: TableId, start: Checkpoint, own: str, idle: Callable[[], bool], *,
        hides_header: bool = False,
    ) -> None:  # fmt: skip
        self._feed, self._table, self._own, self._idle = feed, table, own, idle
        self._hides_header = hides_header
        self._count = start.position.pos

    @property
    def place(self) -> tuple[str, int]:
        """Return the number of messages received so far, in the form of a position."""
        return LOG, self._count

    def reached(self, position: Position) -> bool:
        """Return whether at least as many messages were received as the position counts."""
        return self._count >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        for one in self._feed:
            if one is None:
                if self._idle():
                    yield CAUGHT_UP
                continue
            self._count += 1
            image = self._image(one)
            began = TransactionBegan("", int(one.at.timestamp() * 1_000_000), 0, LOG, self._count)
            plain = not isinstance(image, RefusedImage)
            rows = RowsLogged(self._table, "insert", [image], plain, LOG, self._count)
            yield TransactionLogged(began, rows, TransactionEnded(LOG, self._count))

    def _image(self, one: ReceivedMessage) -> Image:
        micros = int(one.at.timestamp() * 1_000_000)
        try:
            message = parsed(one.data, one.at)
        except ValueError as error:
            shown = one.data[:2000].decode(errors="replace")
            values = {"data": shown, "sender": one.sender}
            return RefusedImage(values=values, why=f"not a syslog message: {error}", raw=True)
        if self._hides_header and not message.header:
            return RefusedImage(values={}, why="its text may contain fields of its header that are hidden", raw=True)
        return {
            "id": f"{micros:014x}-{self._own}-{self._count:x}"[:32],
            "received": _shown(one.at),
            "host": message.host,
            "app": message.app,
            "proc": message.proc,
            "msgid": message.msgid,
            "facility": message.facility,
            "severity": message.severity,
            "timestamp": None if message.at is None else _shown(message.at),
            "structured": orjson.dumps(message.structured).decode() if message.structured else None,
            "text": message.text,
        }


def _shown(at: dt.datetime) -> str:
    text = at.replace(tzinfo=None).isoformat(timespec="microseconds")
    return text.rstrip("0").rstrip(".") + "Z"
