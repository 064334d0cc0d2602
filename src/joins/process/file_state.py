"""Find and delete the folder in which a table's join stores its progress and state."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cdc.process.file_topology import home
from cdc.topology.topology import Table, Topology
from joins.engine.file_checkpoint import QueryCheckpoint


def checkpoint_folder(topology: Topology, table: Table) -> Path:
    """Return the path of the folder with the checkpoint of a table's join."""
    return home() / "checkpoints" / topology.name / table.name


def forget_state(topology: Topology, tables: Iterable[Table]) -> None:
    """Delete the state of tables, so that their next joins read the log from its beginning.

    Raises UsageError if a join of such a table is running."""
    for table in tables:
        checkpoint = QueryCheckpoint(checkpoint_folder(topology, table))
        try:
            checkpoint.clear()
        finally:
            checkpoint.close()
