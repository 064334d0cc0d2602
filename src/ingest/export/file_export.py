"""Export to a folder of files. Each file appears whole or not at all; the last file's name holds the next offsets.

    0000000007-v3-2017091510-1203.988.parquet     the eighth file, of schema version 3, of one hour (UTC); after it,
                                                  partition 0 resumes at offset 1203 and partition 1 at 988

An unfinished file's name starts with a dot. The next writer removes it.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import re
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.model.naming import file_name
from cdc.model.schema import TableId
from ingest.changes.merging import Offsets
from ingest.export.cuts import ExportCut
from ingest.export.encoding import FILES, ExportFormat

_NAME = re.compile(r"(\d{10})-v\d+(?:-\d{10})?-(\d+(?:\.\d+)*)\.([a-z][\w.]*)")
_HOUR = 3600


class FolderExport:
    """Writes the cuts of one table to the folder `<folder>/<source>.<database>.<table>` (escaped); implements
    `ExportSink`.

    Raises UsageError if another process writes there, or the folder contains another format.
    """

    def __init__(self, folder: Path, table: TableId, form: ExportFormat, topology: str) -> None:
        self.folder = folder / file_name(table)
        self._ending, self._encode = FILES[form]
        self._topology, self._form = topology, form
        self._number = 0
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise UsageError(f"{self.folder}: {error}", "choose a writable folder") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            what = f"another process exports into {self.folder}"
            raise UsageError(what, "wait for it, or choose another folder") from error

    def begin(self) -> Offsets | None:
        """Return the offsets after the last file; None if there is no file. Removes unfinished files.

        Raises UsageError if the folder contains files of another format.
        """
        for left in self.folder.glob(".*.part"):
            left.unlink()
        last: tuple[int, Offsets] | None = None
        for file in self.folder.iterdir():
            match = _NAME.fullmatch(file.name)
            if match is None:
                continue
            if match[3] != self._ending:
                what = f"{self.folder} holds {file.name}"
                raise UsageError(what, f"export --format {self._form} into a separate folder")
            if last is None or int(match[1]) > last[0]:
                last = int(match[1]), dict(enumerate(map(int, match[2].split("."))))
        if last is None:
            return None
        self._number = last[0] + 1
        return last[1]

    def write(self, cut: ExportCut) -> None:
        """Write a cut as one more file. Raises OSError if the disk rejects it."""
        ends = ".".join(str(cut.next[partition]) for partition in sorted(cut.next))
        hour = "" if cut.hour is None else f"-{dt.datetime.fromtimestamp(cut.hour * _HOUR, dt.UTC):%Y%m%d%H}"
        name = f"{self._number:010d}-v{cut.schema.version}{hour}-{ends}.{self._ending}"
        if len(name) > 240:
            raise UsageError(
                f"the offsets of {len(cut.next)} partitions do not fit into a file name", "export to kafka://"
            )
        fresh = self.folder / f".{self._number:010d}.part"
        with fresh.open("wb") as file:
            file.write(self._encode(cut, self._topology))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.folder / name)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._number += 1

    def close(self) -> None:
        """Release the folder for other writers."""
        os.close(self._lock)
