"""The computations of the joins benchmark from its readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from benchmarks import bench_joins
from benchmarks.joins import proc_takes
from benchmarks.joins.compare_commits import compare_shape, slower
from benchmarks.joins.report import Reading, growth, growth_line, half_misses, line_of, misses, steady_line
from benchmarks.joins.state_parts import StateParts, state_parts
from benchmarks.joins.workload import Shape, shapes, write_log


def reading(engine: str, batches: list[tuple[int, float, int]]) -> Reading:
    changes, seconds = sum(n for n, _, _ in batches), sum(s for _, s, _ in batches)
    return Reading(engine=engine, changes=changes, seconds=seconds, state_bytes=1, batches=tuple(batches))


WARM_UP = (100, 9.0, 0)
FLINK = Reading(engine="flink", changes=500, seconds=20.0, state_bytes=1)


def test_a_slower_half_is_a_miss_even_if_it_wrote_more_rows() -> None:
    ours = reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.0, 100), (100, 2.0, 300), (100, 2.0, 300)])
    assert misses("star", ours, FLINK) == ["star: the second half runs at 0.50× the first, at least 0.9× is required"]
    line = line_of("star", ours, FLINK)
    assert "second half 1.00× the first in changes read and rows written, 0.50× in changes read" in line
    assert "rows written per change: 1.00, then 3.00" in line


def test_a_half_with_a_lower_rate_is_reported() -> None:
    ours = reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.2, 100)])
    assert misses("n1", ours, FLINK) == ["n1: the second half runs at 0.83× the first, at least 0.9× is required"]
    assert not misses("n1", reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.1, 100)]), FLINK)
    assert misses("n1", reading("ours", [(100, 100.0, 0)]), FLINK) == ["n1: 0.04× Flink, at least 0.7× is required"]


def test_growth_is_the_cost_of_a_change_in_the_larger_tables() -> None:
    small = [reading("ours", [WARM_UP, (100, 1.0, 0)]), reading("ours", [WARM_UP, (100, 3.0, 0)])]
    assert growth(small, [reading("ours", [WARM_UP, (100, 3.0, 0)])]) == pytest.approx(1.5)


def test_cpu_withheld_by_the_host_is_reported() -> None:
    ours = replace(reading("ours", [WARM_UP, (100, 1.0, 0), (100, 1.0, 0)]), withheld=0.041)
    assert "CPU steal: 4.1% in Tailorbird's run, 0.0% in Flink's" in line_of("n1", ours, FLINK)
    assert "(CPU steal: up to 4.1% in a run)" in growth_line([ours, FLINK], [FLINK])


def test_a_restart_reads_less_than_the_whole_state(tmp_path: Path) -> None:
    """It reads the newest snapshot of each store with the SST files that it names, and the changelogs after it."""
    assert state_parts(tmp_path) == StateParts()
    for store, newest in (("0/0", 4), ("0/1/left", 0)):
        folder = tmp_path / store
        (folder / "SSTs").mkdir(parents=True)
        for version in range(1, 7):
            (folder / f"{version}.changelog").write_bytes(b"-" * 10)
        for version in (2, newest) if newest else ():
            (folder / "SSTs" / f"{version}.sst").write_bytes(b"-" * 1000)
            with ZipFile(folder / f"{version}.zip", "w") as archive:
                archive.writestr("metadata", 'v1\n{"sstFiles": [{"localFileName": "1.sst", "sizeBytes": 1000}]}')
    size = (tmp_path / "0/0/4.zip").stat().st_size
    found = state_parts(tmp_path)
    assert found == StateParts(snapshot=1000 + size, changelogs=20 + 60, older=1000 + size + 40)
    ours = replace(reading("ours", [WARM_UP]), state_bytes=9_000_000, restart_bytes=2_000_000)
    assert "state 9 MB (a restart reads 2) against 0 MB\n" in line_of("n1", ours, FLINK)


@pytest.mark.parametrize(
    ("withheld", "kept"), [([0.04], 0.04), ([0.3, 0.01], 0.01), ([0.3, 0.1, 0.2], 0.1)], ids=["quiet", "again", "never"]
)
def test_a_run_with_withheld_cpu_is_repeated(
    withheld: list[float], kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(withheld)
    monkeypatch.setattr(proc_takes, "_take", lambda *_: replace(FLINK, withheld=left.pop(0)))
    assert proc_takes.run(["python"], "engine", "n1", 1.0, Path("data"), 500).withheld == kept
    assert left == []


def test_the_steady_star_is_judged_by_its_halves_alone() -> None:
    ours = replace(reading("ours", [WARM_UP, (100, 1.0, 160), (100, 0.8, 160)]), withheld=0.035)
    assert steady_line(ours) == (
        "star whose facts all exist at the start: second half 1.25× the first in changes read and rows written,"
        " 1.25× in changes read; rows written per change: 1.60, then 1.60 (CPU steal: 3.5%)"
    )
    assert not half_misses("steady", ours)
    slower = reading("ours", [WARM_UP, (100, 1.0, 160), (100, 1.25, 160)])
    assert half_misses("steady", slower) == [
        "steady: the second half runs at 0.80× the first, at least 0.9× is required"
    ]


@pytest.mark.parametrize("name", ["star", "steady", "growth10"])
def test_a_log_fills_its_tables_first_and_has_the_reported_changes(name: str, tmp_path: Path) -> None:
    shape: Shape = next(shape for found, shape in shapes(0.001).items() if found == name)
    assert write_log(shape, tmp_path, per_batch=lambda batch: shape.filling()) == shape.changes
    filling = "".join(path.read_text() for path in sorted(tmp_path.rglob("part-00000-*.json")))
    assert filling.count('"op":"c"') == shape.filling()
    later = "".join(path.read_text() for path in sorted((tmp_path / "orders").glob("part-0000[1-9]-*.json")))
    assert ('"op":"c"' in later) == (name == "star"), "facts that are filled are only updated and deleted"
    assert '"op":"u"' in later
    assert '"op":"d"' in later


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ([], True),
        (["--shapes", "hot,n1,star,snowflake"], True),
        (["--shapes", "n1"], False),
        (["--scale", "0.1"], False),
        (["--no-steady"], False),
        (["--no-growth"], False),
        (["--no-write"], False),
    ],
    ids=["all", "all, otherwise ordered", "one shape", "small", "no steady star", "no growth", "not wanted"],
)
def test_only_a_full_run_becomes_the_published_result(
    arguments: list[str], written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the shapes, or smaller ones, must not replace the result of a full run."""
    ours = reading("ours", [WARM_UP, (100, 1.0, 0), (100, 1.0, 0)])
    monkeypatch.setattr(bench_joins, "ROOT", tmp_path)
    monkeypatch.setattr(bench_joins, "build", lambda: None)
    monkeypatch.setattr(bench_joins, "flink_python", lambda: "python")
    monkeypatch.setattr(bench_joins, "write_log", lambda shape, data, per_batch: data.mkdir() or 300)
    monkeypatch.setattr(bench_joins, "run", lambda python, engine, *_: FLINK if engine == "engine_flink" else ours)
    monkeypatch.setattr(bench_joins, "_growth", lambda *_: ([ours], [ours]))
    monkeypatch.setattr(bench_joins, "_warm", lambda *_: ours)
    bench_joins.main(arguments)
    assert (tmp_path / "docs" / "results" / "joins.md").exists() == written


def test_an_unknown_commit_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_joins.main(["--shapes", "n1", "--beside", "v0.nothing"])
    assert ended.value.code == 2
    assert "--beside: no commit v0.nothing; name one" in capsys.readouterr().err


def test_an_unknown_shape_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_joins.main(["--shapes", "star,galaxy"])
    assert ended.value.code == 2
    assert "no shape galaxy; there are growth1, growth10, n1, star, " in capsys.readouterr().err


def test_the_best_turn_of_each_commit_counts() -> None:
    """Turns that the machine slowed down are ignored; a tree that is slower by more than 5% is a miss."""
    costs = iter([10.0, 20.0, 12.5, 11.0, 12.0, 13.0])  # before, now, now, before, before, now
    trees: list[Path] = []

    def run(tree: Path) -> Reading:
        trees.append(tree)
        return Reading(engine="ours", changes=10, seconds=1.0, state_bytes=1, cpu_seconds=next(costs))

    found = compare_shape("star", Path("before"), run)
    assert [tree == Path("before") for tree in trees] == [True, False, False, True, True, False]
    assert found.ratio == 0.8
    assert "0.80× before" in found.line
    assert slower([found]) == ["star: 0.80× of before, at least 0.95× is required"]
    assert not slower([replace(found, now=found.before)])
