"""Guess references without a foreign key from column names: `orders.customer_id` → `customers.id`.

Many databases have no foreign keys, and none can refer to another server. A guess is accepted if at least
half of the sampled values of the column are keys of the other table, or if no value was sampled (`believed`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cdc.model.schema import Column
from cdc.model.types import LogicalType
from tailorbird.deploy.draft.joining import comparable
from tailorbird.deploy.draft.naming import role, snake
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference

MOST_VALUES = 50
_LEADS = re.compile(r"_(id|key|no|nr|code|uuid|guid|fk)$")


def likely(servers: Sequence[FoundServer]) -> list[Reference]:
    """Guess references from names, at most one per column. Tables of the same database take precedence."""
    found = []
    for server in servers:
        declared = {(r.child, name) for r in server.references for name in r.columns}
        for table in server.tables:
            for column in table.schema.columns:
                if (table.table_id, column.name) in declared or (column.name,) == table.key or not table.key:
                    continue
                own = list(_led_to(table, column, server.tables))
                others = [each for other in servers if other is not server for each in other.tables]
                matches = own or list(_led_to(table, column, others))
                if len(matches) == 1:  # several matches are ambiguous
                    found.append(matches[0])
    return found


def _led_to(table: FoundTable, column: Column, tables: Iterable[FoundTable]) -> Iterator[Reference]:
    name = snake(column.name)
    if not _LEADS.search(name):
        return
    called = role(column.name)
    for other in tables:
        if other.table_id == table.table_id or len(other.key) != 1 or snake(other.name) not in _plurals(called):
            continue
        key = other.schema.column(other.key[0])
        if key is None or snake(key.name) not in (name, name.removeprefix(f"{called}_")):
            continue
        mine, theirs = _type(column), _type(key)
        if mine is not None and theirs is not None and comparable(mine, theirs):
            yield Reference(child=table.table_id, columns=(column.name,), parent=other.table_id, referenced=(key.name,))


def asked(servers: Sequence[FoundServer], reference: Reference) -> list[str]:
    """Return sampled values of the referring column. If the guess is right, they are keys of the other table."""
    tables = {table.table_id: table for server in servers for table in server.tables}
    return list(dict.fromkeys(tables[reference.child].values(reference.columns[0])))[:MOST_VALUES]


def believed(reference: Reference, values: int, found: int) -> Reference | None:
    """Return the reference with the reason for the guess, or None if the reference seems wrong.

    `found` of the `values` sampled values are keys of the other table. The reference is believed if they are at least
    half, or if no values were sampled."""
    if found * 2 < values:
        return None
    said = f"{found} of {values} values read are keys there" if values else "there are no rows yet to check"
    return replace(reference, guessed=f"no foreign key, guessed from its name: {said}")


def with_references(servers: Sequence[FoundServer], more: Sequence[Reference]) -> list[FoundServer]:
    """Return the servers with the references `more` added to the declared ones."""
    return [
        replace(server, references=(*server.references, *(r for r in more if r.child.source == server.source)))
        for server in servers
    ]


def _plurals(name: str) -> set[str]:
    """Return possible table names for a singular name."""
    return {name, f"{name}s", f"{name}es", re.sub(r"y$", "ies", name), re.sub(r"person$", "people", name)}


def _type(column: Column) -> LogicalType | None:
    try:
        return column.type
    except ValueError:
        return None
