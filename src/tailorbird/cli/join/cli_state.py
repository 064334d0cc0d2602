"""`tailorbird state`: inspect the state of joins."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect the state of joins.\n\nExample: tailorbird state inspect topologies/shop.yml orders_wide 7",
)


@app.callback()
def state() -> None:
    """Inspect the state of joins.

    Example: tailorbird state inspect topologies/shop.yml orders_wide 7
    """


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The joined table.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help='A join key or a row key as JSON: 7, "a", or "a",7.')],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per entry.")] = False,
) -> None:
    """Show the state of a table's steps under a key, as of the last finished batch.

    Reads the checkpoint; the join may be running. The key is looked up both as a join key (the row that has it, and the
    rows that reference it) and as a row key.

    Example: tailorbird state inspect topologies/shop.yml orders_wide 7
    """
    from cdc.model.extras import extras_named

    with extras_named("joins"):
        from joins.run_join import inspect_state

        found = inspect_state(file, table, key)
    for held in found:
        if as_json:
            print(json.dumps(held.to_json(), ensure_ascii=False))
        else:
            row = "" if held.row is None else f" {held.row}"
            print(f"{held.step}: {held.what}{row}: {'(in the star)' if held.values is None else held.values}")
    if not found and not as_json:
        print(f"no state for key {key}")
