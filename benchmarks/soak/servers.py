"""What makes servers do within an hour what they do within a day: shorter intervals and smaller files.

With their defaults, Kafka begins to compact a topic after a week or a GiB, and HBase keeps an hour of logs: within one
hour, the disk could only grow.
"""

from __future__ import annotations

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
_TOMBSTONES_MS = str(10 * 60_000)
HBASE_MINUTES = 3


def hurry(bootstrap: str) -> None:
    """Have the brokers begin new segments, and compact, within minutes."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in _KAFKA.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    brokers = [str(one.id) for one in admin.describe_cluster().result(30).nodes]
    resources = [ConfigResource(ResourceType.BROKER, one, incremental_configs=entries) for one in brokers]
    _alter(admin, resources)


def forget_deletes_soon(bootstrap: str) -> None:
    """Have Kafka keep the tombstones of the existing compacted topics for minutes. Their own setting is a week."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=20).topics if not name.startswith("__")]
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    compacted = [one.name for one, future in found.items() if future.result(30)["cleanup.policy"].value == "compact"]
    kept = ConfigEntry("delete.retention.ms", _TOMBSTONES_MS, incremental_operation=AlterConfigOpType.SET)
    _alter(admin, [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[kept]) for name in compacted])


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
