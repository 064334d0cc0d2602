"""Store the progress of the log stage between runs, in a file in the topology's folder.

For each table the file has the position at which it was last equal: `--changed-since last` starts there. It also has
the progress of an interrupted run, which `--resume` continues. If the file is deleted, the next run compares all
rows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.model.errors import Fatal
from cdc.process.file_private import create_private, private_folder
from ingest.ledger.ledger import Partition
from tailorbird.verify.log.spans import ComparedSpan

# Compaction removes tombstones after a week, so an older cut would miss deletes.
OLDEST_MS = 6 * 86_400_000
_EVERY = 1.0  # seconds between two writes of progress


@dataclass(slots=True)
class Progress:
    """Progress of the comparison of one table. `settled` are the spans that are equal.

    `cut` (position at the source), `ends` (offsets of its topic) and `at_ms` are those of the beginning. `shape`
    identifies the columns and forms that the digests cover, and the topic."""

    cut: str
    ends: Mapping[Partition, int]
    at_ms: int
    shape: str
    settled: list[ComparedSpan] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object in the file."""
        ends = [[topic, partition, end] for (topic, partition), end in self.ends.items()]
        return {"cut": self.cut, "ends": ends, "at_ms": self.at_ms, "shape": self.shape, "settled": self.settled}


class ProgressFile:
    """The file `<home>/verify/<topology>.json`. Writes are atomic. Raises Fatal if the file has another format."""

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
                raise Fatal(f"{self._file}: {error}", "delete it; the next run then compares all rows") from error

    def equal(self, table: str, shape: str, now_ms: int) -> Progress | None:
        """Return the progress with which the last comparison that found the table equal began. None if it is six
        days old, covers other columns, or compared a topic that was recreated since."""
        known = self._equal.get(table)
        return known if known and known.shape == shape and now_ms - known.at_ms < OLDEST_MS else None

    def interrupted(self, table: str, shape: str) -> Progress | None:
        """Return the progress of an interrupted run for a table.

        None if no run was interrupted, it covers other columns, or it compared a topic that was recreated since."""
        known = self._open.get(table)
        return known if known and known.shape == shape else None

    def begin(self, table: str, progress: Progress) -> None:
        """Begin or resume a comparison."""
        self._open[table] = progress
        self._write()

    def settle(self, table: str, settled: ComparedSpan) -> None:
        """Record that a span of a table is equal. The file is written about once a second."""
        self._open[table].settled.append(settled)
        if time.monotonic() - self._written > _EVERY:
            self._write()

    def end(self, table: str, *, equal: bool) -> None:
        """Record the end of a table's comparison, and whether the table was equal."""
        done = self._open.pop(table)
        if equal:
            done.settled.clear()
            self._equal[table] = done
        self._write()

    def close(self) -> None:
        """Write progress that is not in the file yet."""
        if self._open:
            self._write()

    def _write(self) -> None:
        private_folder(self._file.parent)
        parts = {"equal": self._equal, "open": self._open}
        reported = {name: {table: one.to_json() for table, one in part.items()} for name, part in parts.items()}
        new = self._file.with_suffix(".new")
        with create_private(new) as stream:
            json.dump({"format": 1, **reported}, stream)
        os.replace(new, self._file)
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
