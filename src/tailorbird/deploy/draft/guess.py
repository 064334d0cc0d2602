"""Draft a topology from the tables of databases. `tailorbird.deploy.draft.settle` then makes sure that the draft
compiles."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.model.errors import UsageError
from tailorbird.deploy.draft.capturing import source_of
from tailorbird.deploy.draft.draft import Draft
from tailorbird.deploy.draft.joining import facts, joined, model_of
from tailorbird.deploy.draft.naming import snake, untaken
from tailorbird.deploy.draft.shape import FoundServer

_OURS = {"layouts"}  # HBase tables of a topology that are Tailorbird's own


def guess(name: str, servers: Sequence[FoundServer], most: int) -> Draft:
    """Draft a topology with at most `most` joined tables. Raises UsageError if no table can be captured."""
    sources = tuple(source_of(name, server) for server in servers)
    model = model_of(sources)
    if not model.tables:
        looked = ", ".join(f"{server.database} of {server.hostname}:{server.port}" for server in servers)
        why = "; ".join(f"{each.name}: {each.why}" for source in sources for each in source.left)
        raise UsageError(
            f"no table that can be captured in {looked}" + (f" ({why})" if why else ""),
            "choose another database, or GRANT SELECT on its tables",
        )
    taken = set(_OURS)
    tables = []
    for table, why in facts(model, most):
        called = untaken(snake(table.name), taken)
        taken.add(called)
        tables.append(joined(model, table, why, called))
    return Draft(name=name, sources=sources, tables=tuple(tables))
