"""Process data that may exceed memory in parts: the messages of a batch at the sink, and keys of former runs.

A batch has about as many changes as configured. The exception are the deletes that a marker causes (TRUNCATE, the
end of a repeated snapshot): there may be as many as the table has rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from joins.runtime.records import ROW_GONE, ROW_PUT, Message

_ROWS = 10_000
_FOLDED = 50_000
_KEYS = 250_000


def folded(messages: Iterable[Message], most: int = _FOLDED) -> Iterator[list[Message]]:
    """Yield the newest message of each row, in lists. For plans in which no step has merged the messages of a row.

    Dead letters and truncation points pass unchanged. Messages of a row arrive in the order of the log. If there are
    more than `most` rows, deletes are emitted early. So a delete may be written before a put of the same batch, but
    never instead of it."""
    newest: dict[bytes, Message] = {}
    limit = most
    for message in messages:
        if message.op not in (ROW_PUT, ROW_GONE):
            yield [message]
        elif message.k not in newest or message.v >= newest[message.k].v:
            newest[message.k] = message
            if len(newest) > limit:
                yield [one for one in newest.values() if one.op == ROW_GONE]
                newest = {k: one for k, one in newest.items() if one.op == ROW_PUT}
                limit = max(most, 2 * len(newest))
    yield list(newest.values())


def whole_rows(messages: Iterable[Message], most: int = _ROWS) -> Iterator[list[Message]]:
    """Yield messages, which are sorted by `k`, in lists of about `most`. The messages of a row are in one list."""
    chunk: list[Message] = []
    for message in messages:
        if len(chunk) >= most and message.k != chunk[-1].k:
            yield chunk
            chunk = []
        chunk.append(message)
    if chunk:
        yield chunk


def stale_keys(
    read: Callable[[], Iterable[tuple[bytes, str | None]]], run: str, most: int = _KEYS
) -> Iterator[list[bytes]]:
    """Yield the keys whose newest record was written by another run than `run`, in lists of at most `most`.

    `read` starts reading the topic: it yields the key of every record with its run, or None for a tombstone. If
    there are more keys than `most`, half of them are left for another read."""
    shares = [(0, 1)]  # remainder and divisor of keys' hashes
    while shares:
        remainder, divisor = shares.pop()
        found: set[bytes] = set()
        for key, of in read():
            if zlib.crc32(key) % divisor != remainder:
                continue
            if of is None or of == run:
                found.discard(key)
                continue
            found.add(key)
            while len(found) > most:
                shares.append((remainder + divisor, 2 * divisor))
                divisor *= 2
                found = {key for key in found if zlib.crc32(key) % divisor == remainder}
        yield list(found)
