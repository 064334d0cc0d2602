"""`doctor` with the least privileges of each server: no false alarm, and each missing one is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailorbird.operate.doctor.doctor import UnreachableServer, judge
from tailorbird.operate.doctor.mysql_doctor import server_inspection
from tests.ingest.binlog.binlog_servers import Server
from tests.support.live_capture import LiveCapture, live

pytestmark = pytest.mark.timeout(180)


def lacking(captured: LiveCapture) -> str:
    """Return doctor's message about the grants; empty if none is missing."""
    source = captured.source
    log_events = server_inspection(source)
    assert not isinstance(log_events, UnreachableServer), log_events
    faults = [one for one in judge(source, log_events) if one.status == "fault"]
    assert {one.check for one in faults} <= {"grants"}, faults
    return faults[0].found if faults else ""


@pytest.mark.parametrize(
    "flavour",
    ["mysql80", *(pytest.param(f, marks=pytest.mark.matrix) for f in ("mysql57", "mysql9", "maria10", "maria11"))],
)
def test_the_least_grants_are_enough_and_each_is_needed(servers: Callable[[str], Server], flavour: str) -> None:
    """The user from the docs captures, and doctor agrees; without one privilege doctor names it."""
    server = servers(flavour)
    monitor = "BINLOG MONITOR" if server.maria else "REPLICATION CLIENT"
    captured = live(server, "least", "t", user="least")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "DROP USER IF EXISTS least@'%'",
        "CREATE USER least@'%' IDENTIFIED BY 'cdc'", "GRANT SELECT ON least.t TO least@'%'",
        f"GRANT REPLICATION SLAVE, {monitor} ON *.* TO least@'%'",
    )  # fmt: skip
    assert lacking(captured) == ""
    captured.start()
    try:
        captured.sql("INSERT INTO t VALUES (2)")
        captured.wait_rows("t", [{"id": 1}, {"id": 2}])
    finally:
        captured.stop()
    for privilege, place, named in (
        ("REPLICATION SLAVE", "*.*", "REPLICATION SLAVE"), (monitor, "*.*", monitor),
        ("SELECT", "least.t", "SELECT on least.t"),
    ):  # fmt: skip
        captured.sql(f"REVOKE {privilege} ON {place} FROM least@'%'")
        assert lacking(captured).startswith(f"lacks {named}")
        captured.sql(f"GRANT {privilege} ON {place} TO least@'%'")
    if server.maria:  # typical grants on MariaDB, with privileges that are not needed
        captured.sql("GRANT SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR, SHOW VIEW, SLAVE MONITOR ON *.* TO "
                     "least@'%'")  # fmt: skip
    assert lacking(captured) == ""
