"""The state of the fleet's topic: records are read back, versions are immutable, invalid records are skipped."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.fleet.certificate import RevokedCertificate
from ingest.fleet.desired import DesiredSource, SourceSpec
from ingest.fleet.leases import Lease, Presence
from ingest.fleet.reported import SourceReport
from ingest.fleet.state import (
    FleetState,
    StateRecord,
    beat_record,
    desired_record,
    drained_record,
    folded,
    lease_record,
    map_record,
    presence_record,
    reported_record,
    revoked_record,
    token_record,
)
from ingest.fleet.tokens import Token
from tests.ingest.fleet.test_leases import compacted

SPEC = SourceSpec(agents=("a1",), connection="db", keys={"database": "shop", "tables": {"orders": {}}})
REPORTED = SourceReport(agent="a1", source="s", epoch=2, version=3, status="failed", reason="no such table", hash="x")
SEEN = DatabaseSeen(
    agent="a1", connection="db", database="shop", tables=(TableSeen(name="t", rows=None, columns=(("id", "int"),)),)
)
REVOKED = RevokedCertificate(serial="ab12", by="ops", at_ms=9)
TOKEN = Token(id="00ff", name="ops", role="admin", sha256="ab", issued_ms=1, expires_ms=2)


def test_what_is_written_is_read() -> None:
    """Records of every kind are read back."""
    desired = DesiredSource(source="s", version=1, spec=SPEC, by="ops", at_ms=5, of=None)
    lease = Lease(source="s", epoch=1, agent="a1", gateway="g1")
    presence = Presence(agent="a1", gateway="g1", connected=True, version="1", labels={"site": "x"}, at_ms=3)
    state = folded(
        FleetState(),
        [
            desired_record(desired, "g1"), lease_record(lease), presence_record(presence), reported_record(REPORTED),
            map_record(SEEN), drained_record("agents", "a2", True), token_record(TOKEN), beat_record("g1", 7),
            revoked_record(REVOKED),
        ],
    )  # fmt: skip
    assert state == FleetState(
        desired={"s": (desired,)}, leases={"s": lease}, presences={"a1": presence},
        reported={("a1", "s"): REPORTED}, maps={("a1", "db", "shop"): SEEN}, drained={("agents", "a2"): True},
        tokens={"00ff": TOKEN}, revoked={"ab12": REVOKED}, beats={"g1": 7},
    )  # fmt: skip
    assert folded(state, [drained_record("agents", "a2", False)]).drained == {}
    assert state.captured("a1", "db") == {"s": SPEC}
    postgres = replace(SEEN, type="postgresql")
    assert folded(state, [map_record(postgres)]).maps == {("a1", "db", "shop"): postgres}
    strange = folded(state, [map_record(replace(SEEN, type="oracle"))])
    assert (strange.maps, strange.strange) == (state.maps, 1)
    assert state.captured("a2", "db") == {}


def test_invalid_records_are_counted_and_skipped() -> None:
    """Invalid records cannot stop a gateway. Kinds of later versions are not counted."""
    noise: list[StateRecord] = [
        (b"noise", b"{}"), (b"{}", b"{}"), (b'["lease","s"]', b"{}"), (b'["reported","a","s"]', b'{"status":"fine"}'),
        (b'["token","x"]', b'{"role":"god"}'), (b'["desired","s","one","g"]', b'{"spec":null}'), (b"[]", b"1"),
        (b'["desired","s",1,"g"]', b'{"spec":[]}'), (b'["desired","s",1,"g"]', b'{"spec":{"agents":1}}'),
        (b'["map","a","c","d"]', b'{"database":"d","tables":[{"name":1,"rows":2,"columns":[]}]}'),
    ]  # fmt: skip
    state = folded(FleetState(), [*noise, (b'["tomorrow","x"]', b"{}"), beat_record("g1", 1)])
    assert (state.strange, state.beats) == (len(noise), {"g1": 1})


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_versions_are_never_changed_and_roll_back_is_a_version(seed: int, steps: int) -> None:
    """If two versions are written with one number, the first one wins, before and after compaction.

    A rollback writes the older content with a greater number, and all earlier versions stay unchanged.
    """
    log, chance = list[StateRecord](), random.Random(seed)
    views = [FleetState(), FleetState()]
    for step in range(steps):
        state = views[chance.randrange(2)]
        versions = state.desired.get("s", ())
        of = chance.choice(versions) if versions and chance.random() < 0.4 else None
        spec = of.spec if of else SourceSpec(agents=("a1",), connection=f"c{step}")
        number = versions[-1].version + 1 if versions else 1
        made = DesiredSource(source="s", version=number, spec=spec, of=of.version if of else None)
        log.append(desired_record(made, f"w{step}"))
        if chance.random() < 0.6:
            views[chance.randrange(2)] = folded(FleetState(), log)
    state, before = FleetState(), tuple[DesiredSource, ...]()
    for record in log:
        state = folded(state, [record])
        now = state.desired.get("s", ())
        assert now[: len(before)] == before, "a version was changed"
        before = now
    assert [one.version for one in before] == list(range(1, len(before) + 1))
    by_number = {one.version: one for one in before}
    assert all(one.spec == by_number[one.of].spec for one in before if one.of is not None)
    for keep in (len(log) // 2, len(log)):
        assert folded(FleetState(), compacted(log, keep)) == state


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=30), st.integers(0, 30))
def test_it_does_not_matter_where_reading_paused(which: list[int], at: int) -> None:
    """A gateway folds each poll's records, whether one or thousands."""
    every = [
        lease_record(Lease(source="s", epoch=1, agent="a1", gateway="g1")),
        lease_record(Lease(source="s", epoch=1, agent="a2", gateway="g2")),
        lease_record(Lease(source="s", epoch=2, agent="a2", gateway="g2")),
        desired_record(DesiredSource(source="s", version=1, spec=SPEC), "g1"),
        desired_record(DesiredSource(source="s", version=1, spec=None), "g2"),
        drained_record("agents", "a1", True), drained_record("agents", "a1", False), beat_record("g1", 1),
    ]  # fmt: skip
    log = [every[n] for n in which]
    assert folded(folded(FleetState(), log[:at]), log[at:]) == folded(FleetState(), log)
