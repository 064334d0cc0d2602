"""Errors of kafka-python's administration client become Retriable, and its connections are closed."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.admin import client
from kafka.errors import KafkaTimeoutError

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.process.kafka_admin import add_partitions

CONTROLLER = RuntimeError("Failed to find active controller id!")


@pytest.mark.parametrize("error", [CONTROLLER, KafkaTimeoutError("late"), ConnectionResetError("reset")])
@pytest.mark.parametrize("when", ["open", "call", "close", "never"])
def test_every_error_is_retriable_and_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch, error: Exception, when: str
) -> None:
    """While Kafka elects a controller, kafka-python raises a plain RuntimeError."""
    opened = list[object]()

    class Net:
        def __init__(self, **settings: Any) -> None:
            opened.append(self)

        def close(self) -> None:
            if self in opened:
                opened.remove(self)

    def step(name: str) -> None:
        if name == when:
            raise error

    class Admin:
        def __init__(self, *, kafka_client: Any, **settings: Any) -> None:
            self.net = kafka_client(**settings)
            step("open")

        def create_partitions(self, wanted: dict[str, int]) -> None:
            step("call")

        def close(self) -> None:
            step("close")
            self.net.close()

    monkeypatch.setattr("kafka.KafkaAdminClient", Admin)
    monkeypatch.setattr(client, "KafkaNetClient", Net)
    if when == "never":
        add_partitions(Brokers("k:9092"), "t", 3)
    else:
        with pytest.raises(Retriable, match=r"Kafka at k:9092: .*(controller|late|reset)"):
            add_partitions(Brokers("k:9092"), "t", 3)
    assert opened == []
