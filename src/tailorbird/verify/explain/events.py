"""Find and decode the Kafka records that a row's trace names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from cdc.model.schema import TableId, TableSchema
from cdc.stored.traces import Origin
from joins.query.nodes import PlanSource
from joins.query.plan import Plan
from joins.steps.route import Changed, LogReader
from tailorbird.verify.explain.explanation import OTHER, TracedEvent

Versions = Mapping[TableId, Sequence[TableSchema]]


def named(plan: Plan, origin: Origin) -> TracedEvent | None:
    """Return the event that an entry of a trace names, not read yet. None if the node at that place reads no table."""
    nodes = plan.nodes()
    node = nodes[origin.node] if origin.node < len(nodes) else None
    if node is None or not isinstance(node.source, PlanSource):
        return None
    return TracedEvent(
        node=origin.node, alias=node.alias, table=str(node.source.table_id), topic=node.source.topic,
        partition=origin.partition, offset=origin.offset,
    )  # fmt: skip


def read(plan: Plan, event: TracedEvent, key: bytes | None, value: bytes | None, versions: Versions) -> TracedEvent:
    """Return the event with the content of its record, decoded as the join does.

    Its state is `other` if the record contains no row. `versions` are the schemas of its table."""
    source = plan.nodes()[event.node].captured
    # columns that were added later, or dropped, may be missing
    reader = LogReader(plan, {}, {event.topic: {event.partition: event.offset + 1}})
    found = reader.read(event.topic, event.partition, event.offset, key, value)
    if value is None or not isinstance(found, Changed) or found.after is None:
        return replace(event, state="other", why=OTHER)
    reported: dict[str, Any] = orjson.loads(value)
    reported = reported.get("payload", reported)  # an envelope with a schema has a payload
    values = dict(zip(source.columns, found.after, strict=True))
    return replace(
        event,
        op=reported["op"],
        key={name: values[name] for name in source.key},
        source=reported.get("source") or {},
        schema_version=_version(versions.get(source.table_id, ()), reported["after"]),
        # the database in which a merged table's row lives is in no record's image
        values={name: value for name, value in values.items() if name in reported["after"] or name == source.merged},
    )


def _version(versions: Sequence[TableSchema], image: Mapping[str, object]) -> int | None:
    """Return the newest version of a table's schema that has exactly the columns of a row image."""
    fits = [one.version for one in versions if {column.name for column in one.columns} == {*image}]
    return max(fits, default=None)
