"""Compare the settings of change topics with the brokers' defaults.

A topic whose settings are the defaults needs none of its own. With tens of thousands of topics that matters: for each
topic with settings of its own, a broker goes through all its logs when it learns of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

# setting of a topic → the broker's setting that is its default
_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.message.bytes": "message.max.bytes",
}
_TIMEOUT = 30.0  # seconds


def own_settings(admin: AdminClient, wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that a topic needs: none if all of them are the defaults of every broker, else all.

    If a broker refuses to show its settings, a topic needs all. Raises KafkaException if a broker does not answer.
    """
    if not wanted.keys() <= _DEFAULTS.keys():
        return wanted
    brokers = [one.id for one in admin.describe_cluster(request_timeout=_TIMEOUT).result(_TIMEOUT).nodes]
    for number in brokers:  # Kafka answers for one broker per request, which that broker receives
        resource = ConfigResource(ResourceType.BROKER, str(number))
        try:
            found = admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource].result(_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() < 0:  # an error of the connection, not of the broker
                raise
            return wanted
        for name, value in wanted.items():
            entry = found.get(_DEFAULTS[name])
            if entry is None or entry.value != value:
                return wanted
    return {} if brokers else wanted
