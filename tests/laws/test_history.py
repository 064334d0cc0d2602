"""Properties of the schema history: it returns the schema at each position, after repeated reads and from the topic."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Fatal, Skippable
from cdc.model.event import Position
from cdc.model.history import (
    DatabaseState,
    History,
    Record,
    SchemaChange,
    TableState,
    checkpoint,
    history_from_records,
    records,
)
from cdc.model.schema import Column, TableId, TableSchema

Step = tuple[str, str, int]  # kind, table, columns


def position(sequence: int) -> Position:
    return Position(file="binlog.000001", pos=4 + sequence, gtid_set="", sequence=sequence)


def table_id(name: str) -> TableId:
    return TableId(source="s", database="d", table=name)


def state(what: str, name: str, width: int, number: int) -> TableState:
    columns = tuple(Column(name=f"c{i}", column_type="int") for i in range(width))
    schema = TableSchema(table_id=table_id(name), version=number, columns=columns, primary_key=("c0",))
    if what != "known":
        unknown = "not understood" if what == "unknown" else ""
        return TableState(table_id=table_id(name), schema=None, version=number, unknown=unknown)
    return TableState(table_id=table_id(name), schema=schema, version=number, detail={"n": number})


def change(step: Step, number: int) -> SchemaChange:
    what, name, width = step
    database = DatabaseState(source="s", database="d", charset=f"set{number}", gone=what == "gone")
    databases = (database,) if width == 3 else ()
    tables = (state(what, name, width, number),)
    return SchemaChange(position=position(number), ddl=f"{what} {name}", tables=tables, databases=databases)


steps = st.lists(
    st.tuples(st.sampled_from(["known", "gone", "unknown"]), st.sampled_from(["a", "b"]), st.integers(1, 3)),
    max_size=12,
)


def changes_of(found: list[Step], gap: int) -> list[SchemaChange]:
    return [change(step, gap * (i + 1)) for i, step in enumerate(found)]


def fold(changes: list[SchemaChange], history: History | None = None) -> History:
    history = history or History()
    for one in changes:
        history = history.record(one)
    return history


def at(history: History, number: int) -> tuple[object, ...]:
    """Return everything that a history contains for a position."""
    return (
        *(history.state_at(table_id(name), position(number)) for name in ("a", "b")),
        *history.tables_at(position(number)),
        *history.databases_at(position(number)),
    )


@given(found=steps, gap=st.integers(1, 3))
@settings(deadline=None)  # the machine may be busy
def test_a_position_has_what_the_last_change_before_it_made(found: list[Step], gap: int) -> None:
    """schema_at(table, position) is the state left by the newest change that is not after the position."""
    changes = changes_of(found, gap)
    history = fold(changes)
    for number in range(gap * (len(found) + 2)):
        for name in ("a", "b"):
            wanted: TableState | None = None
            for one in changes:
                if one.position.sequence <= number and one.tables[0].table_id == table_id(name):
                    wanted = one.tables[0]
            assert history.state_at(table_id(name), position(number)) == wanted
            if wanted and wanted.schema:
                assert history.schema_at(table_id(name), position(number)) == wanted.schema
            else:
                with pytest.raises(Skippable):
                    history.schema_at(table_id(name), position(number))


@given(found=steps, start=st.integers(0, 12))
@settings(deadline=None)  # the machine may be busy
def test_changes_that_are_read_again_change_nothing(found: list[Step], start: int) -> None:
    """A replay from any older position folds to the same history."""
    changes = changes_of(found, 1)
    history = fold(changes)
    assert fold(changes[start:], history) == history


@given(found=steps, cut=st.integers(0, 13), order=st.randoms(use_true_random=False))
@settings(deadline=None)  # the machine may be busy
def test_the_topic_holds_the_history(found: list[Step], cut: int, order: random.Random) -> None:
    """Records read in any order restore the history; a checkpoint leaves O(tables) records before its position and
    removes nothing else."""
    changes = changes_of(found, 1)
    history = fold(changes)
    written = [record for one in changes for record in records(one)]
    shuffled = list(written)
    order.shuffle(shuffled)
    assert history_from_records(shuffled, "s") == history
    assert history_from_records(written, "other") == History()
    after = [*written, *checkpoint(history, position(cut))]
    compacted = list(compact(after).items())
    order.shuffle(compacted)
    restored = history_from_records(compacted, "s")
    for number in range(cut, len(found) + 2):
        assert at(restored, number) == at(history.since(position(cut)), number) == at(history, number)
    newer = sum(1 for one in changes if one.position.sequence > cut for _ in records(one))
    assert len([value for _, value in compacted if value is not None]) <= 3 + newer
    assert fold(changes[cut:], restored) == restored


@given(found=steps, cut=st.integers(0, 12))
@settings(deadline=None)  # the machine may be busy
def test_an_amendment_survives_a_replay(found: list[Step], cut: int) -> None:
    """A schema learnt for a table whose statement was not understood holds from that statement on, also after a replay
    and after a restore from the topic."""
    changes = changes_of(found, 1)
    history = fold(changes)
    written = [record for one in changes for record in records(one)]
    for name in ("a", "b"):
        last = history.last_state(table_id(name))
        if last is None:
            continue
        learnt = state("known", name, 3, 99)
        history, number = history.amend(learnt)
        written += records(SchemaChange(position=position(number), ddl="", tables=(learnt,)))
        assert history.schema_at(table_id(name), position(number)) == learnt.schema
        assert history.held(table_id(name), number) == learnt
    assert fold(changes[cut:], history) == history
    assert history_from_records(written, "s") == history


def test_positions_of_another_run_are_refused() -> None:
    """An unknown change older than the history is Fatal: history and position do not belong together."""
    history = fold([change(("known", "a", 1), 10)])
    with pytest.raises(Fatal, match="different runs"):
        history.record(change(("known", "a", 2), 5))


def test_before_its_beginning_a_history_says_so() -> None:
    """After a checkpoint older positions are Fatal, never answered with the wrong schema."""
    history = fold([change(("known", "a", 1), 10), change(("known", "a", 2), 20)])
    kept = history.since(position(15))
    assert kept.schema_at(table_id("a"), position(15)) == history.schema_at(table_id("a"), position(12))
    with pytest.raises(Fatal, match="begins at sequence 15"):
        kept.schema_at(table_id("a"), position(14))


def test_a_record_of_a_later_format_is_refused() -> None:
    """Records contain a version; an unknown one is an error, not a guess."""
    (key, value), *_ = records(change(("known", "a", 1), 1))
    assert value is not None
    with pytest.raises(ValueError, match="format 2"):
        history_from_records([(key, {**value, "format": 2})], "s")


def compact(found: list[Record]) -> dict[str, Mapping[str, object] | None]:
    """Return what a compacted topic keeps, without tombstones."""
    return {key: value for key, value in dict(found).items() if value is not None}
