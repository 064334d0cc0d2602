"""The commit pace of a session's loop: every state with every input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.capture.groups import Limits
from ingest.capture.pace import BUSY, Moment, Pace, Stand

INPUTS = st.lists(
    st.tuples(
        st.sampled_from(get_args(Stand)),
        st.integers(0, 30),  # records since the previous one
        st.integers(0, 300).map(lambda n: n / 100),  # seconds since the previous one
        st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
        st.sampled_from([*[False] * 20, True]),  # for good: all further streams are reopened
    ),
    min_size=4,
    max_size=40,
)  # fmt: skip
LIMITS = st.builds(
    Limits,
    rows=st.integers(1, 50),
    linger=st.sampled_from([0.0, 0.05]),
    largest=st.integers(1, 40),
    heartbeat=st.sampled_from([0.0, 5.0]),
    gather=st.sampled_from([0.5, 1.0, 2.0]),
)


@settings(max_examples=400)
@given(LIMITS, st.booleans(), st.booleans(), INPUTS)
def test_every_state_meets_every_input(limits: Limits, busy: bool, repairs: bool, inputs: list[Any]) -> None:
    """No commit is late or without cause, and a transaction that fits a commit is never split. Only rows of snapshots
    wait for more of them, and only while many tables are to be read."""
    pace, now, last, quiet = Pace(limits, 0.0, busy=busy, repairs=repairs), 0.0, 0.0, BUSY if repairs else 0.0
    asked = came = live = False
    first = 0.0
    for stand, records, seconds, stopped, moved, reads, repairing, many, changes, reopens in inputs:
        now += seconds
        if stand != "inside":
            pace.group.begin()
        if records:
            first = first if pace.group.size else now
            live = live or changes or stand == "inside"
            pace.group.add(records, now, live=changes or stand == "inside")
        if stand == "inside" and not pace.group.huge:
            continue  # inside a transaction the loop asks only if the transaction exceeds one commit
        if reopens:
            pace.reopen()
            asked = True
        if moved and reads:
            pace.progressed()
            came = True
        moment = Moment(stand, now, stopped, moved, reads or repairing, repairing, many)
        size, due = pace.group.size, pace.due(moment)
        waits = many and not stopped and not live and size < limits.rows
        if size and waits and now - first < limits.gather:
            assert not due, "rows of many tables are committed together"
        elif size and (stand == "idle" or stopped):
            assert due, "an idle or stopping session commits all records"
        if size >= limits.rows and stand == "between":
            assert due, "a commit has so many rows"
        if came and not size and (not many or stopped or now - last >= limits.gather):
            assert due, "the progress of snapshots and repairs is committed"
        if moved and now - last >= limits.idle_commit and not size:
            assert due, "the position advances"
        if not size and not came and not moved:
            assert due == bool(limits.heartbeat and stand == "idle" and now - last >= limits.heartbeat)
        if due:
            pace.committed(now, 0.0, repairs=repairing)
            last, came, live = now, False, False
            quiet = now + BUSY if repairing else quiet
            assert pace.group.size == 0
            assert not pace.due(moment), "once is enough"
        again = pace.must_reopen(moment)
        if stand == "inside" or stopped:
            assert not again
        else:
            assert again == (asked or busy != (moment.reads or now < quiet))


def test_a_late_commit_is_followed_by_larger_ones() -> None:
    """This lasts until the capture has caught up: a commit costs more than it improves freshness."""
    limits = Limits(rows=10, catch_up=100, linger=0.05, behind=1.0)
    pace = Pace(limits, 0.0, busy=False, repairs=False)
    moment = Moment("between", 0.01, False, False, False, False)
    pace.group.add(10, 0.0)
    assert pace.due(moment)
    pace.committed(0.01, lag=5.0, repairs=False)
    pace.group.add(10, 0.01)
    assert not pace.due(moment._replace(now=0.5))
    assert pace.due(moment._replace(now=1.02))
    late = replace(limits, rows=200)
    assert Pace(late, 0.0, busy=False, repairs=False).reads_signals("idle", 0.0)
    assert not Pace(late, 0.0, busy=False, repairs=False).reads_signals("between", 0.5)
    assert Pace(late, 0.0, busy=False, repairs=False).reads_signals("between", 1.5)
