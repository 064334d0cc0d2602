"""A record of the log → the event that a trace names."""

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
from tailorbird.verify.explain.explaining import OTHER, Witness

Versions = Mapping[TableId, Sequence[TableSchema]]


def named(plan: Plan, origin: Origin) -> Witness | None:
    """Where the event of an origin stands, not read yet; None where the plan reads no table at its node."""
    nodes = plan.nodes()
    node = nodes[origin.node] if origin.node < len(nodes) else None
    if node is None or not isinstance(node.source, PlanSource):
        return None
    return Witness(
        node=origin.node, alias=node.alias, table=str(node.source.table_id), topic=node.source.topic,
        partition=origin.partition, offset=origin.offset,
    )  # fmt: skip


def read(plan: Plan, event: Witness, key: bytes | None, value: bytes | None, versions: Versions) -> Witness:
    """The event with what its record says, read as the join reads it; `other` where that puts no row."""
    source = plan.nodes()[event.node].captured
    # columns that came later, or went, may be lacking
    reader = LogReader(plan, {}, {event.topic: {event.partition: event.offset + 1}})
    found = reader.read(event.topic, event.partition, event.offset, key, value)
    if value is None or not isinstance(found, Changed) or found.after is None:
        return replace(event, state="other", why=OTHER)
    reported: dict[str, Any] = orjson.loads(value)
    reported = reported.get("payload", reported)  # beside a schema
    values = dict(zip(source.columns, found.after, strict=True))
    return replace(
        event,
        op=reported["op"],
        key={name: values[name] for name in source.key},
        source=reported.get("source") or {},
        schema_version=_version(versions.get(source.table_id, ()), reported["after"]),
        values={name: value for name, value in values.items() if name in reported["after"]},
    )


def _version(versions: Sequence[TableSchema], image: Mapping[str, object]) -> int | None:
    """The newest version of a table's schema that has just the columns of an image."""
    fits = [one.version for one in versions if {column.name for column in one.columns} == {*image}]
    return max(fits, default=None)
