"""Encode records as one stream of bytes, which may be split into messages at any byte.

A frame is a header of 13 bytes and its content. Kind 0 names a topic: each topic is named once per session, and topics
are numbered from 0 in that order. Kind 1 is a record: topic number, partition, lengths of key and value, key, value. So
a record of megabytes is sent in messages of at most `PIECE` bytes, with an overhead of 13 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from cdc.compression import zstd
from cdc.model.errors import Fatal
from ingest.records.capture_interfaces import Record

PIECE = 256 * 1024  # bytes of a message, before compression
LONGEST = 16 * 1024 * 1024  # maximum bytes of a frame: the longest record that Kafka accepts
SAME = "check that agent and gateway run the same version"
_HEAD = struct.Struct(">BHiHi")  # kind, topic, partition, bytes of the key, bytes of the value (-1: a tombstone)
_TOPIC, _RECORD = 0, 1
_LEVEL = 1  # compression level of zstd: records of a table are similar, and the agent should use little CPU
# base-2 logarithm: decompression allocates at most 1 MiB
_WINDOW: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 20}
_KEYED = -2  # stands for no partition, so that the key's hash selects one; -1 means all partitions
_TOPICS, _LONGEST_KEY = 1 << 16, (1 << 16) - 1


def zipped(content: bytes) -> bytes:
    """Compress bytes at the level that uses the least CPU on the database's host."""
    return zstd.compress(content, _LEVEL)


def unzipped(content: bytes, most: int) -> bytes:
    """Decompress; inverse of `zipped`.

    Raises ValueError if the content is malformed, truncated, or longer than `most` bytes. It never allocates more.
    """
    reader = zstd.ZstdDecompressor(options=_WINDOW)
    try:
        found = reader.decompress(content, max_length=most)
        more = b"" if reader.eof else reader.decompress(b"", max_length=1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    if more or not reader.eof or reader.unused_data:
        raise ValueError(f"more than {most} bytes, or truncated")
    return found


class FrameWriter:
    """Encodes the records of one session into messages; `records` is their number."""

    def __init__(self) -> None:
        self.records = 0
        self._topics: dict[str, int] = {}
        self._pending = bytearray()

    def write(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Add records, and yield each message that is full. Raises ValueError if a key is too long, or there are too
        many topics."""
        pending, pack = self._pending, _HEAD.pack
        for topic, key, value, partition in records:
            number = self._topics.get(topic)
            if number is None:
                number = self._named(topic)
            if len(key) > _LONGEST_KEY:
                raise ValueError(f"a key of {len(key)} bytes")
            place = _KEYED if partition is None else partition
            pending += pack(_RECORD, number, place, len(key), -1 if value is None else len(value)) + key
            if value is not None:
                pending += value
            self.records += 1
            if len(pending) >= PIECE:
                yield from self._pieces(PIECE)

    def rest(self) -> Iterator[bytes]:
        """Yield the last message, which is not full."""
        return self._pieces(1)

    def _named(self, topic: str) -> int:
        number = self._topics[topic] = len(self._topics)
        if number >= _TOPICS:
            raise ValueError(f"more than {_TOPICS} topics")
        name = topic.encode()
        self._pending += _HEAD.pack(_TOPIC, number, 0, len(name), -1) + name
        return number

    def _pieces(self, least: int) -> Iterator[bytes]:
        while len(self._pending) >= least:
            piece = bytes(self._pending[:PIECE])
            del self._pending[:PIECE]
            yield piece


class FrameReader:
    """Decodes the messages of one `FrameWriter`; `records` is the number of records so far."""

    def __init__(self) -> None:
        self.records = 0
        self._topics: list[str] = []
        self._pending = bytearray()

    def read(self, piece: bytes) -> list[Record]:
        """Return the records that end in this message. Raises Fatal if the bytes are malformed."""
        self._pending += piece
        found, at, data = list[Record](), 0, bytes(self._pending)
        while len(data) - at >= _HEAD.size:
            kind, topic, partition, key_size, value_size = _HEAD.unpack_from(data, at)
            begins = at + _HEAD.size
            ends = begins + key_size + max(0, value_size)
            if kind > _RECORD or value_size < -1 or value_size > LONGEST:
                raise Fatal("the bytes on the stream are not records", SAME)
            if ends > len(data):
                break
            if kind == _TOPIC:
                self._name(topic, data[begins:ends])
            else:
                value = None if value_size < 0 else data[begins + key_size : ends]
                found.append(self._record(topic, partition, data[begins : begins + key_size], value))
            at = ends
        del self._pending[:at]
        self.records += len(found)
        return found

    @property
    def complete(self) -> bool:
        """Return whether the last frame is complete."""
        return not self._pending

    def _name(self, number: int, name: bytes) -> None:
        if number != len(self._topics):
            raise Fatal("a topic has an unexpected number", SAME)
        try:
            self._topics.append(name.decode())
        except UnicodeDecodeError as error:
            raise Fatal("a topic's name is not UTF-8 text", SAME) from error

    def _record(self, topic: int, partition: int, key: bytes, value: bytes | None) -> Record:
        if topic >= len(self._topics) or partition < _KEYED:
            raise Fatal("a record refers to an unknown topic", SAME)
        return Record(self._topics[topic], key, value, None if partition == _KEYED else partition)
