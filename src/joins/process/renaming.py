"""Rename tables in a query to the names of their versions."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from joins.select.names import same_name
from joins.select.rewrite.cases import defined_for
from joins.select.tokens import written_statements


def renamed(query: str, names: Mapping[str, str]) -> str:
    """Return the text of a query with tables renamed by `names`. Everything else stays as written.

    A renamed table without an alias gets its former name as alias. Names that WITH defines are not tables."""
    # not as the compiler reads it: its rewrites copy tables, with their places
    statement = written_statements(query)[0]
    if statement is None:
        return query
    places: list[tuple[int, int, str]] = []
    for node in statement.find_all(exp.Table):
        new = names.get(node.name)
        if new is None or new == node.name or len(node.parts) > 1 or same_name(defined_for(node), node.name):
            continue
        alias = "" if node.alias else f" AS {node.name}"
        places.append((node.this.meta["start"], node.this.meta["end"] + 1, f"`{new}`{alias}"))
    for start, end, text in sorted(places, reverse=True):
        query = query[:start] + text + query[end:]
    return query
