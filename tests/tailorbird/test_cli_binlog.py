"""`tailorbird binlog dump`: what it prints and how it ends."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

from tests.support.commands import tailorbird

DATA = Path(__file__).resolve().parents[1] / "data" / "binlogs" / "pairs"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return tailorbird("binlog", *arguments)


def test_a_clean_end_prints_lines_and_exits_0() -> None:
    """One JSON object per row change, in commit order, and the counts and the rate when asked for."""
    done = run("dump", str(DATA / "dbz_boolean_test@m10.binlog.gz"), "--stats")
    assert done.returncode == 0
    changes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [change["op"] for change in changes] == ["insert"]
    assert changes[0]["after"]
    assert done.stderr.strip().endswith("changes/s")


def test_a_corrupt_file_names_its_place_and_exits_3(tmp_path: Path) -> None:
    """The changes before the error are printed, then file:offset, and the exit code is 3."""
    data = bytearray(gzip.decompress((DATA / "northwind@m97.binlog.gz").read_bytes()))
    data[-2000] ^= 1
    path = tmp_path / "binlog.000001"
    path.write_bytes(data)
    done = run("dump", str(path))
    assert done.returncode == 3
    assert len(done.stdout.splitlines()) > 100
    assert "read before the error: " in done.stderr
    assert "binlog.000001:" in done.stderr
    assert "checksum" in done.stderr
    assert "Traceback" not in done.stderr


def test_none_counts_and_reports_the_rate() -> None:
    """`--format none --stats` prints nothing but counts and `N changes/s`."""
    done = run("dump", f"file://{DATA / 'northwind@m97.binlog.gz'}", "--format", "none", "--stats")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith("511 insert")
    assert lines[-1].endswith(" changes/s")


def test_tables_events_and_text() -> None:
    """Filters, the event view and the text form."""
    name = str(DATA / "northwind@m97.binlog.gz")
    tables = {
        json.loads(line)["table"] for line in run("dump", name, "--tables", "northwind.orders").stdout.splitlines()
    }
    assert tables == {"orders"}
    events = [json.loads(line) for line in run("dump", name, "--events").stdout.splitlines()]
    assert events[0]["event"] == "FORMAT_DESCRIPTION"
    assert {"GTID", "QUERY", "TABLE_MAP", "WRITE_ROWS", "XID"} <= {event["event"] for event in events}
    assert run("dump", name, "--format", "text").stdout.startswith("insert northwind.")


def test_mistakes_are_one_line_and_exit_2() -> None:
    """A wrong option, address or position says what is wrong and what to write."""
    for arguments in (["--format", "xml", "x"], ["--from", "what:ever", "x"], ["ftp://x"], ["/no/such/file"]):
        done = run("dump", *arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()
