"""Sets of transactions: MySQL's GTID sets (with tags), and MariaDB's last GTID per domain.

Both classes have the same operations, such as adding a transaction and testing membership. Values are immutable; a
reader replaces its set at the end of each transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ingest.binlog.format.packed import I64, U64, encode_variable, take, variable_unsigned

Intervals = tuple[tuple[int, int], ...]
Source = tuple[str, str]

_TAG: Final = re.compile(r"^[a-z_][a-z0-9_]{0,31}$")


def _merge(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the intervals (half-open, sorted) with [low, high) added."""
    if intervals and intervals[-1][1] == low:
        return (*intervals[:-1], (intervals[-1][0], high))
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*intervals, (low, high))):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A MySQL GTID set: half-open intervals by (server UUID, tag). The tag is empty for a GTID without tag."""

    intervals: Mapping[Source, Intervals] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse a text such as `uuid:1-3:5,uuid:tag:1-2`. Raises ValueError with the invalid part."""
        found: dict[Source, Intervals] = {}
        for part in re.split(r"[,\s]+", text.strip()):
            if not part:
                continue
            head, *rest = part.split(":")
            source = str(UUID(head))
            tag = ""
            if not rest:
                raise ValueError(f"no interval in {part!r}")
            for piece in rest:
                if _TAG.match(piece.lower()):
                    tag = piece.lower()
                    continue
                low, _, high = piece.partition("-")
                first, last = int(low), int(high or low)
                if not 0 < first <= last:
                    raise ValueError(f"not an interval: {piece!r} in {part!r}")
                found[source, tag] = _merge(found.get((source, tag), ()), first, last + 1)
        return cls(found)

    def add(self, source: str, tag: str, number: int, end: int | None = None) -> GtidSet:
        """Return the set with one more transaction, or with those from `number` up to but not including `end`."""
        known = dict(self.intervals)
        known[source, tag] = _merge(known.get((source, tag), ()), number, end or number + 1)
        return GtidSet(known)

    def union(self, other: GtidSet) -> GtidSet:
        """Return the set of the transactions in either set."""
        known = dict(self.intervals)
        for key, intervals in other.intervals.items():
            for low, high in intervals:
                known[key] = _merge(known.get(key, ()), low, high)
        return GtidSet(known)

    def without(self, source: str, tag: str, number: int) -> GtidSet:
        """Return the set without one transaction."""
        known = dict(self.intervals)
        found = known.pop((source, tag), ())
        parts = [part for low, high in found for part in ((low, min(high, number)), (max(low, number + 1), high))]
        if left := tuple((low, high) for low, high in parts if low < high):
            known[source, tag] = left
        return GtidSet(known)

    def contains(self, source: str, tag: str, number: int) -> bool:
        """Return whether the transaction is in the set."""
        return any(low <= number < high for low, high in self.intervals.get((source, tag), ()))

    def holds(self, identity: tuple[str, str, int] | tuple[int, int, int]) -> bool:
        """Return whether a transaction is in the set; False for an identity of MariaDB."""
        source, tag, number = identity
        return isinstance(source, str) and isinstance(tag, str) and self.contains(source, tag, number)

    def covers(self, other: GtidSet) -> bool:
        """Return whether every transaction of `other` is in this set."""
        return all(
            any(first <= low and high <= last for first, last in self.intervals.get(key, ()))
            for key, intervals in other.intervals.items()
            for low, high in intervals
        )

    def __str__(self) -> str:
        texts: dict[str, str] = {}
        for (source, tag), intervals in sorted(self.intervals.items()):
            parts = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in intervals]
            text = ":".join(([tag] if tag else []) + parts)
            texts[source] = f"{texts[source]}:{text}" if source in texts else f"{source}:{text}"
        return ",".join(texts.values())

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def encode(self) -> bytes:
        """Encode the set for COM_BINLOG_DUMP_GTID; in the tagged form only if a tag requires it."""
        tagged = any(tag for _, tag in self.intervals)
        count = len(self.intervals)
        head = (count << 8 | 1 | 1 << 56) if tagged else count
        parts = [head.to_bytes(8, "little")]
        for (source, tag), intervals in sorted(self.intervals.items()):
            parts.append(UUID(source).bytes)
            if tagged:
                parts.append(encode_variable(len(tag)) + tag.encode())
            parts.append(len(intervals).to_bytes(8, "little"))
            parts += [low.to_bytes(8, "little") + high.to_bytes(8, "little") for low, high in intervals]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> GtidSet:
        """Decode the body of a PREVIOUS_GTIDS event; inverse of `encode`. Raises ValueError for impossible counts."""
        head = U64(data, 0)[0]
        tagged = head >> 56 == 1
        count = head >> 8 & 0xFFFFFFFFFFFF if tagged else head
        at = 8
        found: dict[Source, Intervals] = {}
        if count > len(data):
            raise ValueError(f"{count} sources in {len(data)} bytes")
        for _ in range(count):
            raw, at = take(data, at, 16)
            tag = b""
            if tagged:
                size, at = variable_unsigned(data, at)
                tag, at = take(data, at, size)
            number = U64(data, at)[0]
            at += 8
            if number > len(data):
                raise ValueError(f"{number} intervals in {len(data)} bytes")
            key = (str(UUID(bytes=raw)), tag.decode())
            for _ in range(number):
                found[key] = _merge(found.get(key, ()), I64(data, at)[0], I64(data, at + 8)[0])
                at += 16
        return cls(found)


@dataclass(frozen=True, slots=True)
class MariaGtidSet:
    """A MariaDB position: the last (server, sequence number) of each domain."""

    domains: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MariaGtidSet:
        """Parse a text such as `0-1-5,1-1-7`. Raises ValueError with the invalid part."""
        found: dict[int, tuple[int, int]] = {}
        for part in re.split(r"[,\s]+", text.strip()):
            if not part:
                continue
            numbers = part.split("-")
            if len(numbers) != 3:
                raise ValueError(f"not a MariaDB GTID: {part!r}")
            domain, server, sequence = map(int, numbers)
            found[domain] = (server, sequence)
        return cls(found)

    def add(self, domain: int, server: int, sequence: int) -> MariaGtidSet:
        """Return the position after one more transaction."""
        return MariaGtidSet({**self.domains, domain: (server, sequence)})

    def holds(self, identity: tuple[str, str, int] | tuple[int, int, int]) -> bool:
        """Return whether a transaction is not after the position of its domain; False for an identity of MySQL."""
        domain, _, number = identity
        return isinstance(domain, int) and number <= self.domains.get(domain, (0, -1))[1]

    def covers(self, other: MariaGtidSet) -> bool:
        """Return whether each domain's position in `other` is not after the one in this position."""
        return all(number <= self.domains.get(domain, (0, -1))[1] for domain, (_, number) in other.domains.items())

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.domains.items()))

    def __bool__(self) -> bool:
        return bool(self.domains)


AnyGtidSet = GtidSet | MariaGtidSet


def parse_gtid_set(text: str) -> AnyGtidSet:
    """Parse a GTID set of either server: MySQL's begin with a UUID, MariaDB's with a domain number."""
    head = text.strip().split(":", 1)[0]
    if re.fullmatch(r"[\d\-,\s]+", text.strip()) and head.count("-") % 2 == 0 and len(head) != 36:
        return MariaGtidSet.parse(text)
    return GtidSet.parse(text)


def covers(known: AnyGtidSet, wanted: AnyGtidSet) -> bool:
    """Return whether all transactions of `wanted` are in `known`; False for sets of different kinds of server."""
    if isinstance(known, GtidSet) and isinstance(wanted, GtidSet):
        return known.covers(wanted)
    return isinstance(known, MariaGtidSet) and isinstance(wanted, MariaGtidSet) and known.covers(wanted)
