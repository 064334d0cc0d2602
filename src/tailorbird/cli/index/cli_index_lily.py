"""`tailorbird index import-lily`: convert a Lily indexer to a topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdc.model.errors import UsageError


def import_lily(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The indexer's XML.")],
    name: Annotated[str, typer.Option(help="Name of the topology, its table and its index.")] = "imported",
    as_json: Annotated[bool, typer.Option("--json", help="The topology and the omitted settings as JSON.")] = False,
) -> None:
    """Print a Lily HBase indexer's XML as a topology.

    Settings without a counterpart are omitted and listed on standard error.

    The exit code is 0 then too, because the topology is valid.

    Example: tailorbird index import-lily indexer.xml > topologies/people.yml
    """
    from cdc.topology.reader import read_topology
    from indexer.foreign.lily import import_lily as read_xml

    try:
        xml = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "give an indexer's XML file") from error
    imported = read_xml(xml, file=str(file), name=name)
    read_topology(imported.text, file=f"{file} (imported)", environ={})
    if as_json:
        typer.echo(json.dumps({"topology": imported.text, "left_out": imported.left_out}))
        return
    typer.echo(imported.text, nl=False)
    for each in imported.left_out:
        typer.echo(f"left out: {each}", err=True)
