"""The index stage with `--changed-since last`: from the leaves of the last comparison it finds what a comparison of all
rows finds, raises no false alarm, and reads only leaves that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.merkle.tree import NOTHING
from indexer.index.mapping import Document
from tailorbird.verify.findings import Kind
from tailorbird.verify.index import index_leaves
from tailorbird.verify.index.file_leaves import LeavesFile
from tailorbird.verify.index.index_leaves import (
    IdRange,
    IndexLeaves,
    LeafBuilder,
    RangeSum,
    RowChanges,
    rebuilt,
    runs_of,
)
from tailorbird.verify.index.index_stage import IndexComparison, IndexStage, RowDocument
from tailorbird.verify.index.routine_stage import RoutineStage
from tests.laws.test_verify_index import FAULTS, LIVE, STILL, changed, gone, hidden, unshipped
from tests.support.indexed import Edit, Model, ModelRows, ModelShown, document

SEEDS = st.integers(0, 2**32)
MANY = [f"k{n:05d}" for n in range(300)]


class TrackedModel(Model):
    """Also keeps what a raw scan of HBase shows: the timestamp of every cell and delete marker by key."""

    def __init__(self, random: Random, keys: Sequence[str], *, busy: bool = True) -> None:
        super().__init__(random, keys, busy=busy)
        self.cells: list[tuple[str, int]] = []
        self.compactions = 0

    def store(self, edit: Edit) -> None:
        super().store(edit)
        self.cells.append((edit.key, edit.timestamp))

    def compact(self) -> None:
        """Drop all delete markers, as a major compaction does."""
        self.cells = [(key, at) for key, at in self.cells if key in self.table and self.table[key].timestamp == at]
        self.compactions += 1


class LeafModelRows(ModelRows):
    """The table of a model, by ranges. `read` counts the rows."""

    def __init__(self, model: TrackedModel) -> None:
        super().__init__(model)
        self._tracked, self.read = model, 0

    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, RowDocument]]:
        for ids in ranges:
            yield from self._between(ids)

    def _between(self, ids: IdRange) -> Iterator[tuple[str, RowDocument]]:
        last: str | None = None
        while True:
            self._tracked.steps()
            inside = (key for key in self._tracked.table if _within(ids, key) and (last is None or key > last))
            last = min(inside, default=None)
            if last is None:
                return
            self.read += 1
            edit = self._tracked.table[last]
            yield last, RowDocument(edit.version, document(edit))

    def versions_between(self, ids: IdRange) -> Iterator[tuple[str, int]]:
        return ((key, row.version) for key, row in self._between(ids))

    def store_files(self) -> Mapping[str, Sequence[str]]:
        return {"": (f"file {self._tracked.compactions}",)}

    def expiry(self) -> int:
        return 0

    def changed(self, timestamp: int, known: Mapping[str, Sequence[str]]) -> RowChanges:
        before = self.store_files()
        self._tracked.steps()
        ids = {key for key, at in self._tracked.cells if at >= timestamp}
        unknown = [] if known == before == self.store_files() else [IdRange("", None)]
        return RowChanges(ids=ids, unknown=unknown, store_files=before)


class LeafModelShown(ModelShown):
    """The index of a model, by ranges. `nodes` counts the ranges that Solr has summed."""

    late = 0

    def __init__(self, model: TrackedModel) -> None:
        super().__init__(model)
        self._tracked, self.nodes = model, 0

    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, Document]]:
        for ids in ranges:
            yield from self._between(ids)

    def _between(self, ids: IdRange) -> Iterator[tuple[str, Document]]:
        last: str | None = None
        while True:
            self._tracked.steps()
            inside = (key for key in self._tracked.shown if _within(ids, key) and (last is None or key > last))
            last = min(inside, default=None)
            if last is None:
                return
            yield last, self._tracked.shown[last]

    def sums(self, ranges: Sequence[IdRange]) -> Sequence[RangeSum]:
        self._tracked.steps()
        self.nodes += len(ranges)
        shown = {key: int(made["_fence"]) for key, made in self._tracked.shown.items()}  # type: ignore[arg-type]  # an int
        inside = [[version for key, version in shown.items() if _within(one, key)] for one in ranges]
        return [RangeSum(len(versions), sum(versions)) for versions in inside]

    def newest(self) -> int:
        held = self._tracked.held
        return max([int(held[key]["_version_"]) for key in self._tracked.shown if key in held], default=0)  # type: ignore[arg-type]  # an int

    def rewritten(self, since: int) -> Iterator[str]:
        held = self._tracked.held
        shown = [key for key in self._tracked.shown if key in held]
        return (key for key in shown if int(held[key]["_version_"]) > since)  # type: ignore[arg-type]  # an int


def _within(ids: IdRange, key: str) -> bool:
    return ids.start <= key and (ids.stop is None or key < ids.stop)


@pytest.fixture(autouse=True)
def _small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows per leaf and four leaves per node, so that few rows make a tree."""
    monkeypatch.setattr(LeafBuilder.__init__, "__kwdefaults__", {"size": 3})
    monkeypatch.setattr(index_leaves, "_FAN", 4)


class MemoryStore:
    """Keeps the leaves of a test, with their identity."""

    def __init__(self) -> None:
        self.leaves: IndexLeaves | None = None

    def read(self, identity: Mapping[str, str]) -> IndexLeaves | str:
        if self.leaves is None:
            return "nothing is stored"
        return self.leaves if self.leaves.identity == identity else "another identity"

    def write(self, leaves: IndexLeaves) -> None:
        self.leaves = leaves

    def forget(self) -> None:
        self.leaves = None


def routine(
    model: TrackedModel, *, steps: int = 40, kept: MemoryStore | None = None, identities: Sequence[str | None] = ()
) -> RoutineStage:
    """Return the stage for a model. `identities` are what it finds, one after the other."""

    def pause(_: int) -> None:
        for _ in range(model.random.randrange(steps)):
            model.step()

    rows, shown = LeafModelRows(model), LeafModelShown(model)
    stage = IndexStage(
        table="t",
        index="i",
        row_key=("_id",),
        columns=("text",),
        rows=rows,
        shown=shown,
        seconds=lambda: 0.0,
        pause=pause,
    )
    found = iter(identities)

    def identity() -> Mapping[str, str] | None:
        layout = next(found)
        return None if layout is None else {"layout": layout}

    return RoutineStage(
        stage=stage, rows=rows, shown=shown, kept=kept or MemoryStore(), identity=identity, seconds=lambda: 0.0
    )


def a_world(seed: int, still: Sequence[str] = STILL) -> TrackedModel:
    model = TrackedModel(Random(seed), LIVE)
    model.timestamp += 2
    for number, key in enumerate(still):
        model.write(Edit(key, model.timestamp + 1, f"still {number}"))
    model.write(Edit("", model.timestamp, None))
    for _ in range(200):
        model.step()
    return model


def quiet(keys: Sequence[str]) -> TrackedModel:
    """Return a model whose index shows these rows, and without traffic."""
    model = TrackedModel(Random(5), [], busy=False)
    for key in keys:
        model.write(Edit(key, model.timestamp + 1, "x"))
    model.write(Edit("", model.timestamp, None))
    model.settle()
    return model


def compared_all(model: TrackedModel) -> IndexLeaves:
    """Compare all rows of a model once its index has a complete cut."""
    while model.shipped < len(model.log):
        model.ship()
    model.commit()
    compared, leaves = routine(model).compare_from(None)
    assert compared.verdict.outcome == "equal"
    assert leaves is not None
    return leaves


def compared_from(model: TrackedModel, known: IndexLeaves) -> tuple[IndexComparison, IndexLeaves]:
    """Compare what changed since some leaves."""
    compared, leaves = routine(model).compare_from(known)
    assert leaves is not None
    return compared, leaves


def traffic(model: TrackedModel, steps: int) -> None:
    for _ in range(steps):
        model.step()
        if model.random.random() < 0.02:
            model.compact()


def kinds_of(compared: IndexComparison) -> dict[str, Kind]:
    return {str(finding.key["_id"]): finding.kind for finding in compared.verdict.findings}


@given(seed=SEEDS, steps=st.integers(0, 150))
@settings(max_examples=60)
def test_traffic_and_compactions_are_never_called_different(seed: int, steps: int) -> None:
    """Rows are inserted, changed and deleted, batches repeated, and markers dropped: no false alarm, and the new leaves
    are as good as those of a comparison of all rows."""
    model = a_world(seed)
    leaves = compared_all(model)
    for _ in range(3):
        traffic(model, steps)
        compared, leaves = compared_from(model, leaves)
        assert (compared.verdict.findings, compared.differing, compared.verdict.unknown) == ((), (), ())
    model.settle()
    compared, leaves = compared_from(model, leaves)
    assert (compared.verdict.outcome, compared.verdict.rows) == ("equal", len(model.table))
    total = sum((leaf.digest for leaf in leaves.leaves), NOTHING)
    expected = [index_leaves.row_digest(key, edit.version) for key, edit in model.table.items()]
    assert total == sum(expected, NOTHING)
    assert not any(leaf.open for leaf in leaves.leaves)


def deleted_directly(model: Model, key: str) -> Kind:
    """Delete a row in HBase without replication, now: a marker stays."""
    model.timestamp += 2
    model.store(Edit(key, model.timestamp, None))
    model.write(Edit("", model.timestamp, None))
    return "extra"


def deleted_and_compacted(model: Model, key: str) -> Kind:
    """Delete a row in HBase without replication; then a compaction drops the marker."""
    assert isinstance(model, TrackedModel)
    deleted_directly(model, key)
    model.compact()
    return "extra"


def written_directly(model: Model, key: str) -> Kind:
    """Change a row in HBase without replication, now."""
    model.timestamp += 2
    model.store(Edit(key, model.timestamp + 1, "written directly"))
    model.write(Edit("", model.timestamp, None))
    return "different"


# those whose change in HBase has no later timestamp are not among them
LATER = [
    *(fault for fault in FAULTS if fault not in (unshipped, gone)),
    deleted_directly,
    deleted_and_compacted,
    written_directly,
]
PLANTED = st.dictionaries(st.sampled_from(STILL), st.sampled_from(LATER))


@given(seed=SEEDS, planted=PLANTED)
@settings(max_examples=90)
def test_every_fault_since_the_last_comparison_is_found(seed: int, planted: dict[str, type(changed)]) -> None:  # type: ignore[valid-type]  # a function's type
    """Exactly the planted rows are found, each with its kind; also by the next run, and none after a repair."""
    model = a_world(seed)
    leaves = compared_all(model)
    traffic(model, 40)
    while model.shipped < len(model.log):
        model.ship()
    kinds = {key: fault(model, key) for key, fault in planted.items()}
    model.commit()
    for _ in range(2):
        compared, leaves = compared_from(model, leaves)
        assert kinds_of(compared) == kinds
        assert sorted(compared.differing) == sorted(kinds)


@pytest.mark.parametrize("fault", [unshipped, gone])
def test_only_a_comparison_of_all_rows_finds_what_left_no_trace(fault: type(changed)) -> None:  # type: ignore[valid-type]  # a function's type
    """A value or a row that changes in HBase without any later timestamp: docs/verify.md names this limit."""
    model = a_world(3)
    leaves = compared_all(model)
    model.settle()
    kind = fault(model, STILL[0])
    quick, _ = routine(model).compare_from(leaves)
    assert kinds_of(quick) == {}
    full, _ = routine(model).compare_from(None)
    assert kinds_of(full) == {STILL[0]: kind}


def test_a_swap_of_equal_versions_is_found() -> None:
    """A document that moved to another id has the same number and sum of versions: its `_version_` betrays it."""
    model = a_world(4)
    leaves = compared_all(model)
    model.settle()
    moved = model.held.pop("a0")
    model.hold("a0x", {**moved, "_id": "a0x"})
    model.commit()
    compared, _ = routine(model).compare_from(leaves)
    assert kinds_of(compared) == {"a0": "missing", "a0x": "extra"}


def test_a_write_that_becomes_visible_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose `_version_` is below the greatest visible one, but whose commit is later, is read again."""
    model = a_world(4)
    leaves = compared_all(model)
    kind = changed(model, STILL[0])
    model.held[STILL[0]]["_version_"] = leaves.newest - 3
    model.commit()
    missed, _ = routine(model).compare_from(leaves)
    assert kinds_of(missed) == {}
    monkeypatch.setattr(LeafModelShown, "late", 5)
    found, _ = routine(model).compare_from(leaves)
    assert kinds_of(found) == {STILL[0]: kind}


@pytest.mark.parametrize("changes", [0, 1, 10, 30])
def test_the_rows_read_are_those_of_changed_leaves(changes: int) -> None:
    """The cost is proportional to the changes: each reads at most the rows of its own leaf again."""
    model = quiet(MANY)
    leaves = compared_all(model)
    model.timestamp += 2
    for key in model.random.sample(MANY, changes):
        model.write(Edit(key, model.timestamp + 1, "y"))
    model.write(Edit("", model.timestamp, None))
    model.settle()
    one = routine(model)
    compared, _ = one.compare_from(leaves)
    assert (compared.verdict.outcome, compared.verdict.rows) == ("equal", len(MANY))
    assert changes <= compared.verdict.read <= 3 * changes
    assert (one._rows.read, "counted" in compared.verdict.cut) == (compared.verdict.read, False)  # type: ignore[attr-defined]  # the model's


def test_a_lost_document_is_found_by_descending_from_its_node() -> None:
    """Nothing changed in HBase: Solr sums every node, then the leaves of one node, and one leaf is read."""
    model = quiet(MANY[:120])
    leaves = compared_all(model)
    del model.held[MANY[50]]
    model.commit()
    one = routine(model)
    compared, _ = one.compare_from(leaves)
    assert kinds_of(compared) == {MANY[50]: "missing"}
    assert (len(leaves.leaves), one._shown.nodes, compared.verdict.read) == (40, 10 + 4, 3)  # type: ignore[attr-defined]  # the model's


@given(st.sets(st.integers(0, 60)))
def test_runs_are_the_same_numbers(numbers: set[int]) -> None:
    """No leaf is lost or read twice, and no two runs touch."""
    runs = list(runs_of(numbers))
    assert [n for first, last in runs for n in range(first, last + 1)] == sorted(numbers)
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(runs))


def test_an_emptied_leaf_is_joined_with_the_one_before() -> None:
    """Tables whose oldest rows are deleted do not collect empty leaves."""
    builder = LeafBuilder()
    for number in range(9):
        builder.add(f"{number}", 2, agrees=True)
    known = IndexLeaves(leaves=tuple(builder.built()), cut=1, newest=1)
    empty = LeafBuilder("3").built()
    assert [leaf.start for leaf in rebuilt(known, {1: (1, empty)})] == ["", "6"]
    assert [leaf.start for leaf in rebuilt(known, {0: (0, LeafBuilder().built())})] == ["", "3", "6"]


def test_the_stored_leaves_are_those_that_were_written(tmp_path: Path) -> None:
    """The file is read back as it was, and never under another identity, format, or when it is cut off."""
    leaves = replace(compared_all(a_world(7)), identity={"layout": "1"})
    file = LeavesFile(tmp_path, "shop", "orders")
    assert file.read({"layout": "1"}) == "no earlier comparison is stored here"
    file.write(leaves)
    assert file.read({"layout": "1"}) == leaves
    assert file.read({"layout": "2"}) == "since the last comparison there is another layout"
    [path] = (tmp_path / "verify").iterdir()
    text = path.read_text()
    path.write_text(text.replace('"format":2', '"format":1'))
    assert file.read({"layout": "1"}) == "the last comparison was stored by another version"
    path.write_text(text[: len(text) // 2])
    assert "cannot be read" in str(file.read({"layout": "1"}))
    file.forget()
    assert file.read({"layout": "1"}) == "no earlier comparison is stored here"


def test_leaves_are_used_only_for_what_they_were_made_of() -> None:
    """Without stored leaves, under another identity, or while it is unknown, all rows are compared, with the reason.
    After a rebuild during a comparison nothing is kept.
    """
    model, kept = quiet(STILL), MemoryStore()
    cases: list[tuple[list[str | None], bool, str]] = [
        (["1", "1"], True, "compared all rows: nothing is stored"),
        (["1", "1"], True, ""),
        ([None], True, "compared all rows: ZooKeeper does not answer"),
        (["1", "1"], True, ""),
        (["1", "1"], False, ""),
        (["2", "2"], True, "compared all rows: another identity"),
        (["2", "3"], True, ""),
        (["3", "3"], True, "compared all rows: nothing is stored"),
    ]
    for identities, since, why in cases:
        verdict = routine(model, kept=kept, identities=identities).compare(changed=since).verdict
        assert (verdict.outcome, verdict.rows) == ("equal", len(STILL))
        assert why in verdict.cut
        assert ("since batch" in verdict.cut) == (since and not why)


def test_cells_that_expire_are_compared_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """HBase does not report that a cell has expired."""
    kept = MemoryStore()
    model = quiet(STILL)
    routine(model, kept=kept, identities="11").compare(changed=True)
    monkeypatch.setattr(LeafModelRows, "expiry", lambda _: 60)
    verdict = routine(model, kept=kept, identities="11").compare(changed=True).verdict
    assert "compared all rows: its cells expire after 60 s" in verdict.cut


def test_without_the_raw_scan_all_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If HBase refuses it, deletes are found by the digests of the rows that are left."""
    model = a_world(8)
    leaves = compared_all(model)
    deleted_directly(model, STILL[1])
    model.settle()
    monkeypatch.setattr(
        LeafModelRows, "changed", lambda *_: RowChanges(ids=(), unknown=(IdRange("", None),), store_files={})
    )
    one = routine(model)
    compared, _ = one.compare_from(leaves)
    assert kinds_of(compared) == {STILL[1]: "extra"}
    assert compared.verdict.read >= len(model.table)
    assert "counted" in compared.verdict.cut


def test_the_law_depends_on_each_source_of_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would prove nothing: without one of the sources a fault is missed."""
    for source, fault in (("rewritten", changed), ("changed", deleted_directly), ("sums", hidden)):
        model = quiet(STILL)
        leaves = compared_all(model)
        kind = fault(model, STILL[2])
        model.settle()
        with monkeypatch.context() as patched:
            if source == "rewritten":
                patched.setattr(LeafModelShown, "rewritten", lambda *_: iter(()))
            elif source == "changed":
                nothing = RowChanges(ids=(), unknown=(), store_files={"": ("file 0",)})
                patched.setattr(LeafModelRows, "changed", lambda *_, nothing=nothing: nothing)
            else:
                patched.setattr(index_leaves, "differing_leaves", lambda *_: set())
            without, _ = routine(model).compare_from(leaves)
        found, _ = routine(model).compare_from(leaves)
        assert (kinds_of(without), kinds_of(found)) == ({}, {STILL[2]: kind}), source


def test_a_key_of_a_document_without_row_is_in_some_leaf() -> None:
    """Any id lies in exactly one leaf, also before the first row and after the last one."""
    leaves = compared_all(a_world(10))
    for key in ("", "A", "zzz", "b05", document(Edit("q", 1, "x"))["_id"]):
        numbers = leaves.holding([str(key)])
        assert [n for n in range(len(leaves.leaves)) if _within(leaves.range(n), str(key))] == list(numbers)
