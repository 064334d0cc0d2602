"""The index stage during traffic that changes rows between any two reads: correct documents are never reported, lasting
errors are always found, and repaired documents stay correct."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailorbird.verify.findings import Kind
from tailorbird.verify.index.index_repair import repair_rows
from tailorbird.verify.index.index_stage import IndexComparison, IndexStage, Sample
from tests.support.indexed import Edit, Model, ModelCollection, ModelRows, ModelShown, document, tombstone

LIVE = [f"b{n:02d}" for n in range(12)]
STILL = [f"a{n}" for n in range(3)] + [f"c{n}" for n in range(3)]
SEEDS = st.integers(0, 2**32)


def world(seed: int) -> Model:
    """Return a model in the middle of a run: rows that traffic changes, and rows that it does not."""
    model = Model(Random(seed), LIVE)
    model.timestamp += 2
    for number, key in enumerate(STILL):
        model.write(Edit(key, model.timestamp + 1, f"still {number}"))
    model.write(Edit("", model.timestamp, None))
    for _ in range(200):
        model.step()
    return model


def stage(model: Model, *, patient: bool = True) -> IndexStage:
    def pause(_: int) -> None:
        for _ in range(model.random.randrange(40)):
            model.step()

    return IndexStage(
        table="t",
        index="i",
        row_key=("_id",),
        columns=("text",),
        rows=ModelRows(model),
        shown=ModelShown(model, patient=patient),
        seconds=lambda: 0.0,
        pause=pause,
    )


def changed(model: Model, key: str) -> Kind:
    """Change the document under its own version: the version check does not notice."""
    model.hold(key, {**document(model.table[key]), "text": "wrong"})
    return "different"


def removed(model: Model, key: str) -> Kind:
    del model.held[key]
    return "missing"


def hidden(model: Model, key: str) -> Kind:
    """Plant a tombstone with a version that no row has yet."""
    model.hold(key, tombstone(Edit(key, model.timestamp + 10**6, None)))
    return "missing"


def outdated(model: Model, key: str) -> Kind:
    model.hold(key, document(Edit(key, 900, "older")))
    return "different"


def ahead(model: Model, key: str) -> Kind:
    """Plant the row's document with a version that rejects all later ones."""
    model.hold(key, document(model.table[key]._replace(timestamp=model.timestamp + 10**6)))
    return "different"


def unshipped(model: Model, key: str) -> Kind:
    """Change the row past replication, under an older timestamp than the cut's."""
    model.table[key] = model.table[key]._replace(text="written directly")
    return "different"


def gone(model: Model, key: str) -> Kind:
    """Delete the row past replication."""
    del model.table[key]
    return "extra"


FAULTS: list[Callable[[Model, str], Kind]] = [changed, removed, hidden, outdated, ahead, unshipped, gone]
Planted = dict[str, Callable[[Model, str], Kind]]
PLANTED = st.dictionaries(st.sampled_from(STILL), st.sampled_from(FAULTS))


def plant(model: Model, planted: Planted) -> dict[str, Kind]:
    while model.shipped < len(model.log):
        model.ship()
    kinds = {key: fault(model, key) for key, fault in planted.items()}
    model.commit()
    return kinds


def kinds_of(compared: IndexComparison) -> dict[str, Kind]:
    return {str(finding.key["_id"]): finding.kind for finding in compared.verdict.findings}


@given(seed=SEEDS)
@settings(max_examples=150)
def test_traffic_is_never_called_different(seed: int) -> None:
    """With half-written and repeated batches, a lagging index, and rows that appear and vanish: no false alarm."""
    compared = stage(world(seed)).compare()
    assert (compared.verdict.findings, compared.differing, compared.verdict.unknown) == ((), (), ())


@given(seed=SEEDS, planted=PLANTED)
@settings(max_examples=150)
def test_every_fault_that_stays_is_found(seed: int, planted: Planted) -> None:
    """Exactly the planted rows are found, each with its kind, while everything else changes."""
    model = world(seed)
    kinds = plant(model, planted)
    compared = stage(model).compare()
    assert kinds_of(compared) == kinds
    assert sorted(compared.differing) == sorted(kinds)


@given(seed=SEEDS, planted=PLANTED, parts=st.integers(1, 4))
@settings(max_examples=100)
def test_a_sample_finds_every_other_version_and_all_in_as_many_turns(seed: int, planted: Planted, parts: int) -> None:
    """There is no false alarm either; a value changed under its own version is found in its turn."""
    model = world(seed)
    kinds = plant(model, planted)
    turns = [kinds_of(stage(model).compare(Sample(parts, turn))) for turn in range(parts)]
    assert {key: kind for found in turns for key, kind in found.items()} == kinds
    by_version = {key for key, fault in planted.items() if fault not in (changed, unshipped)}
    assert all(by_version <= found.keys() for found in turns)
    assert sum(len(found.keys() - by_version) for found in turns) == len(kinds.keys() - by_version)


@given(seed=SEEDS, planted=PLANTED, extra=st.sampled_from(["a9", "zz"]))
@settings(max_examples=150)
def test_what_is_repaired_stays_repaired(seed: int, planted: Planted, extra: str) -> None:
    """During traffic, and with a document without row among the faults: at the end every document is its row's, and
    later
    writes of those rows arrive."""
    model = world(seed)
    plant(model, planted)
    model.hold(extra, document(Edit(extra, 900, "no row")))
    model.commit()
    one = stage(model)
    differing = one.compare().differing
    assert extra in differing
    done = repair_rows(differing, ModelRows(model), ModelCollection(model))
    assert (done.written + done.removed, done.left) == (len(differing), {})
    assert one.look(differing).verdict.outcome == "equal"
    model.timestamp += 2
    for key in differing:
        model.write(Edit(key, model.timestamp + 1, "later"))
    model.write(Edit("", model.timestamp, None))
    model.settle()
    assert model.shown == {key: document(edit) for key, edit in model.table.items()}


@pytest.mark.parametrize("confirmed", [1, 2])
def test_a_reader_that_does_not_wait_for_a_cut_raises_false_alarms(
    confirmed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the tests above would prove nothing: waiting for the cut is what makes them pass."""
    from tailorbird.verify import rounds

    monkeypatch.setattr(rounds.recheck, "__kwdefaults__", {**LOOKED, "confirmed": confirmed})
    assert any(stage(world(seed), patient=False).compare().differing for seed in range(300))


LOOKED = {"rounds": 10, "confirmed": 3, "block": 2000}


def test_nothing_is_called_different_that_no_cut_covers() -> None:
    """A row with a future timestamp: no barrier requires that it is shown."""
    model = world(1)
    model.settle()
    model.store(Edit("a0", model.timestamp + 10**6, "from the future"))
    verdict = stage(model).compare().verdict
    assert (verdict.outcome, verdict.differing) == ("could not tell", 0)
    assert verdict.unknown[0].startswith("1 row: stored with a timestamp newer than any of the join's")


def test_an_index_that_stands_still_is_reported() -> None:
    """Its indexer is down: a difference cannot be called wrong."""
    model = world(2)
    model.settle()
    model.timestamp += 2
    model.store(Edit("a0", model.timestamp + 1, "not shipped"))
    verdict = stage(model).compare().verdict
    assert (verdict.outcome, verdict.differing, verdict.moving) == ("could not tell", 0, 0)
    assert "index i shows batch timestamp" in verdict.unknown[0]
