"""Values that a column's type cannot represent, as `status` reports them: published as NULL or as text, and counted.

No row is missing for them, so they are no fault: the count says where to look. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.topology.topology import Topology
from tailorbird.operate.status.captured_position import CapturedPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodIn:
    """The values of one captured table that were published in another form, by column, since its capture began."""

    table: str
    setting: str
    columns: Mapping[str, int]


def stood_in(topology: Topology, positions: Mapping[str, CapturedPosition]) -> Iterator[StoodIn]:
    """The tables that have such values, in order."""
    for source, position in sorted(positions.items()):
        for table, columns in sorted(position.unrepresentable.items()):
            setting = topology.sources[source].unrepresentable
            yield StoodIn(table=f"{source}.{table}", setting=setting, columns=dict(sorted(columns.items())))


def stood_in_line(one: StoodIn) -> str:
    """A line for a person."""
    form = "NULL, or as text where the type is one of texts" if one.setting == "text" else "NULL"
    columns = ", ".join(f"{name} {count}" for name, count in one.columns.items())
    return f"table {one.table}: values published as {form}, since their types cannot represent them: {columns}"
