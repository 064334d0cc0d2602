"""Exact phases begin only when nothing is missing, and end with everything that is not an ordinary change.

`tests.support.exact_records` checks in every log in memory that `before` is the row's newest image: in the laws, the
random databases and the lives of servers.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from ingest.events.log_events import LogEvent, RowsQuarantined, StatementLogged, TableDescribed
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.checkpoint_changes import changed_checkpoint, changes_bytes
from ingest.records.exact_phases import ENDED, STATE, ExactPhases, images_of
from ingest.records.images import snapshot_records
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.altered import AlteringTransactions
from ingest.repair.rounds import RepairRunner
from tests.ingest.test_transactions import BEGAN, BROKEN, START, TABLE, rows, tables
from tests.ingest.test_transactions import ENDED as END
from tests.support.exact_records import Topics

OTHER = TableId(source="s", database="d", table="other")
ONE: dict[str, Any] = {"id": 1, "v": "a"}


def named(name: str) -> TableId:
    database, table = name.split(".")
    return TableId(source="s", database=database, table=table)


def phases(number: int = 7) -> ExactPhases:
    """Return phases of which TABLE is in one."""
    found = ExactPhases(lambda table: "images")
    found.completed(TABLE)
    found.begin(TABLE, number)
    return found


def marks(*log_events: LogEvent, known: ExactPhases | None = None) -> list[tuple[int, int]]:
    """Return `exact` and `inexact_after` of all records of TABLE that a transaction with these events causes."""
    transactions = AlteringTransactions(Recorder("top", phases=known or phases()), tables(), START)
    records: list[Record] = []
    for event in (BEGAN, *log_events, END):
        records += transactions.records(event, 1_700_000_000_200)
    sources = [orjson.loads(r.value)["source"] for r in records if r.value is not None and r.topic == "top.s.d.t"]
    return [(source.get("exact", 0), source.get("inexact_after", 0)) for source in sources]


def test_ordinary_changes_belong_to_the_phase() -> None:
    """Inserts, updates, a changed key, deletes; without a phase nothing is marked."""
    changes = (
        rows("insert", ONE), rows("update", (ONE, {"id": 1, "v": "b"})),
        rows("update", ({"id": 1, "v": "b"}, {"id": 2, "v": "b"})), rows("delete", {"id": 2, "v": "b"}),
    )  # fmt: skip
    assert marks(*changes) == [(7, 0)] * 5
    assert marks(*changes, known=ExactPhases()) == [(0, 0)] * 5


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(rows("insert", {"id": 1, "v": "a"}, BROKEN), id="refused row"),
        pytest.param(rows("update", (None, ONE)), id="no before image"),
        pytest.param(StatementLogged("d", "TRUNCATE TABLE t", 1, 0), id="truncate"),
        pytest.param(StatementLogged("d", "ALTER TABLE t ADD COLUMN w INT", 1, 0), id="alter"),
        pytest.param(StatementLogged("d", "ALTER TABLE t ADD INDEX (v(3))", 1, 0), id="alter of no column"),
        pytest.param(StatementLogged("d", "RENAME TABLE t TO u, x TO t", 1, 0), id="rename"),
        pytest.param(StatementLogged("d", "DROP TABLE t", 1, 0), id="drop"),
        pytest.param(RowsQuarantined(TABLE, "no columns", "8.0", b"map", b"event", "f1", 50), id="rows in quarantine"),
        pytest.param(TableDescribed(TABLE, tables().schema(TABLE).columns[:1], ("id",)), id="described"),
    ],
)
def test_everything_else_ends_the_phase(event: LogEvent) -> None:
    """What may change rows without an ordinary record: no later change is marked, and each names the phase."""
    known = phases()
    marks(rows("insert", ONE), event, known=known)
    assert known.mark(TABLE, exact=True) == (0, 7)


def test_rows_that_are_read_end_the_phase() -> None:
    """A snapshot's rows, its beginning, a repair, and rows of quarantine that are published later."""
    for end in (
        read,
        lambda found, recorder: Snapshots(recorder, found, {}).start(TABLE),
        lambda found, recorder: Snapshots(recorder, found, {}).mark_partial(TABLE),
        lambda found, recorder: repairs(found, recorder).reread([TABLE], "statement", 101),
        lambda found, recorder: repairs(found, recorder).request_rows(TABLE, [{"id": 1}]),
        lambda found, recorder: AlteringTransactions(recorder, found, START).replay([], TABLE, 1),
    ):  # fmt: skip
        known = phases()
        end(tables(), Recorder("top", phases=known))
        assert known.mark(TABLE, exact=True) == (0, 7)


def read(found: Any, recorder: Recorder) -> None:
    snapshot_records(recorder, recorder.writer(found.schema(TABLE)), [ONE], START.position, 1)


def repairs(found: Any, recorder: Recorder) -> RepairRunner:
    return RepairRunner(recorder, found, Snapshots(recorder, found, {}), {})


def test_a_phase_begins_when_nothing_of_the_table_is_repaired() -> None:
    """A completed snapshot alone is not enough; and two phases never have one number."""
    recorder = Recorder("top", phases=ExactPhases(lambda table: ""))
    running = repairs(tables(), recorder)
    recorder.phases.completed(TABLE)
    running.request_rows(TABLE, [{"id": 1}])
    recorder.phases.completed(TABLE)
    running.begin_exact_phases(5, ())
    assert recorder.phases.mark(TABLE, exact=True) == (0, 0)
    running.drop(TABLE)
    running.begin_exact_phases(5, {"d.t"})  # in quarantine
    assert recorder.phases.mark(TABLE, exact=True) == (0, 0)
    recorder.phases.completed(TABLE)
    running.begin_exact_phases(5, ())
    assert recorder.phases.mark(TABLE, exact=True) == (5, 0)
    recorder.phases.end(TABLE)
    recorder.phases.completed(TABLE)
    running.begin_exact_phases(5, ())
    assert recorder.phases.mark(TABLE, exact=True) == (0, 5)
    recorder.phases.completed(TABLE)
    running.begin_exact_phases(6, ())
    assert recorder.phases.mark(TABLE, exact=True) == (6, 0)


@pytest.mark.parametrize("known", [ExactPhases(lambda table: ""), phases()])
def test_changes_between_a_snapshot_and_the_phase(known: ExactPhases) -> None:
    """Capture may have to ask for foreign keys after a snapshot. Ordinary changes meanwhile do not prevent the phase; a
    change without a complete image does."""
    known.end(TABLE)
    known.completed(TABLE)
    changes = (rows("insert", ONE), rows("update", (ONE, {"id": 1, "v": "b"})), rows("insert", {"id": 2, "v": "c"}))
    marks(*changes, known=known)
    marks(rows("delete", {"id": 2, "v": "c"}), known=known)
    assert TABLE in known.complete(8)
    marks(rows("update", (None, ONE)), known=known)
    assert TABLE not in known.complete(9)


def test_a_restart_continues_a_phase_unless_images_differ() -> None:
    """Masks, ignored columns and the form of values decide what an image is; a source without phases ends them."""
    state = phases().state({"other": 1})
    assert state["other"] == 1
    for images, expected in ((lambda table: "images", (7, 0)), (lambda table: "masked", (0, 7)), (None, (0, 7))):
        again = ExactPhases(images)
        again.load(state, None, named)
        assert again.mark(TABLE, exact=True) == expected
    shown, masked = TableRule(), TableRule(masks={"v": "sha256(salt)"})
    assert images_of(shown, "null") == images_of(None, "null")
    assert len({images_of(shown, "null"), images_of(masked, "null"), images_of(shown, "text")}) == 3
    assert "salt" not in images_of(masked, "null")


def test_after_a_rewind_all_phases_have_ended_also_those_that_the_checkpoint_does_not_know() -> None:
    """The checkpoint of a mark is older than some phases, whose records remain in the topic."""
    again = ExactPhases(lambda table: "images")
    again.load(phases().state({}), 90, named)
    assert again.mark(TABLE, exact=True) == again.mark(OTHER, exact=True) == (0, 90)
    later = ExactPhases(lambda table: "images")
    later.load(again.state({}), None, named)
    assert later.mark(OTHER, exact=True) == (0, 90)
    later.completed(OTHER)
    later.begin(OTHER, 90)
    assert later.mark(OTHER, exact=True) == (0, 90)
    later.begin(OTHER, 91)
    assert later.mark(OTHER, exact=True) == (91, 0)
    assert later.state({})[ENDED] == 90


def test_a_gateway_receives_what_changed() -> None:
    """An agent's checkpoint is sent as its changes (`ingest.records.checkpoint_changes`)."""
    position = Position(file="f", pos=4, gtid_set="", sequence=9)
    before = Checkpoint(position=position, snapshot="done", ts_ms=1, state=phases().state({}))
    known = phases()
    known.end(TABLE)
    after = Checkpoint(position=position, snapshot="done", ts_ms=1, state=known.state({}))
    read = changed_checkpoint(before, changes_bytes(before, after, "s"))
    assert dict(read.state[STATE]) == {"d.t": [-7, "images"]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"op": "u", "before": {"id": 1, "v": 5}, "after": {"id": 1, "v": 6}, "source": {"exact": 7}}, "after"),
        ({"op": "c", "before": None, "after": {"id": 1, "v": 6}, "source": {"exact": 7}}, "after"),
        ({"op": "u", "before": None, "after": {"id": 1, "v": 6}, "source": {}}, "does not name phase 7"),
        ({"op": "u", "before": None, "after": {"id": 1, "v": 6}, "source": {"inexact_after": 6}}, "does not name"),
    ],
)
def test_the_check_of_all_logs_finds_planted_mistakes(value: dict[str, Any], why: str) -> None:
    """A wrong before image, a second insert, and records after a phase that do not name it."""
    topics = Topics()
    first = {"op": "c", "before": None, "after": {"id": 1, "v": 4}, "source": {"exact": 7, "sequence": 8}}
    topics.see(Record("top.s.d.t", b"1", orjson.dumps(first)))
    with pytest.raises(AssertionError, match=why):
        topics.see(Record("top.s.d.t", b"1", orjson.dumps({**value, "source": {"sequence": 9, **value["source"]}})))
