"""`tailorbird json-schema`: print the JSON Schema of a kind of file, for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from cdc.grammar.forms import Schema

FileKind = Literal["topology", "policy"]


def json_schema(
    kind: Annotated[FileKind, typer.Argument(metavar="KIND", help="`topology`, or `policy`: that of an agent.")],
) -> None:
    """Print the JSON Schema of topology or policy files, with which editors complete and check them.

    It covers keys, types, enumerations and forms of values. `tailorbird validate` checks the rest, too.

    Example: tailorbird json-schema topology > topologies/topology.schema.json
    """
    typer.echo(schema_text(kind), nl=False)


def schema_text(kind: FileKind) -> str:
    """Return the text of a schema's file."""
    schemas: dict[FileKind, Callable[[], Schema]] = {"topology": _topology, "policy": _policy}
    return json.dumps(schemas[kind](), indent=1, ensure_ascii=False) + "\n"


def _topology() -> Schema:
    from cdc.topology.topology_keys import topology_schema

    return topology_schema()


def _policy() -> Schema:
    from ingest.agent.policy_keys import policy_schema

    return policy_schema()
