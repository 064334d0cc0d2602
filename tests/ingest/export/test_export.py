"""Exports that die at any moment and resume: each change is in their output once, in order, in every format."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from cdc.model.errors import Fatal, UsageError
from cdc.model.schema import TableId
from ingest.changes.change_line import line_of
from ingest.changes.run_changes import changes_of
from ingest.export.cuts import ExportCut
from ingest.export.encoding import ExportFormat
from ingest.export.file_export import FolderExport
from ingest.export.run_export import ExportOptions, export, sinks
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of, topology_named

TABLE = TableId(source="s", database="d", table="t")


class KilledExport(Exception):
    """Represents kill -9."""


def history(rows: int = 300) -> tuple[MemoryChanges, SourceLog]:
    """Inserts, updates and deletes over two schemas and some hours, in separate commits."""
    log = MemoryChanges(most=7)
    source, random = SourceLog(log), Random(2)
    source.columns(schema_of(name="varchar(20)"))
    for number in range(rows):
        if number == rows // 2:
            source.columns(schema_of(version=2, name="varchar(20)", v="int"))
        row = {"id": number, "name": f"n{number}"}
        source.transaction(("c", None, row))
        if random.random() < 0.3:
            source.transaction(("u", row, {**row, "name": "x"}), ("d", {**row, "name": "x"}, None))
        if random.random() < 0.2:
            source.commit()
    source.commit()
    return log, source


def written(folder: Path, form: ExportFormat) -> list[tuple[str, Any]]:
    """Return the content of the files in the order of their names: an operation and an id each."""
    found = list[tuple[str, Any]]()
    for file in sorted((folder / str(TABLE)).glob("[0-9]*")):
        if form == "parquet":
            found += [(row["_op"], row["id"]) for row in pq.read_table(io.BytesIO(file.read_bytes())).to_pylist()]
        elif form == "avro":
            rows = list(fastavro.reader(io.BytesIO(file.read_bytes())))
            found += [(str(r["event_type"]), r["id"]) for r in rows if isinstance(r, dict)]
        else:
            for line in file.read_text().splitlines():
                reported = json.loads(line)
                row = reported["data"] if form == "maxwell" else reported["after"] or reported["before"]
                found.append((reported["type"] if form == "maxwell" else reported["op"], row["id"]))
    return found


WORDS: dict[str, dict[str, list[str]]] = {
    "parquet": {"c": ["insert"], "u": ["update"], "d": ["delete"]},
    "avro": {"c": ["insert"], "u": ["update_before", "update_after"], "d": ["delete"]},
    "maxwell": {"c": ["insert"], "u": ["update"], "d": ["delete"]},
    "debezium": {"c": ["c"], "u": ["u"], "d": ["d"]},
}


@pytest.mark.parametrize("form", ["avro", "parquet", "maxwell", "debezium"])
def test_killed_at_random_each_change_is_written_once(
    form: ExportFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two files, within one, before and after it gets its name; each attempt starts from the files alone."""
    log, source = history()
    random, deaths = Random(form), [0]
    rename = Path.rename

    def dies(self: Path, target: Path) -> Path:
        if random.random() < 0.3:
            deaths[0] += 1
            if random.random() < 0.5:
                rename(self, target)
            raise KilledExport
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", dies)
    options = ExportOptions(form=form, to=str(tmp_path), rows=20)
    counted = 0
    while True:
        try:
            make = sinks(topology_named("mem"), options)
            counted = export(log, [TABLE], make, options, stopped=lambda: False, follow=lambda s: False)[str(TABLE)]
            break
        except KilledExport:
            (tmp_path / str(TABLE) / ".9999999999.part").write_bytes(b"begun")
    assert deaths[0] > 2
    wanted = [(word, (e.after or e.before or {})["id"]) for e in source.reported for word in WORDS[form][e.op]]
    assert written(tmp_path, form) == wanted
    assert counted < len(source.reported)
    assert not list((tmp_path / str(TABLE)).glob(".*.part"))


def test_a_file_has_one_schema_and_one_hour(tmp_path: Path) -> None:
    """Versions are in the names; Parquet's files have their hour in the name."""
    log, source = history()
    options = ExportOptions(form="parquet", to=str(tmp_path), rows=1000)
    export(log, [TABLE], sinks(topology_named("mem"), options), options, stopped=lambda: False, follow=lambda s: False)
    names = sorted(file.name for file in (tmp_path / str(TABLE)).glob("[0-9]*"))
    assert {name.split("-")[1] for name in names} == {"v1", "v2"}
    hours = {e.source.ts_ms // 3_600_000 for e in source.reported}
    assert len(names) == len(hours) + 1
    tables = [pq.read_table(io.BytesIO((tmp_path / str(TABLE) / name).read_bytes())) for name in names]
    assert [table.column_names[:-4] for table in (tables[0], tables[-1])] == [["id", "name"], ["id", "name", "v"]]


def test_invalid_exports_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers, another format in the folder, a recreated topic, a format that topics cannot have."""
    log, _ = history(20)
    topology = topology_named("mem")

    def run(form: ExportFormat, to: Path | str = tmp_path) -> dict[str, int]:
        options = ExportOptions(form=form, to=str(to), rows=5)
        return export(
            log, [TABLE], sinks(topology, options), options, stopped=lambda: False, follow=lambda s: False
        )  # fmt: skip

    run("debezium")
    assert run("debezium") == {str(TABLE): 0}
    with pytest.raises(UsageError, match="into a separate folder"):
        run("avro")
    sink = FolderExport(tmp_path, TABLE, "debezium", "mem")
    with pytest.raises(UsageError, match="another process exports"):
        run("debezium")
    sink.close()
    with pytest.raises(UsageError, match="PREFIX"):
        run("debezium", "kafka://127.0.0.1:1")
    with pytest.raises(UsageError, match="avro to a topic"):
        run("avro", "kafka://127.0.0.1:1/x")
    monkeypatch.setattr(MemoryChanges, "begins", lambda self, table: {0: 999, 1: 0})
    with pytest.raises(Fatal, match="were deleted"):
        run("debezium")
    monkeypatch.undo()
    log.ends[TABLE] = {0: 1, 1: 1}
    with pytest.raises(Fatal, match="was recreated"):
        run("debezium")


def test_following_writes_a_file_after_a_time_limit(tmp_path: Path) -> None:
    """Records that do not fill a file are written when `every` is over; records that arrive before then are read."""
    log, source = history(4)
    now, turns, cuts = [0.0], [0], list[ExportCut]()

    class Sink:
        def begin(self) -> None: ...

        def write(self, cut: ExportCut) -> None:
            cuts.append(cut)

        def close(self) -> None: ...

    def follow(seconds: float) -> bool:
        turns[0], now[0] = turns[0] + 1, now[0] + 20
        if turns[0] == 2:
            source.transaction(("c", None, {"id": 99, "name": "y"}))
            source.commit()
        return True

    options = ExportOptions(form="debezium", to="", follow=True)
    stopped: Callable[[], bool] = lambda: turns[0] > 8  # noqa: E731
    export(log, [TABLE], lambda table: Sink(), options, stopped=stopped, follow=follow, clock=lambda: now[0])
    assert sum(len(cut.events) for cut in cuts) == len(source.reported)
    assert cuts[-1].events[-1].after == {"id": 99, "name": "y"}


def test_tail_prints_for_people_and_programs() -> None:
    """From the beginning or from now on; an update shows what changed; no value can break the line."""
    log, source = history(2)
    seen = list(
        _some(
            changes_of(log, TABLE, beginning=True, stopped=lambda: False, follow=lambda s: False), len(source.reported)
        )
    )
    assert [event for event, _ in seen] == source.reported
    source.transaction(
        ("u", {"id": 1, "name": "a", "v": None}, {"id": 1, "name": "b\n" + "x" * 99, "v": None}),
        ("d", {"id": 1, "name": "b", "v": 7}, None),
    )
    source.truncated()

    def commit(seconds: float) -> bool:
        source.commit()
        return True

    follow = changes_of(log, TABLE, beginning=False, stopped=lambda: False, follow=commit)
    lines = [line_of(event, schema) for event, schema in _some(follow, 3)]
    assert lines[0].split("  ", 1)[1].startswith("update    s.t  id=1  name: 'a' → 'b\\nxxx")
    assert "…" in lines[0]
    assert lines[1].split("  ", 1)[1].startswith("delete    s.t  id=1  name='b', v=7")
    assert lines[2].endswith("truncate  s.t")
    assert all("\n" not in line for line in lines)


def _some(found: Any, count: int) -> list[Any]:
    return [next(found) for _ in range(count)]
