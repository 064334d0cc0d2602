"""Which joins a topology's file has left behind: their state was made for another query than it has now."""

from __future__ import annotations

import time

from cdc.topology.topology import Topology
from joins.engine.file_checkpoint import stored_record
from joins.process.file_state import checkpoint_folder
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.kafka_schemas import read_schemas

_PATIENCE = 5.0


def changed_queries(topology: Topology) -> list[str]:
    """The tables whose joins would refuse to go on without a rebuild, of those that have a state on this machine.

    Tables whose schemas Kafka does not tell, within five seconds for all of them, are left out. TopologyError for a
    query that does not compile, Fatal for a state that can not be read.
    """
    records = {table: stored_record(checkpoint_folder(topology, table)) for table in topology.tables.values()}
    reads = {table.name: tables_of(topology, table) for table, record in records.items() if record is not None}
    if not reads:
        return []
    log, wanted, deadline = topology.log.brokers, frozenset().union(*reads.values()), time.monotonic() + _PATIENCE
    schemas = read_schemas(log, topology.name, wanted, lambda _: None, lambda: time.monotonic() > deadline)
    return [
        table.name
        for table, record in records.items()
        if record is not None
        and reads[table.name] <= set(schemas)
        and compile_plan(topology, table, schemas).fingerprint() != record.fingerprint
    ]
