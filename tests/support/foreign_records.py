"""How many foreign records were counted."""

from __future__ import annotations

from cdc.process.kafka_foreign import FOREIGN


def counted(topic: str) -> float:
    """Return the number of records of a topic that this process ignored because Tailorbird did not write them."""
    found: float = FOREIGN.labels(topic)._value.get()
    return found
