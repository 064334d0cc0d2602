"""Manage the folder of a join's checkpoint: Spark's own files, and the record of the run.

<folder>/query.json   what the state depends on, and the progress until the first complete result
<folder>/state.json   the format of the state, and the run that it belongs to
<folder>/lock         held by the one process that may run the join
<folder>/spark/       Spark's checkpoint
<folder>/spark/clock  what `now()` means in the last batches, if the query uses it"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from cdc.model.errors import Fatal, UsageError
from cdc.process.file_private import create_private, private_folder
from joins.query.plan import STATE_FORMATS
from joins.runtime.sink import Refusals

FORMAT = 1
_RECORD = "query.json"
_STATE = "state.json"  # not in the record: version 0.2 refuses a record with an unknown field
_UNNUMBERED_STATE = 5  # of every version that wrote no number
_FORMER_NAMES = {"floors": "truncation_points", "first_stamp": "first_timestamp"}  # of versions before 0.2
_CLOCK = "clock"
_CLOCKS = 3  # batches whose clock is kept
_LARGE = 1000  # changes of a batch whose duration exceeds the fixed cost of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
    """The record of one run of a join. A run begins with an empty state and reads the log from its beginning.

    - `fingerprint`, `partitions`, `engine` (empty: unknown): what the state depends on.
    - `first_timestamp`: older than every write of the run.
    - `target`: the ends of the log when the run began. Once they are read, the run is `complete`: rows of former
      runs are deleted, and barriers are written.
    - `truncation_points`: sequence by topic and partition (`joins.steps.truncation`).
    - `settled`, `counts`, `topics`: at the beginning of the run, the compaction-safe offsets, the numbers of records
      before them, and the topics' ids (`joins.stores.compaction`).
    - `exact_from`: by table, the first exact phase whose changes are added up. Joins whose first table it names use
      change detectors (`joins.steps.route`).
    - `refused`: the number of rows that the table lacks.
    - `began_ms`, `whole_ms`: when the run began and became complete (0: unknown). `plan` estimates durations from
      them."""

    id: str
    fingerprint: str
    partitions: int
    first_timestamp: int
    target: Mapping[str, Mapping[int, int]]
    complete: bool
    truncation_points: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    settled: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    exact_from: Mapping[str, int] = field(default_factory=dict)
    refused: Refusals = field(default_factory=Refusals)
    began_ms: int = 0
    whole_ms: int = 0
    engine: str = ""


class QueryCheckpoint:
    """The checkpoint folder of a join, locked by this process. Raises UsageError if another process has the lock.

    `state_format` is the number that is stored with a new record (`Plan.state_format`)."""

    def __init__(self, folder: Path) -> None:
        self.state_format = STATE_FORMATS[0]
        self.folder = folder
        self.spark = folder / "spark"
        self._record = folder / _RECORD
        self._numbered = ""  # the run whose state has its number
        private_folder(folder)
        self._lock = _locked(folder / "lock")

    def record(self) -> QueryRecord | None:
        """Return the record of the run, or None if the folder is empty. Raises Fatal if it cannot be read."""
        return stored_record(self.folder)

    def store(self, record: QueryRecord) -> None:
        """Write the record of the run, atomically, after the format of its state."""
        if self._numbered != record.id:
            _replace(self.folder / _STATE, {"format": self.state_format, "run": record.id})
            self._numbered = record.id
        _replace(self._record, {"format": FORMAT, **asdict(record)})

    def clear(self) -> None:
        """Delete the record and the state, so that the next run reads the log from its beginning."""
        self._record.unlink(missing_ok=True)
        (self.folder / _STATE).unlink(missing_ok=True)
        self._numbered = ""
        shutil.rmtree(self.spark, ignore_errors=True)

    def close(self) -> None:
        """Release the lock, so that another process can run the join."""
        self._lock.close()

    def last_committed(self) -> int:
        """Return the last batch that Spark committed; -1 before the first."""
        return max((int(path.name) for path in (self.spark / "commits").glob("[0-9]*")), default=-1)

    def committed(self) -> list[dict[str, dict[int, int]]]:
        """Return the offsets at the end of the last committed batch, in the form of `levels`. Empty before the
        first."""
        batch = self.last_committed()
        return self.levels(batch) if batch >= 0 else []

    def levels(self, batch: int) -> list[dict[str, dict[int, int]]]:
        """Return the offsets at the end of a planned batch. Spark stores them before the batch begins.

        The list has one entry per level of the plan that reads topics, lowest first. Each is a Spark source, with
        offsets by topic and partition."""
        # Spark's offset log: a version, the batch's metadata, then one line per source, `-` for one without data yet
        found = [{} if line == "-" else json.loads(line) for line in self._planned(batch)[2:]]
        return [_offsets(ends) for ends in found]

    def watermark(self, batch: int) -> int:
        """Return the watermark (ms) of a planned batch. Spark stores it before the batch begins."""
        return int(json.loads(self._planned(batch)[1])["batchWatermarkMs"])

    def _planned(self, batch: int) -> list[str]:
        return planned(self.spark, batch)


def planned(spark: Path, batch: int) -> list[str]:
    """Return the lines of Spark's offset log for a batch."""
    return (spark / "offsets" / str(batch)).read_text().splitlines()


def clock_of(spark: Path, batch: int) -> int:
    """Return what `now()` means in a planned batch (ms), and store it for the batch's tasks and for a repetition.

    It is the time of Spark's offset log, at which Spark's timers are due, or a later one of an earlier batch: the clock
    of a machine may go back. `spark` is Spark's checkpoint."""
    file = spark / _CLOCK
    known = json.loads(file.read_text()) if file.exists() else {}
    if str(batch) not in known:
        machine = int(json.loads(planned(spark, batch)[1])["batchTimestampMs"])
        known[str(batch)] = max([machine, *known.values()])
        _replace(file, {name: known[name] for name in sorted(known, key=int)[-_CLOCKS:]})
    return int(known[str(batch)])


def _replace(file: Path, content: object) -> None:
    """Write a file as JSON, atomically."""
    new = file.with_suffix(".new")
    with create_private(new) as made:
        json.dump(content, made)
        made.flush()
        os.fsync(made.fileno())
    new.replace(file)


def stored_record(folder: Path) -> QueryRecord | None:
    """Return the record in a folder, or None. Another process may hold the folder.

    Raises Fatal if the record cannot be read."""
    file = folder / _RECORD
    if not file.exists():
        return None
    try:
        value = json.loads(file.read_text())
        if value.pop("format") != FORMAT:
            raise ValueError("of an unknown format")
        for former, name in _FORMER_NAMES.items():
            if former in value:
                value[name] = value.pop(former)
        for name in ("target", "truncation_points", "settled", "counts"):
            value[name] = _offsets(value.get(name, {}))
        value["refused"] = Refusals(**value.get("refused", {}))
        return QueryRecord(**value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(f"{file}: {error}", "start with --rebuild, which recreates the state") from error


def stored_state_format(folder: Path) -> int | None:
    """Return the format of the state in a folder, or None without a record. Another process may hold the folder.

    A run of a version that stored no number has the format of that time. Raises Fatal if a file cannot be read."""
    file = folder / _RECORD
    try:
        run = json.loads(file.read_text())["id"]
        file = folder / _STATE
        stored = json.loads(file.read_text()) if file.exists() else {}
        # the number of another run: a version without numbers has begun a new run since
        return int(stored["format"]) if stored.get("run") == run else _UNNUMBERED_STATE
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(f"{file}: {error!r}", "start with --rebuild, which recreates the state") from error


def measured_rate(folder: Path, record: QueryRecord) -> float | None:
    """Return how many changes per second a join processes, measured from its checkpoint. None if there is too little
    data.

    It is measured over the large batches whose files Spark still keeps, or else over the run until it was complete.
    Another process may hold the folder."""
    spark, taken, seconds = folder / "spark", 0, 0.0
    commits = sorted(int(path.name) for path in (spark / "commits").glob("[0-9]*"))
    for before, batch in pairwise(commits):
        if batch != before + 1:  # Spark has removed the batch between them
            continue
        try:
            changes = _read_until(spark, batch) - _read_until(spark, before)
            took = (spark / "commits" / str(batch)).stat().st_mtime - (spark / "offsets" / str(batch)).stat().st_mtime
        except FileNotFoundError:  # as above
            continue
        if changes >= _LARGE and took > 0:
            taken, seconds = taken + changes, seconds + took
    if seconds:
        return taken / seconds
    read = sum(end for ends in record.target.values() for end in ends.values())
    return 1000 * read / (record.whole_ms - record.began_ms) if read >= _LARGE and record.whole_ms else None


def _read_until(spark: Path, batch: int) -> int:
    """Return the sum of the offsets of all partitions and levels at the end of a planned batch."""
    lines = (spark / "offsets" / str(batch)).read_text().splitlines()[2:]
    levels = (_offsets(json.loads(line)) for line in lines if line != "-")
    return sum(offset for level in levels for ends in level.values() for offset in ends.values())


def _offsets(stored: Any) -> dict[str, dict[int, int]]:
    return {topic: {int(partition): offset for partition, offset in ends.items()} for topic, ends in stored.items()}


def _locked(path: Path) -> IO[str]:
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"another process holds {path.parent}", "stop it first: one join per table") from error
    return file
