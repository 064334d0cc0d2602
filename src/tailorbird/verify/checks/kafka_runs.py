"""Write the results of checks to the compacted topic `<topology>.checks`, one record per check, and read them."""

from __future__ import annotations

import json

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer

from cdc.model.errors import Retriable
from cdc.model.naming import checks_topic
from cdc.process.kafka_foreign import tolerated
from cdc.process.kafka_reader import KafkaReader, Partition
from cdc.topology.topology import Topology
from ingest.log.kafka_topics import make_topic
from tailorbird.operate.status.proc_watch import Watch
from tailorbird.verify.checks.runs import CheckRun, run_of

_TIMEOUT = 10.0
# small and rewritten often: compacted every hour, because readers start at the beginning
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


class RunsReader:
    """Reads the last run of each check. Later reads continue after the earlier ones. A context manager."""

    def __init__(self, topology: Topology) -> None:
        self._topic, what = checks_topic(topology.name), "cannot read the results of checks"
        self._reader = KafkaReader(topology.log.brokers, "tailorbird-checks", what, answer=_TIMEOUT)
        self._found: dict[str, CheckRun] = {}
        self._next: dict[Partition, int] = {}

    def __enter__(self) -> RunsReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self) -> dict[str, CheckRun]:
        """Return the last run by check. Empty if none ever ran. Raises Retriable while Kafka is unavailable."""
        starts = {at: self._next.get(at, OFFSET_BEGINNING) for at in self._reader.partitions(self._topic)}
        for message in self._reader.records(starts):
            offset = message.offset() or 0
            self._next[self._topic, message.partition() or 0] = offset + 1
            run = tolerated(self._topic, offset, message.value(), run_of, message.partition())
            if run is not None:
                self._found[run.check] = run
        return dict(self._found)


def runs_watched(topology: Topology, every: float = 5.0) -> Watch[dict[str, CheckRun]]:
    """Return a background poller of the last runs; it reads them again every `every` seconds."""
    return Watch(RunsReader(topology).read, name="checks", every=every)


def keep(topology: Topology, run: CheckRun) -> None:
    """Store a run in Kafka and wait for the acknowledgement. Creates the topic if it is missing.

    Raises Retriable while Kafka is unavailable."""
    failed: list[KafkaError] = []

    def reported(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    topic = checks_topic(topology.name)
    make_topic(topology.log, topic, 1, _CONFIG)
    try:
        producer = Producer({**topology.log.brokers.librdkafka(), "enable.idempotence": True, "log_level": 0})
        value = json.dumps(run.to_json()).encode()
        producer.produce(topic, key=run.check.encode(), value=value, partition=0, on_delivery=reported)
        if producer.flush(_TIMEOUT) or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    except KafkaException as error:
        what = f"Kafka at {topology.log.brokers}: {error.args[0].str()}; cannot store the result of a check"
        raise Retriable(what, "tailorbird stack status") from error
