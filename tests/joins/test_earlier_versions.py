"""State that versions before 0.2 wrote, under the names of that time, is still read; plans keep their fingerprints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.topology.topology import Table
from cdc.topology.versions import TableVersions, Versions, load_versions
from joins.engine.file_checkpoint import QueryRecord, stored_record
from tailorbird.verify.checks.runs import run_of
from tests.joins.joincase import read_case

CASES = Path(__file__).parents[1] / "cases" / "joins"
# As version 0.1 wrote it.
RECORD = (
    '{"format": 1, "id": "q", "fingerprint": "f", "partitions": 1, "first_stamp": 5, "target": {"t": {"0": 3}}, '
    '"complete": true, "floors": {"t": {"1": 7}}, "settled": {"t": {"0": 1}}, "counts": {"t": {"0": 1}}, '
    '"topics": {"t": "id"}, "refused": {"before": 0, "batch": -1, "latest": 0}, "began_ms": 0, "whole_ms": 0, '
    '"engine": ""}'
)
CHECK = {
    "format": 1, "check": "hourly", "began_ms": 5, "ended_ms": 6, "turn": 0, "error": "", "equal_ms": 0,
    "checked": [{
        "stage": "table", "table": "wide", "outcome": "equal", "rows": 3, "differing": 0, "moving": 0, "cut": "",
        "at_ms": 5, "seconds": 1.0, "untold": ["a: unknown"], "findings": [],
    }],
}  # fmt: skip


def test_a_checkpoints_record_is_read(tmp_path: Path) -> None:
    (tmp_path / "query.json").write_text(RECORD)
    assert stored_record(tmp_path) == QueryRecord(
        id="q",
        fingerprint="f",
        partitions=1,
        first_timestamp=5,
        target={"t": {0: 3}},
        complete=True,
        truncation_points={"t": {1: 7}},
        settled={"t": {0: 1}},
        counts={"t": {0: 1}},
        topics={"t": "id"},
    )


def test_the_last_run_of_a_check_is_read() -> None:
    found = run_of(json.loads(json.dumps(CHECK)))
    assert found is not None
    assert found.checked[0].unknown == ("a: unknown",)


def test_the_versions_of_a_running_topology_are_read() -> None:
    """Versions before 0.2 stored the engine of each table."""
    table = Table(name="wide", query="SELECT t.id FROM shop.t t", row_key=("id",), family="d", salt_buckets=4)
    stored = Versions(epoch=3, tables={"wide": TableVersions(serving=1, tables={1: table})})
    written = stored.to_json()
    written["tables"]["wide"]["tables"]["1"]["engine"] = "jvm"
    assert load_versions(json.loads(json.dumps(written))) == stored


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        ("groups/sums-beyond-38-digits", "1148665206872968"),
        ("null-key-of-an-inner-join", "02ea560231b53dc8"),
        ("column-renamed-and-back", "7cbf7f125f6b7303"),
    ],
)
def test_plans_keep_their_fingerprints(name: str, fingerprint: str) -> None:
    """Another fingerprint would refuse the state of every running join."""
    assert read_case(CASES / f"{name}.case").plan().fingerprint() == fingerprint
