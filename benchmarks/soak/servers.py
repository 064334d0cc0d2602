"""What makes servers do within an hour what they do within a day: shorter intervals and smaller files.

With their defaults, Kafka begins to compact a topic after a week or a GiB, and HBase keeps an hour of logs: within one
hour, the disk could only grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing in __all__ only
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.disasters.world import TOPOLOGY

# settings of all brokers, which can change while they run
_KAFKA = {
    "log.segment.bytes": str(2 << 20),
    "log.roll.ms": str(3 * 60_000),
    "log.cleaner.backoff.ms": "5000",
    "log.cleaner.min.cleanable.ratio": "0.2",
}
# topics of Kafka itself, whose segments have 100 MiB by default; they are compacted, too
_INTERNAL = ("__transaction_state", "__consumer_offsets")
_INTERNAL_TOPICS = {"segment.bytes": str(2 << 20), "segment.ms": str(3 * 60_000), "min.cleanable.dirty.ratio": "0.2"}
_TOMBSTONES_MS = str(10 * 60_000)
HBASE_MINUTES = 3


def hurry(bootstrap: str) -> None:
    """Have the brokers begin new segments, and compact, within minutes."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    brokers = [str(one.id) for one in admin.describe_cluster().result(30).nodes]
    resources = [ConfigResource(ResourceType.BROKER, one, incremental_configs=_entries(_KAFKA)) for one in brokers]
    _alter(admin, resources)


def forget_deletes_soon(bootstrap: str) -> None:
    """Have Kafka keep the tombstones of the existing compacted topics for minutes. Their own setting is a week. Kafka's
    own topics get smaller segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = admin.list_topics(timeout=20).topics
    names = [name for name in topics if not name.startswith("__")]
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    compacted = [one.name for one, future in found.items() if future.result(30)["cleanup.policy"].value == "compact"]
    _alter(admin, [_topic(name, {"delete.retention.ms": _TOMBSTONES_MS}) for name in compacted])
    _alter(admin, [_topic(name, _INTERNAL_TOPICS) for name in _INTERNAL if name in topics])


def _topic(name: str, values: Mapping[str, str]) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=_entries(values))


def _entries(values: Mapping[str, str]) -> list[ConfigEntry]:
    return [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]


def _alter(admin: AdminClient, resources: list[ConfigResource]) -> None:
    for future in admin.incremental_alter_configs(resources).values():
        future.result(30)


def hurried_topology(folder: Path) -> Path:
    """Write the shop's topology with short retention times into `folder`, and return the file."""
    text = TOPOLOGY.read_text()
    for key, line in (
        ("log:\n", "  min_compaction_lag: 5m\n"),
        ("    table: orders_wide\n", "    stub_retention: 5m\n"),
    ):
        assert text.count(key) == 1, f"{TOPOLOGY.name}: {key!r}"
        text = text.replace(key, key + line)
    file = folder / TOPOLOGY.name
    file.write_text(text)
    return file
