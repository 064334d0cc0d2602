"""Values that a column's type cannot represent. They are published as NULL or as text, and `status` shows their
number.

No row is missing because of them, so they are not faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.topology.topology import Topology
from tailorbird.operate.status.captured_position import CapturedPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrepresentableValues:
    """The number of values of one captured table that their column's type cannot represent, by column, since its
    capture first started.

    `setting` is the topology's setting that chose NULL or text."""

    table: str
    setting: str
    columns: Mapping[str, int]


def stood_in(topology: Topology, positions: Mapping[str, CapturedPosition]) -> Iterator[UnrepresentableValues]:
    """Yield the captured tables that have such values, in order."""
    for source, position in sorted(positions.items()):
        for table, columns in sorted(position.unrepresentable.items()):
            setting = topology.sources[source].unrepresentable
            yield UnrepresentableValues(
                table=f"{source}.{table}", setting=setting, columns=dict(sorted(columns.items()))
            )


def stood_in_line(one: UnrepresentableValues) -> str:
    """Format the values of one table as a line of text."""
    form = "NULL, or as text in columns of a text type" if one.setting == "text" else "NULL"
    columns = ", ".join(f"{name} {count}" for name, count in one.columns.items())
    return f"table {one.table}: values published as {form}, since their types cannot represent them: {columns}"
