"""The table stage during traffic on two sources: correct rows are never reported as different, and lasting errors are
found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailorbird.verify.findings import Kind, Verdict
from tailorbird.verify.table.table_repair import repair_rows
from tailorbird.verify.table.table_stage import DifferingRow, QueryAnswer, Row, Stored, TableStage

LIVE = [f"b{n:02d}" for n in range(10)]
STILL = [f"a{n}" for n in range(3)]
NAMES = ["left", "right"]
SEEDS = st.integers(0, 2**32)
State = dict[str, str]


class Joined:
    """Two sources, each a log of changes of its rows, and the join of both by key, which follows them in batches.

    A batch reads each log up to some point and writes the rows that differ, with other steps in between. Then it writes
    its barrier, which names at most the point it has read to, often less.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.logs: dict[str, list[tuple[str, str | None]]] = {name: [] for name in NAMES}
        self.read = dict.fromkeys(NAMES, 0)
        self.reported = dict.fromkeys(NAMES, 0)
        self.table: dict[str, Stored] = {}
        self.deleted: dict[str, int] = {}
        self.timestamp = self.barrier = 1000
        self.left: list[tuple[str, Row | None]] = []
        self.target = dict(self.read)
        self.under_way = False
        for key in STILL:
            for name in NAMES:
                self.logs[name].append((key, f"{name} of {key}"))

    def step(self) -> None:
        """Change a source, or let the join take its next step."""
        if self.random.random() < 0.3:
            key = self.random.choice(LIVE)
            self.logs[self.random.choice(NAMES)].append((key, self.random.choice([None, "x", "y"])))
        else:
            self.join()

    def steps(self, most: int = 3) -> None:
        for _ in range(self.random.randrange(most + 1)):
            self.step()

    def join(self) -> None:
        if not self.under_way:
            self.target = {name: self.random.randint(self.read[name], len(self.logs[name])) for name in NAMES}
            wanted, now = {**self.answer(self.target), **self.ghosts}, self.believed
            asked, self.asked = self.asked, []
            changed = [k for k in wanted.keys() | now.keys() if wanted.get(k) != now.get(k)]
            self.left = [(k, wanted.get(k)) for k in {*changed, *(k for k in asked if k in wanted)}]
            self.believed = wanted
            self.timestamp += 2
            self.under_way = True
        elif self.left:
            key, row = self.left.pop()
            if row is None:
                self.table.pop(key, None)
            elif self.timestamp + 1 > self.deleted.get(key, 0):  # HBase masks puts that are not newer than a delete
                self.table[key] = Stored(2 * (self.timestamp + 1), row)
        else:
            self.under_way, self.read = False, self.target
            self.reported = {name: self.random.randint(self.reported[name], self.read[name]) for name in NAMES}
            self.barrier = self.timestamp

    asked: Sequence[str] = ()  # rows that must be written whatever was written before
    ghosts: Mapping[str, Row] = {}  # wrong rows in its state
    believed: Mapping[str, Row] = {}  # the rows that it has written, as far as it knows

    # the repair's entry points
    def remove(self, rows: Mapping[str, int]) -> None:
        for key, timestamp in rows.items():
            self.steps()
            self.deleted[key] = timestamp
            if key in self.table and self.table[key].version <= 2 * timestamp:
                del self.table[key]

    def report(self, rows: Sequence[Row]) -> str:
        self.steps(20)
        while self.under_way:
            self.join()
        self.asked = [*self.asked, *(str(row["key"]) for row in rows)]
        while self.asked or self.under_way:
            self.step()
        return ""

    def state(self, name: str, end: int) -> State:
        found: State = {}
        for key, value in self.logs[name][:end]:
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def answer(self, ends: Mapping[str, int]) -> dict[str, Row]:
        """Return a LEFT JOIN of both."""
        right = self.state("right", ends["right"])
        return {
            key: {"key": key, "left": value, "right": right.get(key)}
            for key, value in self.state("left", ends["left"]).items()
        }

    # both ends, as the stage reads them
    def ask(self) -> QueryAnswer:
        ends: dict[str, int] = {}
        for name in NAMES:
            self.steps()
            ends[name] = len(self.logs[name])
        rows = self.answer(ends)
        self.steps(5)
        return QueryAnswer(rows, {name: str(end) for name, end in ends.items()})

    def scan(self) -> Iterator[tuple[str, Stored]]:
        last = ""
        while True:
            self.steps()
            following = min((key for key in self.table if key > last), default=None)
            if following is None:
                return
            last = following
            yield following, self.table[following]

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        found = {}
        for key in keys:
            self.steps()
            if key in self.table:
                found[key] = self.table[key]
        return found

    def written(self) -> int:
        self.steps()
        return self.timestamp

    def wait(self, positions: Mapping[str, str]) -> int | None:
        for _ in range(20_000):
            if all(self.reported[name] >= int(position) for name, position in positions.items()):
                return self.barrier
            self.step()
        return None


def world(seed: int) -> Joined:
    model = Joined(Random(seed))
    for _ in range(300):
        model.step()
    while any(model.read[name] < len(STILL) for name in NAMES) or model.under_way:
        model.join()
    return model


def stage(model: Joined) -> TableStage:
    def pause(_: int) -> None:
        model.steps(60)

    return TableStage(
        table="t",
        row_key=("key",),
        columns=("key", "left", "right"),
        sources=model,
        kept=model,
        seconds=lambda: 0.0,
        pause=pause,
    )


def kinds_of(verdict: Verdict) -> dict[str, Kind]:
    return {str(finding.key["key"]): finding.kind for finding in verdict.findings}


@given(seed=SEEDS)
@settings(max_examples=100)
def test_traffic_is_never_called_different(seed: int) -> None:
    """With half-written batches, barriers that promise less than was read, and sources read one after the other."""
    verdict, _ = stage(world(seed)).compare()
    assert (verdict.findings, verdict.differing, verdict.unknown) == ((), 0, ())


def changed(model: Joined, key: str) -> Kind:
    known = model.table[key]
    assert known.values is not None
    model.table[key] = Stored(known.version, {**known.values, "left": "wrong"})
    return "different"


def rewritten(model: Joined, key: str) -> Kind:
    """Write under a timestamp newer than the join's: a barrier covers it later."""
    known = model.table[key]
    assert known.values is not None
    model.table[key] = Stored(2 * (model.timestamp + 3), {**known.values, "right": None})
    return "different"


def removed(model: Joined, key: str) -> Kind:
    del model.table[key]
    return "missing"


def unreadable(model: Joined, key: str) -> Kind:
    model.table[key] = Stored(model.table[key].version, None, "no layout")
    return "different"


FAULTS: list[Callable[[Joined, str], Kind]] = [changed, rewritten, removed, unreadable]


@given(seed=SEEDS, planted=st.dictionaries(st.sampled_from(STILL), st.sampled_from(FAULTS)), added=st.booleans())
@settings(max_examples=100)
def test_every_wrong_row_that_stays_is_found(
    seed: int, planted: dict[str, Callable[[Joined, str], Kind]], added: bool
) -> None:
    """Exactly the planted rows are found, each with its kind and all differing columns."""
    model = world(seed)
    kinds = {key: fault(model, key) for key, fault in planted.items()}
    if added:
        model.table["zz"] = Stored(2 * 900, {"key": "zz", "left": "no", "right": None})
        kinds["zz"] = "extra"
    verdict, _ = stage(model).compare()
    assert kinds_of(verdict) == kinds
    assert verdict.differing == len(kinds)


def test_a_column_is_reported_with_both_values() -> None:
    """The value of the source comes before the stored one."""
    model = world(5)
    changed(model, "a1")
    [finding] = stage(model).compare().verdict.findings
    assert (dict(finding.key), dict(finding.columns)) == ({"key": "a1"}, {"left": ("left of a1", "wrong")})


def test_a_join_that_stands_still_is_reported() -> None:
    """No barrier covers the sources' positions: nothing is reported as wrong."""
    model = world(6)
    model.join = lambda: None  # type: ignore[method-assign]  # its process is gone
    model.logs["left"].append(("a0", "changed"))
    verdict, _ = stage(model).compare()
    assert (verdict.outcome, verdict.differing) == ("could not tell", 0)
    assert "no barrier of the table covers left at" in verdict.unknown[0]


@given(seed=SEEDS, planted=st.dictionaries(st.sampled_from(STILL), st.sampled_from(FAULTS)), added=st.booleans())
@settings(max_examples=100)
def test_what_differs_is_repaired_during_traffic(
    seed: int, planted: dict[str, Callable[[Joined, str], Kind]], added: bool
) -> None:
    """The second comparison finds everything correct; rows that the join wrote in between stay, whatever was
    deleted."""
    model = world(seed)
    for key, fault in planted.items():
        fault(model, key)
    if added:
        model.table["zz"] = Stored(2 * 900, {"key": "zz", "left": "no", "right": None})
    looking = stage(model)
    wrong = looking.compare().wrong
    done = repair_rows(wrong, model, model, now_ms=10**9)
    assert (done.removed, done.reported, done.left) == (added, len(planted), {})
    again, left = looking.look([one.key for one in wrong])
    assert (again.outcome, again.rows, left) == ("equal", len(planted) + added, ())
    finished(model)


def finished(model: Joined) -> None:
    """Finish all writes: the table is the answer."""
    ends = {name: len(log) for name, log in model.logs.items()}
    while model.under_way or model.read != ends:
        model.join()
    assert {key: one.values for key, one in model.table.items()} == model.answer(ends)


@given(seed=SEEDS, gone=st.booleans())
@settings(max_examples=50)
def test_a_wrong_state_is_found_out_by_the_second_look(seed: int, gone: bool) -> None:
    """The join writes its own state again: a wrong row, or one that no source has."""
    model, key = world(seed), "zz" if gone else "a1"
    ghost = {"key": key, "left": "believed", "right": None}
    model.ghosts = {key: ghost}
    model.table[key] = Stored(2 * 900, ghost)
    looking = stage(model)
    wrong = looking.compare().wrong
    repair_rows(wrong, model, model, now_ms=10**9)
    again, _ = looking.look([one.key for one in wrong])
    assert kinds_of(again) == {key: "extra" if gone else "different"}


@given(seed=SEEDS, steps=st.integers(0, 200))
@settings(max_examples=100)
def test_a_delete_never_takes_what_was_written_later(seed: int, steps: int) -> None:
    """A row without source was seen; then its key appears at a source, and is joined before or after the delete."""
    model = world(seed)
    model.table["zz"] = Stored(2 * (model.timestamp + 1), {"key": "zz", "left": "no", "right": None})
    wrong = stage(model).compare().wrong
    model.logs["left"].append(("zz", "yes"))
    for _ in range(steps):
        model.step()
    repair_rows(wrong, model, model, now_ms=10**9)
    finished(model)


def test_a_row_of_the_future_is_left_alone() -> None:
    """It beats whatever the join writes, so it is reported."""
    model = world(7)
    model.table["a1"] = Stored(2 * 5000, {"key": "a1", "left": "wrong", "right": None})
    wrong = [DifferingRow("a1", model.answer(model.read).get("a1"), model.table["a1"])]
    done = repair_rows(wrong, model, model, now_ms=4000)
    assert (done.removed, done.reported, done.line) == (0, 0, "a1 is unchanged: its timestamp 5000 is in the future")
