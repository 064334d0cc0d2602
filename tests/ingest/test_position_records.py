"""A source's position is read back exactly, from records of which most contain only what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.formats.position_records import PositionChains, Stored
from cdc.model.event import Position
from cdc.persistent import PersistentMap
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.position_writer import PositionWriter
from ingest.records.records import checkpoint_from

KEY = b"top.s"
FOREIGN = b"top.other"
START = Checkpoint(position=Position(file="f", pos=4, gtid_set="", sequence=0), snapshot="running", ts_ms=1)
names = st.sampled_from("abcdef")
commits = st.fixed_dictionaries(
    {
        "ends": st.dictionaries(names, st.integers(1, 3), max_size=2),
        "snapshots": st.dictionaries(names, st.one_of(st.none(), st.integers(0, 3)), max_size=3),
        "lost": st.booleans(),
    }
)
steps = st.lists(st.one_of(commits, st.sampled_from(["restart", "compact", "other"])), min_size=1, max_size=30)


@dataclass
class Topic:
    """One partition of `…positions`, and what each committed record means."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    meant: dict[int, tuple[Checkpoint, dict[str, dict[int, int]]]] = field(default_factory=dict)
    next_offset: int = 0

    def add(self, key: bytes, value: bytes) -> int:
        self.records.append((self.next_offset, key, value))
        self.next_offset += 2  # the marker of the transaction is an offset, too
        return self.next_offset - 2

    def fetch(self, _: int, start: int, end: int) -> Iterator[Stored]:
        yield from (one for one in self.records if start <= one[0] < end)

    def compact(self) -> None:
        newest = {key: offset for offset, key, _ in self.records}
        self.records = [one for one in self.records if newest[one[1]] == one[0]]


def shown(checkpoint: Checkpoint, ends: Any) -> Any:
    state = {name: dict(one) if name == "snapshots" else sorted(one) for name, one in checkpoint.state.items()}
    return replace(checkpoint, state={}), state, {topic: dict(one) for topic, one in ends.items()}


def written(made: list[Any], every: int) -> Topic:
    """Return the topic after some commits, lost commits, restarts of capture, and compactions."""
    topic, ends = Topic(), dict[str, dict[int, int]]()
    writer, checkpoint, changed = PositionWriter("s", KEY, few=0, every=every), START, set[str]()
    for step in made:
        if step == "restart":
            writer = PositionWriter("s", KEY, few=0, every=every)
        elif step == "compact":
            topic.compact()
        elif step == "foreign":
            for key, value in ((KEY, b"[]"), (KEY + b"/1", b"{"), (KEY + b"/2", b'{"format":2,"number":9}')):
                topic.add(key, value)
        elif step == "other":
            topic.add(FOREIGN, orjson.dumps({"format": 1}))
        else:
            snapshots = PersistentMap(checkpoint.state.get("snapshots", {}))
            for name, rows in step["snapshots"].items():
                snapshots = snapshots.without(name) if rows is None else snapshots.put(name, {"rows": rows})
            position = replace(checkpoint.position, sequence=checkpoint.position.sequence + 1)
            state = {"snapshots": snapshots, "partial": set(snapshots)}
            checkpoint = replace(checkpoint, position=position, state=state)
            for name, more in step["ends"].items():
                ends[name] = {0: ends.get(name, {}).get(0, 0) + more}
                changed.add(name)
            key, value, whole = writer.record(checkpoint, ends, changed, 0)
            if step["lost"]:  # the transaction was aborted, and the session continues
                continue
            offset = topic.add(key, value)
            writer.committed(checkpoint, offset if whole else None)
            changed.clear()
            topic.meant[offset] = checkpoint, {name: dict(one) for name, one in ends.items()}
    return topic


@given(steps, st.integers(1, 4), st.integers(0, 60))
def test_a_position_is_what_was_committed(made: list[Any], every: int, begin: int) -> None:
    """Every reader, from any offset on, reads each record as it was meant. The newest survives every compaction."""
    topic = written(made, every)
    chains, seen = PositionChains(topic.fetch), set[int]()
    for offset, key, value in topic.records:
        if offset < begin:
            continue
        found = chains.whole(0, offset, key, orjson.loads(value))
        if key == FOREIGN or found is None:
            continue
        seen.add(offset)
        assert shown(*checkpoint_from(found)) == shown(*topic.meant[offset])
    newest = max(topic.meant, default=-1)
    assert newest < begin or newest in seen


@given(steps)
def test_without_compaction_every_record_is_read(made: list[Any]) -> None:
    """A reader that begins anywhere misses no record, also if some in between were not written by capture."""
    topic = written(["foreign" if step == "compact" else step for step in made], 3)
    for offset, key, value in topic.records:
        if offset in topic.meant:
            assert PositionChains(topic.fetch).whole(0, offset, key, orjson.loads(value)) is not None


def test_the_size_does_not_depend_on_the_number_of_tables() -> None:
    """A commit after one change writes a few hundred bytes, with ten tables and with 20,000."""
    ends = {f"top.s.d.table_{number}": {0: 5} for number in range(20_000)}
    state = {"snapshots": PersistentMap({f"d.table_{number}": {"rows": 0} for number in range(20_000)})}
    writer, first = PositionWriter("s", KEY), replace(START, state=state)
    _, value, whole = writer.record(first, ends, set(), 0)
    assert whole
    assert len(value) > 1_000_000
    writer.committed(first, 0)
    second = replace(first, state={"snapshots": state["snapshots"].put("d.table_7", {"rows": 9})})
    key, value, whole = writer.record(second, ends, {"top.s.d.table_7"}, 0)
    assert (key, whole) == (b"top.s/1", False)
    assert len(value) < 500
    sizes = []
    for _ in range(2_000):
        key, value, whole = writer.record(second, ends, {"top.s.d.table_7"}, 0)
        writer.committed(second, 0 if whole else None)
        sizes.append(len(value))
    assert sum(size > 1_000_000 for size in sizes) == 3


def test_small_topologies_keep_whole_records() -> None:
    """With up to a hundred tables each record is whole, so other programs can read single records."""
    writer, ends = PositionWriter("s", KEY), {f"top.s.d.t{number}": {0: 5} for number in range(100)}
    for _ in range(3):
        assert writer.record(START, ends, set(), 0)[2]
        writer.committed(START, 0)


@pytest.mark.parametrize("content", [{"format": 2}, {"format": 2, "base": 0, "number": 1, "end_offsets": 7}])
def test_a_foreign_record_is_malformed(content: Any) -> None:
    """A record that is no position raises an error that readers of internal topics expect."""
    chains = PositionChains(lambda *_: iter([(0, KEY, orjson.dumps({"format": 1, "end_offsets": {}}))]))
    with pytest.raises((LookupError, TypeError, ValueError)):
        chains.whole(0, 5, KEY, content)
