"""Run the process that keeps joined tables up to date: one Spark application for one or many tables, until SIGTERM."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import structlog

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, UsageError
from cdc.process.file_topology import home, keep_versions, kept_versions, load_topology, read_file
from cdc.topology.topology import Table, Topology
from cdc.topology.versions import in_versions
from joins.inspection.held import Held, described, keys_of
from joins.process.declared import recorded, serving
from joins.process.file_state import checkpoint_folder, forget_state
from joins.process.proc_tables import TableJoins, join_table
from joins.process.spark_application import Application
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.kafka_log import resolve_dead_letters
from joins.stores.kafka_schemas import read_schemas

_INSPECT_TIMEOUT = 15.0

log = structlog.get_logger()


def choose_table(topology: Topology, name: str | None) -> Table:
    """Return the table called `name`, or the topology's only table if `name` is None. Raises UsageError otherwise."""
    known = ", ".join(topology.tables)
    if name is None and len(topology.tables) == 1:
        return next(iter(topology.tables.values()))
    if name is None or name not in topology.tables:
        what = "which table?" if name is None else f"no table {name};"
        raise UsageError(f"{topology.file}: {what} It has {known}", "name one: --table NAME")
    return topology.tables[name]


def run(file: str, names: Sequence[str], *, rebuild: bool = False, ports: Sequence[int] = ()) -> None:
    """Keep the tables `names` (empty: all) up to date until SIGTERM or SIGINT. `ports` has a metrics port for each,
    or none.

    Raises TailorbirdError if the only table cannot start or must not continue. With several tables it raises like
    `TableJoins.run`. After any end, the next start repeats the uncommitted batch and writes the same cells."""
    stop = stop_event()
    for library in ("py4j", "thriftpy2", "happybase", "sqlglot"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # we report their failures in our own messages
    topology = _as_declared(file, names) if rebuild else load_topology(file, "join")
    tables = [choose_table(topology, name) for name in dict.fromkeys(names)] or list(topology.tables.values())
    if ports and len(ports) != len(tables):
        raise UsageError(f"{len(ports)} metrics ports for {len(tables)} tables", "give each table a port, or none")
    served = dict(zip((table.name for table in tables), ports or [0] * len(tables), strict=True))
    if rebuild:
        forget_state(topology, tables)
        settle_rebuilt(topology, tables)
    together = len(tables) > 1
    scratch = home() / "spark" / topology.name / ("-together" if together else tables[0].name)
    name = topology.name if together else f"{topology.name}.{tables[0].name}"
    spark = Application(name, scratch=scratch, together=together)
    try:
        if together:
            TableJoins(topology, served, stop, spark=spark).run()
        else:
            join_table(topology, tables[0], stop, spark=spark, port=served[tables[0].name])
    finally:
        spark.end_unused()
        if not stop.is_set():  # otherwise its JVM received the signal as well
            spark.close()


def _as_declared(file: str, names: Sequence[str]) -> Topology:
    """Record that the tables `names` (empty: all) run the queries of the file. Return the topology to run."""
    topology = read_file(file, "join")
    versions = kept_versions(topology.name)
    if not versions.tables:
        return topology
    bases = [name.partition(".")[0] for name in names] or list(topology.tables)
    again = recorded(topology, versions, serving(versions), [name for name in bases if name in topology.tables])
    keep_versions(topology.name, again)
    return in_versions(topology, again)


def settle_rebuilt(topology: Topology, tables: Sequence[Table]) -> None:
    """Settle the dead letters of tables that are rebuilt. If Kafka is unavailable, log that they stay open."""
    names = [table.name for table in tables]
    try:
        resolve_dead_letters(topology.log.brokers, topology.name, names)
    except Retriable as error:
        remedy = f"tailorbird dead-letters resolve {topology.file}"
        log.warning("dead letters from before the rebuild remain open", tables=names, reason=str(error), remedy=remedy)


def inspect_state(file: str, table_name: str, key: str) -> list[Held]:
    """Return the entries that the state of a table's join has for a key (JSON).

    Raises UsageError if `key` is not JSON, if the table has no state, or if Kafka lacks the schemas."""
    from joins.engine.spark_session import close_session, open_session
    from joins.inspection.spark_entries import entries  # imported here: pyspark costs a second

    topology = load_topology(file)
    table = choose_table(topology, table_name)
    checkpoint = checkpoint_folder(topology, table) / "spark"
    if not (checkpoint / "state").is_dir():
        raise UsageError(f"{checkpoint} holds no state", "run the join first; 1:1 copies have none")
    servers, wanted = topology.log.brokers, tables_of(topology, table)
    deadline = time.monotonic() + _INSPECT_TIMEOUT
    schemas = read_schemas(servers, topology.name, wanted, lambda _: None, lambda: time.monotonic() > deadline)
    if missing := sorted(str(table_id) for table_id in wanted - set(schemas)):
        what = f"Kafka at {servers} has no schema of {', '.join(missing)}"
        raise UsageError(what, "check that Kafka runs, and that this topology is the one of the running join")
    plan = compile_plan(topology, table, schemas)
    try:
        keys = keys_of(plan, key)
    except ValueError as error:
        raise UsageError(f"{key} is no key: {error}", 'write it as JSON: 7, "a", or "a",7') from error
    spark = open_session("inspect", partitions=1, scratch=home() / "spark" / "inspect")
    try:
        return described(entries(spark, checkpoint, keys), keys)
    finally:
        close_session(spark)
