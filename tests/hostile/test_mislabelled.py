"""An agent serves a gateway's message only under the type of its payload, and captures only by its own plugins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from cdc.model.errors import Retriable
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy import LocalConnection
from ingest.fleet.catalog import DatabaseSeen
from ingest.fleet.fleet_pb2 import (
    APPLIED,
    Control_Kafka,
    Control_Lease,
    Control_MaxScale,
    Control_MSSQLClient,
    Control_MySQLBinlog,
    Control_MySQLClient,
    Control_PgSQLClient,
    Control_PgSQLLogDec,
    Control_PgSQLWal,
    Control_Report,
    Control_Syslog,
    LogReply,
    RequestType,
    StreamRequest,
    Unsupported,
)
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from tests.hostile.hostile_gateway import HostileGateway, attending, wait_until
from tests.hostile.test_agent_limits import SPEC, reason, waits
from tests.ingest.agent.test_policy import POLICY, policy

pytestmark = pytest.mark.timeout(60)
NO_PLUGINS = (Control_MySQLClient, Control_PgSQLClient, Control_PgSQLWal)
OTHERS = (Control_PgSQLLogDec, Control_Syslog, Control_Kafka, Control_MSSQLClient, Control_MaxScale)
MIXED = f"""
{POLICY}
  billing-db:
    type: postgresql
    hostname: 127.0.0.1
    username: cdc
    password: cdc
    dbname: billing
    databases: {{public: all}}
  logs:
    type: syslog
    listen: {{unix: /run/log}}
    databases: {{logs: all}}
"""


@contextmanager
def attended(gateway: HostileGateway, folder: Path) -> Iterator[FleetAgent]:
    with attending(FleetAgent("a1", policy(), waits, lambda *_: iter(())), gateway, folder) as agent:
        yield agent


def test_an_assignment_for_another_plugin_is_refused(gateway: HostileGateway, folder: Path) -> None:
    """The configuration would be valid for MySQL. The stream and the next assignment are served."""
    with attended(gateway, folder) as agent:
        for key in (*NO_PLUGINS, *OTHERS):
            lies = gateway.assign(f"s{key}", SPEC, key=key)
            assert wait_until(lambda: lies.failed, 30)  # noqa: B023
            name = f"plugin {RequestType.Name(key)} ({key})"
            why = f"has no {name}" if key in NO_PLUGINS else f"{name} cannot capture a connection of type mysql"
            assert why in reason(lies)
        right = gateway.assign("right", SPEC, key=Control_MySQLBinlog)
        assert wait_until(lambda: any(report.progress == APPLIED for report in list(right.reports)), 30)
        assert [name for name, report in agent.reports.items() if report.progress == APPLIED] == ["right"]


@pytest.mark.parametrize("key", [Control_MSSQLClient, Control_Report, 0])
def test_an_answer_of_another_type_ends_the_stream(gateway: HostileGateway, folder: Path, key: int) -> None:
    """It does not reach the session. The gateway receives the reason, and adds it to its audit log."""
    stream = GrpcStream(gateway.address, Credentials.of(folder / "agent"))
    log = GatewayLog(stream, "s")
    gateway.send(StreamRequest(log_reply=LogReply(channel=1, credit=1)), cast(RequestType, key))
    try:
        with pytest.raises(Retriable, match=r"contains log_reply, which belongs to Data_Log \(100\)"):
            log.recover()
    finally:
        log.close()
        stream.close()
    assert wait_until(lambda: b"contains log_reply" in bytes(gateway.heard), 30)


def test_an_unknown_message_is_answered(gateway: HostileGateway, folder: Path) -> None:
    """A newer gateway receives the answer with the type, and the stream continues."""
    with attended(gateway, folder):
        gateway.send(StreamRequest(type=Control_PgSQLWal))
        answer = Unsupported(type=Control_PgSQLWal, what="a message of type Control_PgSQLWal (14)")
        assert wait_until(lambda: answer.SerializeToString() in bytes(gateway.heard), 30)
        lies = gateway.assign("s", SPEC)
        assert wait_until(lambda: any(report.progress == APPLIED for report in list(lies.reports)), 30)


def test_an_assignment_of_the_previous_release_is_served(gateway: HostileGateway, folder: Path) -> None:
    """It has the type of a lease."""
    gateway.former = True
    with attended(gateway, folder):
        lies = gateway.assign("s", SPEC, key=Control_Lease)
        assert wait_until(lambda: any(report.progress == APPLIED for report in list(lies.reports)), 30)


def test_data_of_the_previous_release_is_served(gateway: HostileGateway, folder: Path) -> None:
    """It has the type 0."""
    gateway.former = True
    stream = GrpcStream(gateway.address, Credentials.of(folder / "agent"))
    log = GatewayLog(stream, "s")
    assert log.recover().checkpoint is None
    log.close()
    stream.close()


@pytest.mark.parametrize("former", [True, False])
def test_a_former_gateway_gets_only_the_catalogs_that_it_knows(
    gateway: HostileGateway, folder: Path, former: bool
) -> None:
    """It would end the stream of an agent that sends another, and so end the capture of MySQL. Newer ones get all."""
    gateway.former = former

    def seen(local: LocalConnection, name: str) -> Iterator[DatabaseSeen]:
        for database in local.databases:
            yield DatabaseSeen(
                agent=name, connection=local.alias, database=f"of-{database}", tables=(), type=local.type
            )

    with attending(FleetAgent("a1", policy(MIXED), waits, seen), gateway, folder):
        assert wait_until(lambda: b"of-shop" in bytes(gateway.heard), 30)
        lies = gateway.assign("s", SPEC, key=Control_Lease if former else Control_MySQLBinlog)
        assert wait_until(lambda: any(report.progress == APPLIED for report in list(lies.reports)), 30)
        assert wait_until(lambda: former or b"of-logs" in bytes(gateway.heard), 30)
    assert (b"of-public" in bytes(gateway.heard)) is not former
