"""The numbers of truncate markers: compaction keeps a table's newest marker only, so they never decrease."""

from __future__ import annotations

import orjson

from cdc.model.event import Position
from cdc.model.naming import TRUNCATE_KEY
from cdc.model.schema import Column, TableId, TableSchema
from ingest.records.records import Recorder
from ingest.records.snapshots import REPAIRS_ONLY
from ingest.records.truncation_points import TruncationPoints

TABLE = TableId(source="s", database="d", table="t")
SCHEMA = TableSchema(
    table_id=TABLE,
    columns=(Column(name="id", column_type="int", nullable=False, charset=None),),
    primary_key=("id",),
    version=1,
)
AT = Position(file="f", pos=4, gtid_set="", sequence=30)


def number_of(recorder: Recorder, number: int) -> int:
    """Return the number that a marker at a snapshot's end gets."""
    record = recorder.writer(SCHEMA).marker(AT, number, 0)
    assert record.key == TRUNCATE_KEY
    found: int = orjson.loads(record.value or b"")["source"]["sequence"]
    return found


def test_a_marker_ends_all_rows_that_an_earlier_one_ended() -> None:
    """A TRUNCATE comes between the begin of a snapshot (9) and its end; another snapshot has a condition."""
    recorder = Recorder("top")
    recorder.writer(SCHEMA).truncated(b"{}", 18)
    assert number_of(recorder, 9) == 18
    assert number_of(recorder, REPAIRS_ONLY) == 18
    assert number_of(recorder, 21) == 21
    assert number_of(recorder, REPAIRS_ONLY) == 21


def test_a_first_marker_keeps_its_number() -> None:
    """A snapshot with a condition ends no rows of a table that had no marker."""
    assert number_of(Recorder("top"), REPAIRS_ONLY) == REPAIRS_ONLY
    assert number_of(Recorder("top"), 7) == 7


def test_a_restart_knows_the_numbers_and_a_rewind_limits_them() -> None:
    """Rows after the position of a rewind come again, and only the markers after it end them."""
    before = TruncationPoints()
    assert before.state({"signals": 3}) == {"signals": 3}
    before.raised(TABLE.name, 18)
    state = before.state({"signals": 3})
    resumed, rewound = TruncationPoints(), TruncationPoints()
    resumed.load(state, 30)
    rewound.load(state, 12)
    assert (resumed.raised(TABLE.name, 9), rewound.raised(TABLE.name, 9)) == (18, 12)
    assert before.state(resumed.state({})).keys() == {"truncated"}
