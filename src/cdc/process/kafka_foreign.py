"""Records in internal topics that Tailorbird did not write: they are logged, counted and ignored.

A record of a newer version that cannot be read is logged as such. It ends the process if ignoring it could lose data.

Anyone who may write to such a topic can also forge valid records; only Kafka's access control prevents that. But a
foreign record, such as one of a misconfigured producer, ends no process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
import structlog
from prometheus_client import Counter

from cdc.model.errors import Fatal

T = TypeVar("T")
FORMAT = 1  # of every kind of record that has a format
# what reading the content of a foreign record raises
MALFORMED = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_REMEMBERED = 10_000  # places of ignored records
FOREIGN = Counter("tailorbird_foreign_records", "Records in internal topics that Tailorbird did not write", ["topic"])

log = structlog.get_logger()
_known = OrderedDict[tuple[str, int, int], None]()


def own_record(
    topic: str,
    offset: int | None,
    value: bytes | None,
    read: Callable[[Any], T],
    partition: int | None = 0,
    newest: int = FORMAT,
) -> T | None:
    """Return what `read` makes of a record's JSON value; None for a tombstone and for a foreign record.

    Raises Fatal for a record of a newer version than `newest`, because ignoring it could lose data.
    """

    def current(content: Any) -> T:
        content.get("format")  # a foreign record without fields raises here
        if (number := _newer_format(content)) > newest:
            what = f"{topic}, offset {offset}: a record of format {number}, this version reads format {newest}"
            raise Fatal(what, "run the version of Tailorbird that wrote it, or a newer one")
        return read(content)

    return tolerated(topic, offset, value, current, partition)


def tolerated(
    topic: str, offset: int | None, value: bytes | None, read: Callable[[Any], T], partition: int | None = 0
) -> T | None:
    """Return what `read` makes of a record's JSON value; None for a tombstone and for a record that it cannot read.

    It is for topics of which records of newer versions may be ignored.
    """
    content: Any = None
    try:
        if value is None:
            return None
        content = orjson.loads(value)
        return read(content)
    except MALFORMED as error:
        ignored(topic, offset, error, content, partition)
        return None


def _newer_format(content: object) -> int:
    """Return the number of a record's format if it is newer than this version reads, else 0."""
    number = content.get("format") if isinstance(content, dict) else None
    return number if type(number) is int and number > FORMAT else 0


def ignored(
    topic: str, offset: int | None, error: BaseException, content: object = None, partition: int | None = 0
) -> None:
    """Log an ignored record, and count it if it is foreign, not of a newer version. `content` is its JSON, if it is
    some. It is not logged, because it may be anything.

    It does so once per process and record, because compacted topics are read again and again."""
    place = (topic, partition or 0, -1 if offset is None else offset)
    if place in _known:
        _known.move_to_end(place)
        return
    _known[place] = None
    while len(_known) > _REMEMBERED:
        _known.popitem(last=False)
    if number := _newer_format(content):
        log.warning(
            "ignored a record of a newer format than this version reads", topic=topic, partition=place[1],
            offset=offset, format=number, reads=FORMAT,
            remedy="upgrade: run the version of Tailorbird that wrote it, or a newer one",
        )  # fmt: skip
        return
    FOREIGN.labels(topic).inc()
    log.warning(
        "ignored a record that Tailorbird did not write", topic=topic, partition=place[1], offset=offset,
        why=type(error).__name__, remedy="allow only Tailorbird to write to this topic: tailorbird acls",
    )  # fmt: skip
