"""What `verify` remembers of the log stage from one run to the next: a file in the topology's home.

Of each table the cut at which it was last found equal, behind which `--changed-since last` looks; and what a run that
was interrupted had done of it, with which `--resume` goes on. The file may be removed: then all rows are compared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.model.errors import Fatal
from ingest.ledger.ledger import Partition
from tailorbird.verify.log.spans import ComparedSpan

# A topic forgets deletes after a week: a cut that is nearly as old does not tell all changes behind it.
OLDEST_MS = 6 * 86_400_000
_EVERY = 1.0  # seconds between two writes of progress


@dataclass(slots=True)
class Progress:
    """How far a table's comparison is: `cut`, `ends` (offsets of what its log held) and `at_ms` are of its beginning,
    `shape` is what its digests are made of."""

    cut: str
    ends: Mapping[Partition, int]
    at_ms: int
    shape: str
    settled: list[ComparedSpan] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        ends = [[topic, partition, end] for (topic, partition), end in self.ends.items()]
        return {"cut": self.cut, "ends": ends, "at_ms": self.at_ms, "shape": self.shape, "settled": self.settled}


class KeptFile:
    """`<home>/verify/<topology>.json`; every write leaves the old file or the new one. Fatal: it is none of ours."""

    def __init__(self, home: Path, topology: str) -> None:
        self._file = home / "verify" / f"{topology}.json"
        self._equal: dict[str, Progress] = {}
        self._open: dict[str, Progress] = {}
        self._written = 0.0
        if self._file.exists():
            try:
                found = json.loads(self._file.read_text())
                if found["format"] != 1:
                    raise ValueError(f"format {found['format']}")
                self._equal, self._open = _read(found["equal"]), _read(found["open"])
            except (ValueError, KeyError, TypeError) as error:
                raise Fatal(f"{self._file}: {error}", "remove it: then all rows are compared") from error

    def equal(self, table: str, shape: str, now_ms: int) -> Progress | None:
        """The beginning of the comparison that last found a table equal; None where none can be gone on from."""
        known = self._equal.get(table)
        return known if known and known.shape == shape and now_ms - known.at_ms < OLDEST_MS else None

    def interrupted(self, table: str, shape: str) -> Progress | None:
        """What was done of a table by a run that did not come to its end."""
        known = self._open.get(table)
        return known if known and known.shape == shape else None

    def begin(self, table: str, progress: Progress) -> None:
        """A comparison begins, or goes on."""
        self._open[table] = progress
        self._write()

    def settle(self, table: str, settled: ComparedSpan) -> None:
        """A part of a table is done; written now and then."""
        self._open[table].settled.append(settled)
        if time.monotonic() - self._written > _EVERY:
            self._write()

    def end(self, table: str, *, equal: bool) -> None:
        """A table's comparison is done."""
        done = self._open.pop(table)
        if equal:
            done.settled.clear()
            self._equal[table] = done
        self._write()

    def close(self) -> None:
        """Write what is not written yet."""
        if self._open:
            self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        parts = {"equal": self._equal, "open": self._open}
        reported = {name: {table: one.to_json() for table, one in part.items()} for name, part in parts.items()}
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps({"format": 1, **reported}))
        os.replace(beside, self._file)
        self._written = time.monotonic()


def _read(found: Mapping[str, Any]) -> dict[str, Progress]:
    return {
        table: Progress(
            cut=one["cut"],
            ends={(topic, partition): end for topic, partition, end in one["ends"]},
            at_ms=one["at_ms"],
            shape=one["shape"],
            settled=[ComparedSpan(*settled) for settled in one["settled"]],
        )
        for table, one in found.items()
    }
