"""A gateway cannot make an agent do more than the limits of its policy allow, and the errors name the limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import Fatal, Retriable, TopologyError
from cdc.model.schema import Column
from ingest.agent.allowance import Allowance
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.grpc_tasks import Task
from ingest.agent.policy import AgentLimits
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import PolicySignals
from ingest.capture.signals import Signal
from ingest.fleet.fleet_pb2 import APPLIED, Control_PgSQLWal, LogReply, Part, Report, StreamRequest
from ingest.gateway_client import grpc_channel, grpc_stream
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_channel import SessionChannel
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream, ReceiveLimits
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending, wait_until
from tests.ingest.agent.test_policy import POLICY, content, run

pytestmark = pytest.mark.timeout(60)
SPEC: dict[str, Any] = {"agents": ["a1"], "connection": "shop-db", "database": "shop", "tables": {"orders": {}}}


def waits(task: Task) -> None:
    task.reported.now(APPLIED)
    task.stopped.wait()


@contextmanager
def agent_of(gateway: HostileGateway, folder: Path, limits: str) -> Iterator[FleetAgent]:
    """Run an agent whose captures only wait."""
    policy = read_policy(f"limits: {limits}\n{POLICY}", file="policy.yml", environ={}, content=content)
    with attending(FleetAgent("a1", policy, waits, lambda *_: iter(())), gateway, folder) as agent:
        yield agent


def reason(lies: Lies) -> str:
    return lies.reports[-1].reason


def test_an_agent_has_at_most_so_many_sources(gateway: HostileGateway, folder: Path) -> None:
    """Further ones are refused, with the limit's remedy, until one is withdrawn."""
    with agent_of(gateway, folder, "{sources: 3}") as agent:
        tried = [gateway.assign(f"s{number}", SPEC) for number in range(300)]
        assert wait_until(lambda: all(lies.reports for lies in tried), 30)
        assert [lies.failed for lies in tried] == [False] * 3 + [True] * 297
        assert "already has 3 sources" in reason(tried[-1])
        assert len(agent.reports) == 3
        gateway.withdraw("s0")
        again = gateway.assign("s299", SPEC, version=2)
        assert wait_until(lambda: any(report.progress == APPLIED for report in list(again.reports)), 30)


def test_assignments_are_limited_in_time(gateway: HostileGateway, folder: Path) -> None:
    """A flood of new versions of one source starts no flood of sessions."""
    with agent_of(gateway, folder, "{assignments_per_minute: 5}"):
        tried = [gateway.assign("s", SPEC, gateway.sources.get("s"), version=number + 1) for number in range(100)]
        assert wait_until(lambda: tried[-1].failed, 30)
        assert "more than 5 assignments per minute" in reason(tried[-1])
        assert sum(thread.name == "capture s" for thread in threading.enumerate()) <= 5


def test_an_answer_has_a_limit() -> None:
    """An endless answer ends the session with an error that names the limit; nothing of it is kept."""
    channel = SessionChannel(1, lambda call: None, most=1000)
    call = channel.begin()
    for _ in range(100):
        channel.hear(LogReply(channel=1, call=call, part=Part(content=b"x" * 100)))
    with pytest.raises(Fatal, match=r"more than 1000 bytes.*answer_bytes"):
        channel.answered(call)
    with pytest.raises(Fatal, match="1000"):
        channel.begin()


def test_without_a_policy_the_remedy_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """`capture --gateway` has no policy, so no key of one can raise the limit."""
    monkeypatch.setattr(grpc_channel, "MOST_BYTES", 1000)
    channel = SessionChannel(1, lambda call: None)
    call = channel.begin()
    channel.hear(LogReply(channel=1, call=call, part=Part(content=b"x" * 2000)))
    with pytest.raises(Fatal, match=r"more than 1000 bytes.*tailorbird agent"):
        channel.answered(call)


def test_an_endless_answer_of_a_gateway_is_refused(gateway: HostileGateway, folder: Path) -> None:
    """Over a real stream: the agent reads at its own pace, and stops at the limit."""
    limits = ReceiveLimits(answer_bytes=2_000_000, rate=2_000_000)
    stream = GrpcStream(gateway.address, Credentials.of(folder / "agent"), limits=limits)
    log, began = GatewayLog(stream, "s"), time.monotonic()
    piece = Part(content=b"[" * 500_000)
    for _ in range(60):  # 30 MB, before and after the question
        gateway.send(StreamRequest(log_reply=LogReply(channel=1, call=1, part=piece)))
    gateway.sources["s"] = Lies(recovered={"checkpoint": "[" * 5_000_000})
    try:
        with pytest.raises(Fatal, match="answer_bytes"):
            log.recover()
    finally:
        log.close()
        stream.close()
    assert time.monotonic() - began > 1, "it was not slowed down"


class Sent:
    """Signals that a gateway sent."""

    def __init__(self, *signals: Signal) -> None:
        self.signals = list(signals)

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        return self.signals, 1

    def close(self) -> None:
        """Nothing to close."""


def allowed(signals: Sent, tables: dict[str, Any], per_minute: int = 60) -> tuple[list[Signal], list[str]]:
    """Return the signals that the policy allows for a source with these tables, and the reported reasons."""
    reasons = list[str]()

    class Reported:
        def now(self, progress: int, reason: str = "") -> None:
            reasons.append(reason)

    policy = read_policy(POLICY, file="policy.yml", environ={}, content=content)
    task = Task(
        topology="t", policy=policy, local=policy.connections["shop-db"], source=run({"tables": tables}).source,
        restrictions="", channels=lambda: pytest.fail("no channel is opened"), stopped=threading.Event(),
        reported=Reported(),  # type: ignore[arg-type]
    )  # fmt: skip
    return PolicySignals(signals, task, Allowance(per_minute)).read(None)[0], reasons


def test_signals_are_limited() -> None:
    """Signals beyond the limit are dropped, and the reason is reported."""
    many = Sent(*[Signal(type="execute-snapshot", tables=("shop.orders",))] * 100)
    found, reasons = allowed(many, {"orders": {}}, per_minute=7)
    assert len(found) == 7
    assert "more than 7 signals per minute" in reasons[-1]


@pytest.mark.parametrize("name", ["shop.users", "SHOP.USERS", "shop.Users"])
def test_a_table_in_another_case_is_the_same_table(name: str) -> None:
    """With lower_case_table_names, a server folds names. A schema for a table that hides columns is refused anyway."""
    columns = (Column(name="id", column_type="int"), Column(name="mail", column_type="int"))
    found, reasons = allowed(Sent(Signal(type="schema-set", tables=(name,), columns=columns)), {"users": {}})
    assert not found
    assert "hides columns" in reasons[-1]


def test_an_allowance_refills() -> None:
    """An allowance permits as many uses at once as per minute; then they come back evenly."""
    allowance = Allowance(60)
    assert sum(allowance.take(1000.0) for _ in range(100)) == 60
    assert sum(allowance.take(1010.0) for _ in range(100)) == 10


def test_threads_and_replication_ids_are_narrowed() -> None:
    """They decide nothing about data, so the configuration runs with other values, and the agent reports them."""
    effective = run({"server_id": 77, "snapshot_max_threads": 64, "tables": {"orders": {}}})
    assert effective.source.snapshot_max_threads == AgentLimits().snapshot_threads
    first, last = AgentLimits().server_ids
    assert first <= effective.source.server_id <= last
    assert any("server_id 77 is not allowed" in one for one in effective.restrictions)
    own = run({"server_id": 5005, "tables": {"orders": {}}}, f"limits: {{server_ids: 5000-5010}}\n{POLICY}")
    assert own.source.server_id == 5005
    assert not own.restrictions


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("{server_ids: 9-5}", "5000-5099"),
        ("{server_ids: 0}", "4294967295"),
        ("{sources: 0}", "sources"),
        ("{source: 5}", "source"),
        ("{answer_bytes: many}", "answer_bytes"),
    ],
)
def test_mistakes_in_limits_name_the_key(limits: str, expected: str) -> None:
    """A policy with a wrong limit is refused as a whole."""
    with pytest.raises(TopologyError, match=expected):
        read_policy(f"limits: {limits}\n{POLICY}", file="policy.yml", environ={}, content=content)


@pytest.mark.parametrize("unknown", [False, True])
def test_a_gateway_that_reads_nothing_loses_the_stream(
    gateway: HostileGateway, folder: Path, monkeypatch: pytest.MonkeyPatch, unknown: bool
) -> None:
    """Otherwise it could delay a new policy. Neither a report nor the answer to an unknown message waits for long."""
    monkeypatch.setattr(grpc_stream, "_PATIENCE", 1000.0 if unknown else 0.2)
    stream = GrpcStream(gateway.address, Credentials.of(folder / "agent"))
    report = StreamRequest(report=Report(source="s", position=bytes(1 << 19)))

    def send() -> None:
        while stream.open:
            with suppress(Retriable):
                stream.report(report)

    sending = threading.Thread(target=send, daemon=True)
    with gateway.lock:  # it reads at most one message
        sending.start()
        if unknown:
            wait_until(lambda: not stream.open, 1)
            for _ in range(100):
                gateway.send(StreamRequest(type=Control_PgSQLWal))
        assert wait_until(lambda: not stream.open, 20)
        sending.join(10)
    with pytest.raises(Retriable, match="reads nothing"):
        stream.report(report)
    stream.close()
    assert not sending.is_alive()
