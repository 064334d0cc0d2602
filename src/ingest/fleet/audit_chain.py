"""Chain of audit lines: each line has the hash of the previous line of its writer, so that a removed line is noticed.

A writer is one process, since several gateways write one topic. The hash needs no key: who may write to the topic could
add lines, but could not remove or change one of another writer without a trace, unless they rewrite all later lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

KEY = "chain"  # in a line: [writer, number, hash]


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The last line of a writer: its number, and its hash in hexadecimal."""

    writer: str
    number: int = 0
    hash: str = ""

    def after(self, line: Mapping[str, Any]) -> ChainEnd:
        """Return the end after one more line, which does not yet have the key `chain`."""
        text = orjson.dumps(line, option=orjson.OPT_SORT_KEYS)
        found = hashlib.sha256(self.hash.encode() + text).hexdigest()[:32]
        return ChainEnd(self.writer, self.number + 1, found)


def chained(line: Mapping[str, Any], end: ChainEnd) -> dict[str, Any]:
    """Return a line with its place, which is `end`."""
    return {**line, KEY: [end.writer, end.number, end.hash]}


def faults(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is missing or changed among lines in the topic's order. The first lines may have expired.

    Lines of versions without a chain are skipped. The last lines of a writer can be removed without a trace.
    """
    ends = dict[str, ChainEnd]()
    for line in lines:
        if KEY not in line:
            continue
        if not _is_chain(line[KEY]):
            yield f"a line has no valid place in a chain, but {str(line[KEY])[:80]!r}"
            continue
        writer, number, shown = line[KEY]
        before = ends.get(writer)
        if before is not None and number != before.number + 1:
            yield f"writer {writer}: line {before.number} is followed by line {number}"
        elif before is not None:
            content = {name: value for name, value in line.items() if name != KEY}
            if before.after(content).hash != shown:
                yield f"writer {writer}: line {number}, or the one before it, was changed"
        ends[writer] = ChainEnd(writer, number, shown)


def _is_chain(found: Any) -> bool:
    return isinstance(found, list) and [type(one) for one in found] == [str, int, str]
