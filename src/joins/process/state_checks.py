"""Check that a join can continue with its stored state."""

from __future__ import annotations

from cdc.model.errors import UsageError
from cdc.topology.topology import Table
from joins.engine.file_checkpoint import QueryRecord
from joins.kernel.program import ENGINE
from joins.query.plan import Plan

REBUILDS = "reads the log again from its beginning and replaces every row"


def check_state(record: QueryRecord, plan: Plan, table: Table, file: str, stored: int | None = None) -> None:
    """Raise UsageError with a remedy if the state belongs to another query, number of partitions, or engine.

    `stored` is the format of the state (`joins.query.plan.STATE_FORMATS`); None: it is not known."""
    rebuild = f"`tailorbird run {file} --rebuild {table.name}`"
    if record.fingerprint != plan.fingerprint():
        other = stored is not None and stored != plan.state_format
        version = f", or another version made it (format {stored}, not {plan.state_format})" if other else ""
        raise UsageError(
            f"the query of {table.name}, or a column it uses, is not what its state was made for{version}",
            f"{rebuild}, or `tailorbird join … --rebuild`, {REBUILDS}",
        )
    if (wanted := table.state_partitions) not in (None, record.partitions):
        raise UsageError(
            f"the state of {table.name} has {record.partitions} partitions, the topology says {wanted}",
            f"set state_partitions back, or {rebuild} {REBUILDS}",
        )
    if record.engine not in ("", ENGINE):
        raise UsageError(
            f"the state of {table.name} was built by the engine {record.engine}, which no longer exists",
            f"{rebuild} {REBUILDS}",
        )
