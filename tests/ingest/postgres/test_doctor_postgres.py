"""`tailorbird doctor` on a real PostgreSQL: its statements are sufficient, and it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from tailorbird.cli.cli_doctor import _source
from tailorbird.operate.doctor.doctor import Checkup
from tailorbird.operate.doctor.postgres import HELD, OPEN, PgServerInspection, judge_postgres
from tests.support.pg_captured import Capture, PgCaptured

GOOD = PgServerInspection(
    version=180_001, settings={"wal_level": "logical", "max_slot_wal_keep_size": "-1"}, standby=False, replication=True,
    slot="reserved", kept=0, free_slots=3, may_publish=True, publish=(),
)  # fmt: skip


def findings(captured: PgCaptured, **changed: Any) -> dict[str, Checkup]:
    source = replace(captured.topology.sources["shop"], **changed)
    schemas: dict[TableId, TableSchema] = {}
    found = {one.check: one for one in _source(captured.name, source, schemas)}
    assert "fault" not in {one.status for one in found.values()} or all(
        one.remedy for one in found.values() if one.status == "fault"
    )
    return found


@pytest.mark.integration
def test_the_printed_statements_are_enough(capture: Capture) -> None:
    """A user without rights gets statements; after they are run unchanged, there are no faults, and a capture
    starts."""
    captured = capture("[t, u]")
    user = f"u_{captured.name}"
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT, v TEXT)",
        f"CREATE ROLE {user} LOGIN PASSWORD 'p'", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
    )  # fmt: skip
    try:
        said = findings(captured, username=user, password="wrong")
        assert said["reachable"].status == "fault"
        assert "password authentication failed" in said["reachable"].found
        said = findings(captured, username=user, password="p")
        assert said["grants"].found.startswith("lacks REPLICATION, SELECT on public.t")
        captured.sql(*said["grants"].remedy.split("; "))
        said = findings(captured, username=user, password="p")
        assert said["grants"].status == "ok"
        assert "no replica identity" in said["public.u"].found
        captured.sql("ALTER TABLE u ADD PRIMARY KEY (id)")
        assert said["publication"].status == "fault"
        captured.sql(*said["publication"].remedy.split("; "))
        said = findings(captured, username=user, password="p")
        assert {one.status for one in said.values()} == {"ok"}
        assert said["slot"].found == "the first start creates it"
        source = replace(captured.topology.sources["shop"], username=user, password="p")
        captured.topology = replace(captured.topology, sources={"shop": source})
        captured.start()
        captured.caught_up()
        said = findings(captured)
        assert "of the log" in said["slot"].found
        assert said["vacuum"].found == "the capture does not delay it"
        captured.stop()
    finally:
        captured.sql(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


@pytest.mark.integration
def test_large_values_are_reported_with_the_remedy(capture: Capture) -> None:
    """With the default identity an UPDATE does not log them."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, big TEXT)")
    assert findings(captured)["public.t"].status == "ok"
    captured.sql("INSERT INTO t SELECT 1, 1, string_agg(md5(g::text), '') FROM generate_series(1, 500) g")
    found = findings(captured)["public.t"]
    assert found.status == "warning"
    assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in found.remedy


@pytest.mark.parametrize(
    ("changed", "check", "status", "said"),
    [
        ({}, "slot", "ok", "keeps 0.0 MiB"),
        ({"version": 140_009}, "version", "fault", "15 is the oldest"),
        ({"standby": True}, "role", "fault", "a standby"),
        ({"settings": {"wal_level": "replica"}}, "wal_level", "fault", "replica"),
        ({"replication": False}, "grants", "fault", "lacks REPLICATION"),
        ({"slot": "", "free_slots": 0}, "slot", "fault", "no slot is free"),
        ({"slot": "lost"}, "slot", "fault", "its log is lost"),
        ({"slot": "unreserved"}, "slot", "warning", "its log is unreserved"),
        ({"kept": (4 << 30) + 1}, "slot", "warning", "keeps 4.0 GiB"),
        ({"settings": {"max_slot_wal_keep_size": "900"}}, "max_slot_wal_keep_size", "ok", "must start again"),
    ],
)
def test_each_fault_is_named(changed: dict[str, Any], check: str, status: str, said: str) -> None:
    """Faults that keep a capture from its log, or fill the server's disk, are reported with their remedy."""
    from tests.tailorbird.test_doctor import SOURCE

    found = {one.check: one for one in judge_postgres(SOURCE, replace(GOOD, **changed), ["GRANT …"])}
    assert found[check].status == status
    assert said in found[check].found
    assert status == "ok" or found[check].remedy


def test_a_slot_that_holds_back_the_server_is_a_warning() -> None:
    """A slot that retains half of its limit, old catalogue rows, and a long transaction of a snapshot."""
    source = Source(
        name="s", type="postgresql", hostname="h", port=1, username="u", password="p", database="public", tables=(),
        server_id=0, snapshot_mode="initial",
    )  # fmt: skip

    def warnings(**changed: Any) -> list[tuple[str, bool]]:
        reported = judge_postgres(source, replace(GOOD, **changed), [])
        return [(one.check, bool(one.remedy)) for one in reported if one.status == "warning"]

    limited = {"wal_level": "logical", "max_slot_wal_keep_size": "1000"}
    assert warnings() == warnings(settings=limited, kept=400 << 20) == warnings(held=HELD, open_s=OPEN) == []
    assert warnings(settings=limited, kept=600 << 20) == [("max_slot_wal_keep_size", True)]
    assert warnings(held=HELD + 1) == warnings(open_s=OPEN + 1) == [("vacuum", True)]
