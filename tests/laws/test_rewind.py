"""A capture that is reset to an older committed position changes nothing for readers that order by
`source.sequence`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.event import Position
from cdc.model.naming import history_topic, schemas_topic
from ingest.capture.groups import Limits
from ingest.capture.marks import MOST, REPLAYED, Marks, marks_of, rewound
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.exact_phases import ExactPhases
from ingest.records.records import Recorder
from tests.laws.test_capture import TOPIC, History, Server, histories, numbers


@dataclass
class Paused(Server):
    """A server where no more than `limit` transactions happen for now."""

    limit: int = 0

    def step(self) -> None:
        if self.random.random() < 0.5:
            self.committed = max(self.committed, min(self.committed + 1, self.limit))


def fenced(records: list[Record]) -> dict[bytes, int]:
    """Return the state of a reader that keeps, for each key, the version with the greatest sequence number."""
    state: dict[bytes, tuple[int, int | None]] = {}
    for record in records:
        if record.topic == TOPIC and record.value is not None:
            value = orjson.loads(record.value)
            number, after = value["source"]["sequence"], value["after"]
            if number >= state.get(record.key, (0, None))[0]:
                state[record.key] = (number, after and after["v"])
    return {key: held for key, (_, held) in state.items() if held is not None}


def go_on(server: Paused, broker: Broker, until: int) -> None:
    """Run one session that captures the first `until` transactions; every commit leaves a mark."""
    server.limit = until
    ticks = iter(range(10**9))

    def finished() -> bool:
        newest = broker.checkpoints[-1] if broker.checkpoints else None
        return bool(newest and newest.snapshot == "done" and numbers(newest) >= until)

    Session(
        source=server,
        log=MemoryLog(broker, schemas_topic("top"), history_topic("top")),
        recorder=Recorder("top", phases=ExactPhases(lambda table: "")),
        tables=lambda seen: Tables("s", ["d"], lambda *name: name == ("d", "t"), seen.dialect),
        mode="initial",
        clock=lambda: next(ticks) / 100,
        stopped=finished,
        observer=Observer(),
        limits=Limits(rows=2, linger=0.02, idle_commit=0.02),
        marks=lambda: Marks(changes=1),
    ).run()


def set_back(broker: Broker, random: Random) -> int:
    """Reset capture as `tailorbird rewind` does; return how many transactions it keeps."""
    log = MemoryLog(broker, schemas_topic("top"), history_topic("top"))
    recovered = log.recover()
    assert recovered.checkpoint is not None
    mark = random.choice(marks_of(recovered.history, "s"))
    back = rewound(recovered.history, "s", recovered.checkpoint, mark)
    log.extend(Recorder("top").history(back.history.gone))
    log.restate(Recorder("top").history(back.history.records))
    log.commit(back.checkpoint)
    return numbers(mark)


@given(histories, st.integers(0, 2**32), st.integers(1, 3))
def test_replay_from_any_older_position_changes_nothing(history: History, seed: int, times: int) -> None:
    """After each replay the reader's state is unchanged; later changes win over everything replayed."""
    random, broker = Random(seed), Broker()
    server = Paused(history=history, random=random, crash=0.0)
    half = random.randint(0, len(history))
    go_on(server, broker, half)
    before = fenced(broker.records)
    for _ in range(times):
        set_back(broker, random)
        if random.random() < 0.5:  # reset again before it has caught up
            continue
        go_on(server, broker, half)
        assert fenced(broker.records) == before
    go_on(server, broker, len(history))
    assert fenced(broker.records) == {orjson.dumps({"id": key}): value for key, value in server.states[-1].items()}


def test_a_replay_gives_the_numbers_that_were_given() -> None:
    """A replay is not just newer: it publishes the very same sequence numbers."""
    history: History = [[(1, 5)], [(2, 6), (1, 7)], [(1, None)]]
    random, broker = Random(1), Broker()
    server = Paused(history=history, random=random, crash=0.0)
    go_on(server, broker, 0)
    go_on(server, broker, 3)

    def streamed() -> list[tuple[int, str]]:
        values = [orjson.loads(r.value) for r in broker.records if r.topic == TOPIC and r.value is not None]
        return [(value["source"]["sequence"], value["op"]) for value in values if value["op"] != "r"]

    once = streamed()
    assert [number for number, _ in once] == [1, 2, 3, 4]
    first = min(marks_of(MemoryLog(broker, "", history_topic("top")).history(), "s"), key=numbers)
    log = MemoryLog(broker, schemas_topic("top"), history_topic("top"))
    recovered = log.recover()
    assert recovered.checkpoint is not None
    log.commit(rewound(recovered.history, "s", recovered.checkpoint, first).checkpoint)
    go_on(server, broker, 3)
    assert streamed() == [*once, *once[numbers(first) :]]
    assert broker.checkpoints[-1].position.sequence == 4
    assert REPLAYED not in broker.checkpoints[-1].state


def test_marks_are_thinned_and_forgotten() -> None:
    """However long a capture runs, the number of marks is limited, including the oldest one; purged ones are
    deleted."""
    marks, live = Marks(source="s", changes=10), dict[str, object]()
    for number in range(0, 50_000, 10):
        at = Position(file="f", pos=number, gtid_set="", sequence=number)
        live |= dict(marks.due(Checkpoint(position=at, snapshot="done", ts_ms=0), 0.0))
    held = [key for key, value in live.items() if value is not None]
    assert len(held) == len(marks.known) <= MOST
    assert [marks.known[0].position.sequence, marks.known[-1].position.sequence] == [0, 49_990]
    live |= dict(marks.forget(lambda position: position.pos >= 40_000))
    assert marks.known[0].position.sequence >= 40_000
    assert sum(value is not None for value in live.values()) == len(marks.known)
