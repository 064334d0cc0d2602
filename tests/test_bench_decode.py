"""The computations of `make bench-decode`: it prints what was measured, and wrong values never pass."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from benchmarks.bench_decode import main
from benchmarks.decode.canonical import Checksum, double_text, json_text
from benchmarks.decode.reading import answer, parse_request
from benchmarks.decode.report import (
    Library,
    Measurement,
    Reading,
    as_json,
    differences,
    document,
    rate_table,
    ratios,
)
from benchmarks.decode.workload import COLUMNS, ShapeName, fingerprint, shape


def reading(library: Library = "tailorbird", *, seconds: float = 1.0, **other: object) -> Reading:
    values: dict[str, object] = {
        "version": "1",
        "inserts": 500,
        "updates": 300,
        "deletes": 200,
        "cpu": 0.5,
        "sums": None,
    }
    return Reading(library=library, seconds=seconds, **{**values, **other})  # type: ignore[arg-type]  # checked above


def measured(shape_name: ShapeName, library: Library, *seconds: float) -> Measurement:
    return Measurement(shape=shape_name, readings=tuple(reading(library, seconds=one) for one in seconds))


def test_rate_is_the_median_of_the_passes() -> None:
    """One disturbed pass does not move the figure."""
    assert measured("bulk", "tailorbird", 1.0, 50.0, 2.0).rate == 500.0


def test_cpu_is_microseconds_of_one_change() -> None:
    """Half a second of processor for a thousand changes is 500 µs each."""
    assert measured("bulk", "tailorbird", 1.0).cpu == pytest.approx(500.0)


def test_ratio_lines_have_the_form_that_scripts_look_for() -> None:
    """Ours over the peer's, two digits, the sign ×; both binlogs, peers in a fixed order."""
    found = ratios(
        [
            measured("bulk", "tailorbird", 1.0),
            measured("bulk", "mysql-replication", 8.311),
            measured("bulk", "Debezium", 2.5),
            measured("bulk", "go-mysql", 0.5),
            measured("oltp", "tailorbird", 1.0),
            measured("oltp", "Debezium", 2.999),
            measured("oltp", "Debezium, larger queue", 2.0),
        ]
    )
    assert [ratio.line for ratio in found] == [
        "bulk: 8.31× mysql-replication",
        "bulk: 2.50× Debezium",
        "bulk: 0.50× go-mysql",
        "oltp: 3.00× Debezium",
        "oltp: 2.00× Debezium, larger queue",
    ]
    assert [ratio.failed for ratio in found] == [False, False, False, True, False]
    assert found[1].verdict == "required ≥ 1.8: reached, goal ≥ 2.5: reached"
    assert found[2].verdict == "goal ≥ 0.6: missed"


def test_no_ratio_without_our_own_figure() -> None:
    """Measuring a peer alone prints its rate without a ratio."""
    assert ratios([measured("bulk", "Debezium", 1.0)]) == []


def test_equal_values_have_no_differences() -> None:
    """Three libraries with the same sums and counts agree."""
    sums = {"id": ["a", "b"]}
    checked = [reading("tailorbird", sums=sums), reading("Debezium", sums=sums), reading("go-mysql", sums=sums)]
    assert differences(checked, 1000) == []


def test_a_wrong_value_names_its_column_and_library() -> None:
    """A library that is fast because it is wrong is found, and the column says where to look."""
    good, bad = {"id": ["a", "b"], "due": ["c", "d"]}, {"id": ["a", "b"], "due": ["c", "e"]}
    checked = [reading("tailorbird", sums=good), reading("Debezium", sums=good), reading("go-mysql", sums=bad)]
    assert differences(checked, 1000) == ["column due: the values of go-mysql ≠ those of tailorbird, Debezium"]


def test_lost_changes_are_a_difference() -> None:
    """Fewer changes than the binlog has never pass, even if all libraries lose the same ones."""
    assert differences([reading(inserts=400)], 1000) == ["tailorbird: 900 changes instead of 1,000"]


def test_checksum_sees_order_side_and_value() -> None:
    """Swapped changes, swapped images and a changed value all give other sums."""
    one, two = [b"1"] * len(COLUMNS), [b"2"] * len(COLUMNS)

    def sums(*changes: tuple[list[bytes] | None, list[bytes] | None]) -> dict[str, list[str]]:
        checksum = Checksum()
        for before, after in changes:
            checksum.add(before, after)
        return checksum.sums()

    straight = sums((None, one), (None, two))
    assert straight["id"] == [f"{0:016x}", f"{crc32(b'1') + 2 * crc32(b'2'):016x}"]
    assert straight != sums((None, two), (None, one))
    assert straight != sums((None, one), (two, None))
    assert straight == sums((None, one), (None, two))


def test_canonical_text_is_the_same_for_text_and_bytes() -> None:
    """Some peers return JSON strings as bytes; keys are sorted, kinds of numbers stay distinct."""
    expected = b"{s1:a[i1d3fd0000000000000s3:\xe2\x82\xactruenull]s1:b{}}"
    assert json_text({"b": {}, "a": [1, 0.25, "€", True, None]}) == expected
    assert json_text({b"a": [1, 0.25, "€".encode(), True, None], b"b": {}}) == expected
    assert json_text(1) != json_text(1.0)
    assert double_text(-0.0) != double_text(0.0)


def test_shapes_are_whole_blocks_and_known_by_their_sql() -> None:
    """The statements determine the number of changes; another size is another binlog in the cache."""
    assert shape("bulk", 500_000).changes == 500_000
    assert shape("oltp", 1).changes == 20
    assert fingerprint((shape("bulk", 2000),)) == fingerprint((shape("bulk", 1),))
    assert fingerprint((shape("bulk", 2000),)) != fingerprint((shape("bulk", 2001),))


def test_reader_protocol_round_trip() -> None:
    """Parsing a reader's output restores the reading, sums included."""
    request = parse_request(
        "--port 1 --user u --password p --file f --position 4 --gtids g --table t --changes 2".split()
    )
    assert (request.port, request.changes, request.check) == (1, 2, False)
    line = answer(version="1", counts=(1, 2, 3), seconds=2.0, cpu=1.0, checksum=Checksum())
    found = Reading(library="tailorbird", **json.loads(line))
    assert found.changes == 6
    assert found.sums is not None
    assert set(found.sums) == set(COLUMNS)


def test_document_and_json_carry_every_figure() -> None:
    """The page and the JSON contain medians, passes, ratios and the facts of the run."""
    measurements = [measured("bulk", "tailorbird", 1.0, 2.0, 4.0), measured("bulk", "Debezium", 4.0, 4.0, 4.0)]
    page = document(
        measurements=measurements,
        checked={"bulk": [reading(), reading("Debezium")]},
        facts={"date": "today"},
    )
    assert "| bulk | tailorbird 1 | 500 | 1,000 · 500 · 250 | 500.0 |" in page
    assert "| bulk: 2.00× Debezium | required ≥ 1.8: reached, goal ≥ 2.5: missed |" in page
    assert "1,000 changes (500 inserts, 300 updates, 200 deletes)" in page
    assert "- date: today" in page
    assert len(rate_table(measurements)) == 4
    answered = as_json(measurements, {"date": "today"})
    assert answered["ratios"] == [{"shape": "bulk", "peer": "Debezium", "ratio": 2.0, "must": 1.8, "aim": 2.5}]
    assert answered["measurements"][0]["passes"] == [1000, 500, 250]


def test_absent_build_tools_are_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine without Go, Maven or a JDK the benchmark exits with one line that names the packages to install."""
    monkeypatch.setenv("PATH", "")
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Go 1.24 or newer (`go`)" in said
    assert "Maven (`mvn`)" in said
    assert "a JDK 17 or newer (`javac`)" in said
