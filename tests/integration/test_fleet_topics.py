"""The fleet's topics in Kafka: gateways that claim at once agree, a session handler without the lease fences no other
session, the audit log keeps every entry.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing in __all__ only
    AdminClient,
    ConfigResource,
    ResourceType,
)

from cdc.model.errors import Retriable
from cdc.model.naming import fleet_topic, schemas_topic
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.fleet.desired import DesiredSource, SourceSpec, source_of
from ingest.fleet.leases import Lease
from ingest.fleet.state import desired_record, lease_record
from ingest.gateway.kafka_audit import KafkaAudit
from ingest.gateway.kafka_source_positions import KafkaPositions
from ingest.gateway.kafka_sources import HeldLease, KafkaSource, LeasedLog
from ingest.gateway.kafka_state import KafkaState
from ingest.log import kafka_log
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics, source_topics
from ingest.records.capture_interfaces import Record
from tailorbird.devtools.stack.proc_stack import Stack
from tests.contracts.test_capture_log import FIRST
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(300)]
SPEC = SourceSpec(agents=("a1", "a2"), connection="db", keys={"database": "d", "tables": {"t": {}}})


@pytest.fixture
def topology() -> Topology:
    text = (
        f"name: t_fleet_{uuid4().hex[:8]}\n"
        "sources:\n"
        "  other: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, tables: [t]}\n"
        f"log: {{bootstrap_servers: '127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}'}}\n"
        "tables: {w: {query: SELECT a.id FROM other.t a, row_key: [id]}}\n"
    )
    return read_topology(text, file="t.yml", environ=os.environ)


@pytest.fixture
def states(topology: Topology) -> Iterator[list[KafkaState]]:
    made = [KafkaState(topology.log, topology.name) for _ in range(2)]
    yield made
    for one in made:
        one.close()


def test_gateways_that_claim_at_once_agree(topology: Topology, states: list[KafkaState]) -> None:
    """Each gateway reads up to its own claim to see which came first; a gateway that starts to read later agrees."""
    holders: list[dict[str, str]] = [{}, {}]
    together = threading.Barrier(2)

    def claim(gateway: int) -> None:
        for number in range(50):
            together.wait(30)
            lease = Lease(source=f"s{number}", epoch=1, agent=f"a{gateway}", gateway=f"g{gateway}", claim=uuid4().hex)
            found = states[gateway].write(lease_record(lease)).leases[f"s{number}"]
            holders[gateway][f"s{number}"] = found.agent

    threads = [threading.Thread(target=claim, args=(gateway,)) for gateway in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert holders[0] == holders[1]
    assert len(holders[0]) == 50
    late = KafkaState(topology.log, topology.name)
    assert late.state.leases == states[0].fresh().leases == states[1].fresh().leases
    late.close()


def test_every_record_is_read_by_all(topology: Topology, states: list[KafkaState]) -> None:
    """All see the records in order, also without waiting for the write; `fresh` has all that was written before the
    call.
    """
    notify = threading.Event()
    states[1].changed = notify.set
    for version in range(1, 40):
        states[0].send(desired_record(DesiredSource(source="s", version=version, spec=SPEC), f"w{version}"))
    states[0].write(desired_record(DesiredSource(source="s", version=40, spec=None), "w40"))
    assert [one.version for one in states[1].fresh().desired["s"]] == list(range(1, 41))
    assert notify.wait(10)


def test_a_session_without_the_lease_fences_no_other_session(topology: Topology, states: list[KafkaState]) -> None:
    """An older epoch is refused before it can fence the holder's session; a newer one is never refused, and the older
    session commits no more. A source that no file declares has a position all the same.
    """
    topic, source = states[0], source_of(SPEC, topology.name, "shop")
    topic.write(
        desired_record(DesiredSource(source="shop", version=1, spec=SPEC), "w"),
        lease_record(Lease(source="shop", epoch=1, agent="a1", gateway="g1", claim="c1")),
    )
    first = LeasedLog(topology, source, HeldLease(topic, "shop", "a1", 1))
    first.recover()
    first.commit(FIRST)
    for agent, epoch in (("a2", 1), ("a1", 0), ("a1", 2), ("a2", 2)):
        with pytest.raises(Retriable, match=f"agent {agent} has no lease of source shop at epoch {epoch}"):
            LeasedLog(topology, source, HeldLease(states[1], "shop", agent, epoch))
    first.commit(FIRST)
    topic.write(lease_record(Lease(source="shop", epoch=2, agent="a2", gateway="g2", claim="c2")))
    second = LeasedLog(topology, source, HeldLease(states[1], "shop", "a2", 2))
    assert second.recover().checkpoint == FIRST
    with pytest.raises(Exception, match="has taken over"):
        first.commit(FIRST)
    second.commit(FIRST)
    first.close()
    second.close()
    assert source_topics(topology, source).positions_partition > 0, "by its name, not by its place in a file"
    assert KafkaPositions(topology).positions("shop", SPEC) == []


def test_a_lease_that_moves_while_a_session_recovers_is_noticed(topology: Topology, states: list[KafkaState]) -> None:
    """The session reads the lease again after it has fenced its predecessor, and does not start with an older epoch."""
    topic, source = states[0], source_of(SPEC, topology.name, "shop")
    topic.write(lease_record(Lease(source="shop", epoch=1, agent="a1", gateway="g1", claim="c1")))

    class Moving(HeldLease):
        asked = 0

        def check(self) -> None:
            super().check()
            Moving.asked += 1
            if Moving.asked == 2:  # before the fencing: the answer was right, and is wrong a moment later
                topic.write(lease_record(Lease(source="shop", epoch=2, agent="a2", gateway="g2", claim="c2")))

    log = LeasedLog(topology, source, Moving(topic, "shop", "a1", 1))
    with pytest.raises(Retriable, match="agent a2 has it at epoch 2"):
        log.recover()
    assert Moving.asked == 2
    log.close()


def test_the_audit_log_keeps_all_entries(topology: Topology) -> None:
    """Entries are in order, each with its time; only the last ones of many are returned."""
    audit = KafkaAudit(topology.log, topology.name)
    assert audit.newest(10) == []
    for number in range(30):
        audit.line({"what": f"line {number}"})
    audit.sure({"what": "the last"})
    assert [one["what"] for one in audit.newest(3)] == ["line 28", "line 29", "the last"]
    assert all(one["at_ms"] > 0 for one in audit.newest(100))
    audit.close()


def test_the_topics_have_the_required_settings(topology: Topology, states: list[KafkaState]) -> None:
    """The state topic is compacted and has one partition, whose order decides; the audit topic is not compacted."""
    KafkaAudit(topology.log, topology.name).close()
    admin = AdminClient({"bootstrap.servers": topology.log.bootstrap_servers})
    policies = {}
    for name in (fleet_topic(topology.name), fleet_topic(topology.name).replace(".fleet", ".audit")):
        (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        policies[name.rpartition(".")[2]] = asked.result(30)["cleanup.policy"].value
        assert len(admin.list_topics(name, timeout=30).topics[name].partitions) == 1
    assert policies == {"fleet": "compact", "audit": "delete"}


def test_a_gateways_transactions_time_out_after_a_minute(
    topology: Topology, states: list[KafkaState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway and its agent may die together, and no process aborts their transactions; a capture next to its
    database has a longer timeout.
    """
    limits = list[int]()

    def made(settings: dict[str, Any]) -> Any:
        limits.append(settings["transaction.timeout.ms"])
        return Producer(settings)

    monkeypatch.setattr(kafka_log, "Producer", made)
    states[0].write(lease_record(Lease(source="shop", epoch=1, agent="a1", gateway="g1", claim="c")))
    own, other = source_of(SPEC, topology.name, "shop"), topology.sources["other"]
    for log in (
        LeasedLog(topology, own, HeldLease(states[0], "shop", "a1", 1)),
        KafkaSource(topology, other).log(),
        KafkaLog(topology, other, make_topics(topology, other)),
    ):
        log.close()
    assert limits == [60_000, 60_000, 900_000]


@pytest.mark.matrix
def test_a_transaction_that_no_process_ends_is_given_up(topology: Topology) -> None:
    """Other sources then recover. A capture that was suspended that long reports the timeout, not that another capture
    runs.
    """
    own, other = source_of(SPEC, topology.name, "shop"), topology.sources["other"]
    left = KafkaLog(topology, own, make_topics(topology, own), 1000)
    left.recover()
    left.append(Record(schemas_topic(topology.name), b"k", b"{}"))
    wait_for(lambda: left.undelivered(0.1) == 0, "Kafka accepts no records", seconds=60)
    further = KafkaLog(topology, other, make_topics(topology, other))
    assert further.recover().checkpoint is None
    further.close()
    with pytest.raises(Retriable, match="aborted a transaction that was open for more than 1 s"):
        left.commit(FIRST)
    left.close()
    again = KafkaLog(topology, own, make_topics(topology, own), 1000)
    assert again.recover().checkpoint is None
    again.commit(FIRST)
    again.close()


@pytest.mark.matrix
def test_a_killed_broker_leads_again(topology: Topology, states: list[KafkaState], stack: Stack) -> None:
    """The broker has another epoch, which a client does not learn by itself; a gateway reads and writes as before."""
    states[0].write(lease_record(Lease(source="s", epoch=1, agent="a1", gateway="g1", claim="c")))
    assert states[1].fresh().leases["s"].agent == "a1"
    stack.kill("kafka")
    stack.start("kafka")

    def there() -> bool:
        with suppress(Retriable):
            return states[1].fresh().leases["s"].agent == "a2"
        return False

    def written() -> bool:
        with suppress(Retriable):
            states[0].write(lease_record(Lease(source="s", epoch=2, agent="a2", gateway="g2", claim=uuid4().hex)))
            return True
        return False

    wait_for(written, "nothing is written", seconds=90)
    wait_for(there, "nothing is read", seconds=60)
