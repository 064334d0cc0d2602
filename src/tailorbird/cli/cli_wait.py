"""`tailorbird wait`: wait until writes are readable."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Literal

import typer


def wait(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str, typer.Option("--source", help="The source that was written to.")],
    now: Annotated[
        bool, typer.Option("--now", help="Wait for everything committed before the command started.")
    ] = False,
    gtid: Annotated[str, typer.Option("--gtid", help="Wait for these transactions instead: a GTID set.")] = "",
    lsn: Annotated[str, typer.Option("--lsn", help="PostgreSQL: wait for commits before this LSN.")] = "",
    until: Annotated[
        Literal["log", "table", "index"], typer.Option("--until", help="Where the writes must be readable.")
    ] = "index",
    table: Annotated[str | None, typer.Option("--table", help="Only this table, or its indexes. Default: all.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Maximum time to wait, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Wait until a commit of a source is visible in the log, the tables or the indexes.

    A transaction of tables that are not captured also works: it counts as visible when all earlier ones are. Exit code
    1 after the timeout, with the names of the tables or indexes that lag. Reads only.

    Example: tailorbird wait topologies/shop.yml --source shop --now && curl …
    """
    # imported here: the clients of all servers take half a second
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import load_serving
    from tailorbird.operate.wait.run_wait import Waiter

    if [now, bool(gtid), bool(lsn)].count(True) != 1:
        raise UsageError("nothing to wait for", "give exactly one of --now, --gtid SET and --lsn LSN")
    with Waiter(load_serving(file)) as waiter:
        goal = waiter.now(source) if now else waiter.goal(source, gtid or lsn)
        reached = waiter.wait(goal, until=until, table=table, timeout=timeout)
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(reached), "gtid_set": goal.position.gtid_set}))
    else:
        typer.echo(f"{until} has all of {goal}, after {reached.seconds:.2f} s")
