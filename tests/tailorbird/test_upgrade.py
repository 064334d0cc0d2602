"""`tailorbird upgrade --check` says what a version reads, rewrites and rebuilds, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.stored.layout import Layout, dump_layout
from cdc.topology.reader import read_topology
from indexer.rebuild.targets import Targets
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord
from joins.query.plan import STATE_FORMATS
from tailorbird.cli.change import cli_upgrade
from tailorbird.deploy.upgrade import run_upgrade
from tailorbird.deploy.upgrade.formats import (
    INSTALLED,
    JOIN_STATE,
    FormatFinding,
    FormatSupport,
    StoredFormat,
    findings,
    from_json,
    to_json,
)
from tailorbird.deploy.upgrade.kafka_formats import format_of
from tailorbird.verify.checks.runs import FORMAT as CHECKS
from tests.support.commands import tailorbird

TOPOLOGY = """
name: shop
sources:
  shop: {type: mysql, hostname: 127.0.0.1, username: cdc, password: cdc, database: shop, server_id: 7, tables: [t]}
tables:
  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}
"""


def found(*stored: tuple[str, int], version: Mapping[str, FormatSupport], back: Any = None) -> list[str]:
    formats = [StoredFormat(name=name, place="p", format=number) for name, number in stored]
    return [one.state for one in findings(formats, version, back)]


def test_what_is_lost_by_an_upgrade() -> None:
    """A newer written format cannot go back; an unknown one cannot be read; a join with another state is rebuilt."""
    newer = {"positions": FormatSupport(reads=(1, 2, 3), writes=3), JOIN_STATE: FormatSupport(reads=(6,), writes=6)}
    assert found(("positions", 1), ("positions", 2), version=INSTALLED) == ["kept"]
    assert found(("positions", 1), version=INSTALLED) == ["kept"]  # of a quiet source; every release reads format 2
    assert found(("positions", 1), ("positions", 2), version=newer) == ["rewritten"]
    assert found(("positions", 3), ("positions", 2), version=newer) == ["kept"]
    assert found(("positions", 4), ("layouts", 2), (JOIN_STATE, 5), version=newer) == [
        "unreadable", "unreadable", "rebuilt",
    ]  # fmt: skip
    assert found(("layouts", 2), ("layouts", 1), version=INSTALLED) == ["kept"]


def test_what_is_lost_by_going_to_another_version() -> None:
    """To an older version: it must read what is stored. What it writes must be read here afterwards."""
    older = {**INSTALLED, "positions": FormatSupport(reads=(1,), writes=1)}
    without_retractions = {**INSTALLED, JOIN_STATE: FormatSupport(reads=(5,), writes=5)}
    states = [(JOIN_STATE, number) for number in STATE_FORMATS]
    assert [found(one, version=without_retractions, back=INSTALLED) for one in states] == [["kept"], ["rebuilt"]]
    assert [found(one, version=INSTALLED) for one in states] == [["kept"], ["kept"]]
    assert found(("positions", 1), version=older, back=INSTALLED) == ["kept"]
    assert found(("positions", 2), version=older, back=INSTALLED) == ["unreadable"]
    newer = {**INSTALLED, "layouts": FormatSupport(reads=(1, 2, 3), writes=3)}
    assert found(("layouts", 1), version=newer, back=INSTALLED) == ["rewritten"]
    assert from_json(json.loads(json.dumps(to_json(INSTALLED)))) == INSTALLED
    invalid: tuple[Any, ...] = ([], {"positions": {"reads": "x"}}, {"positions": 1})
    for wrong in invalid:
        with pytest.raises(UsageError, match="--formats"):
            from_json(wrong)


def test_a_record_without_a_number_has_format_1() -> None:
    """Foreign records and tombstones have none."""
    assert [format_of(one) for one in (b"{}", b'{"format":2}', b"x", None, b"[]", b'{"format":"2"}')] == [
        1, 2, None, None, None, None,
    ]  # fmt: skip


def test_written_formats_are_those_that_are_declared() -> None:
    """What this version stores has the formats of its own list."""
    layout = Layout(topology="t", table="a", id=1, family="d", columns=(), row_key=("id",), salt_buckets=1)
    assert format_of(dump_layout(layout)) == INSTALLED["layouts"].writes
    assert format_of(dump_layout(replace(layout, nullable_key=("id",)))) in INSTALLED["layouts"].reads
    assert format_of(Targets(epoch=1, collections=("a",)).to_json()) == INSTALLED["index collections"].writes
    assert INSTALLED["check results"] == FormatSupport(reads=(CHECKS,), writes=CHECKS)
    assert all(one.writes in one.reads for one in INSTALLED.values())


def test_the_format_of_a_joins_state_is_that_of_its_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A newer version that is already installed still reports that it rebuilds the table. A run without a number, of
    version 0.2, has format 5, also if the number of an earlier run was left in the folder."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    monkeypatch.setattr(run_upgrade, "formats_in_kafka", lambda topology: iter(()))
    topology = read_topology(TOPOLOGY, file="shop.yml", environ={})
    record = QueryRecord(id="q", fingerprint="f", partitions=1, first_timestamp=5, target={}, complete=True)
    folder = tmp_path / "checkpoints" / topology.name / "wide"
    checkpoint = QueryCheckpoint(folder)

    def formats() -> dict[str, int]:
        return {one.name: one.format for one in run_upgrade.stored_formats(topology, None, None)}

    assert formats() == {}
    for number in (*STATE_FORMATS, STATE_FORMATS[-1] + 1):
        checkpoint.state_format = number
        checkpoint.clear()
        checkpoint.store(record)
        assert formats() == {"checkpoints": 1, JOIN_STATE: number}
    without_number = (folder / "query.json").read_text().replace('"id": "q"', '"id": "other"')
    (folder / "query.json").write_text(without_number)
    assert formats()[JOIN_STATE] == 5
    (folder / "state.json").unlink()
    assert formats()[JOIN_STATE] == 5
    checkpoint.clear()
    assert formats() == {}
    checkpoint.close()


@pytest.mark.parametrize(
    ("numbers", "rebuilds", "code", "states"),
    [
        ([2], [], 0, ["kept"]),
        ([1], [], 0, ["kept"]),
        ([2], ["wide"], 1, ["kept", "rebuilt"]),
        ([9], ["wide"], 2, ["unreadable"]),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    numbers: list[int],
    rebuilds: list[str],
    code: int,
    states: list[str],
) -> None:
    """0: nothing is lost; 1: something cannot go back; 2: something cannot be read."""

    @contextmanager
    def stored(file: str) -> Iterator[Any]:
        formats = [StoredFormat(name="positions", place="shop", format=number) for number in numbers]
        yield (
            formats,
            lambda: [
                FormatFinding(name=JOIN_STATE, place=one, stored=None, state="rebuilt", why="w") for one in rebuilds
            ],
        )

    monkeypatch.setattr(cli_upgrade, "_stored", stored)
    done = tailorbird("upgrade", "t.yml", "--check", "--json")
    assert done.returncode == code
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == states
    file = tmp_path / "formats.json"
    file.write_text(tailorbird("upgrade", "--formats").stdout)
    assert tailorbird("upgrade", "t.yml", "--check", "--to", str(file)).returncode == (2 if numbers == [9] else 0)
    assert tailorbird("upgrade", "t.yml").returncode == 2
