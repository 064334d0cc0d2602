"""A full disk is an expected error: one line with the volume and the remedy. A full log ends no process."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import pytest
import structlog

from cdc.model.errors import DiskFull
from cdc.process.file_private import full_disk_named
from cdc.process.proc_log_lines import _LogStream
from ingest import __main__ as ingest
from ingest.ledger.fold import Changes, HeldRow, RowPlace
from ingest.ledger.sql_rows import SqlRows


def test_the_error_names_the_file_or_the_folder(tmp_path: Path) -> None:
    """A write to an open file names no file; then the folder is named. Other errors stay as they are."""
    wanted = f"^No space left on the volume of {tmp_path}; free some space there"
    with pytest.raises(DiskFull, match=wanted), full_disk_named(tmp_path), open("/dev/full", "w") as full:
        full.write("x")
    with pytest.raises(DiskFull, match="volume of /a/b;"), full_disk_named(tmp_path):
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "/a/b")
    with pytest.raises(FileNotFoundError), full_disk_named(tmp_path):
        (tmp_path / "missing").read_text()


def test_a_process_ends_with_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And with an exit code after which it is started again."""

    def run(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/tailorbird/run/shop/capture-shop.json")

    monkeypatch.setattr(ingest, "run", run)
    monkeypatch.setattr(sys, "argv", ["ingest", "shop.yml"])
    with pytest.raises(SystemExit) as ended:
        ingest.main()
    reported = capsys.readouterr().err
    assert (ended.value.code, reported.count("\n")) == (1, 1)
    assert "volume of /srv/tailorbird/run/shop/capture-shop.json; free some space" in reported


class Full(io.StringIO):
    """A log on a disk that is full at first."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_log_lines_are_dropped_and_counted() -> None:
    """A log that cannot be written ends no process. The number of missing lines is in it afterwards."""
    stream, log = Full(), structlog.testing.LogCapture()
    lines = _LogStream(stream)
    lines.write("one\n")
    lines.write("two\n")
    stream.full = False
    structlog.configure(processors=[log])
    try:
        lines.write("three\n")
        lines.write("four\n")
    finally:
        structlog.reset_defaults()
    assert stream.getvalue() == "three\nfour\n"
    assert [(one["event"], one["lines"]) for one in log.entries] == [("log lines are missing", 2)]


def test_a_full_ledger_commits_nothing(tmp_path: Path) -> None:
    """Neither rows nor the offset: the records are applied again once there is space."""
    store = SqlRows(tmp_path / "t-0.sqlite", "shape")
    store._db.execute("PRAGMA max_page_count = 20")
    many: dict[RowPlace, HeldRow | None] = {
        RowPlace(leaf, b"%d" % leaf): HeldRow(leaf, leaf, leaf) for leaf in range(20_000)
    }
    with pytest.raises(DiskFull, match=r"t-0\.sqlite; free some space"):
        store.commit(Changes(20_000, rows=many), 0)
    store.close()
    store = SqlRows(tmp_path / "t-0.sqlite", "shape")
    assert (store.next_offset, store.held([RowPlace(1, b"1")])) == (0, {})
    store.commit(Changes(20_000, rows=many), 0)
    assert (store.next_offset, len(store.held([RowPlace(1, b"1")]))) == (20_000, 1)
    store.close()
