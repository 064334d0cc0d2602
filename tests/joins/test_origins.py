"""Origins of columns: a result changes only with the columns that its lineage names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from cdc.model.errors import TopologyError
from cdc.model.schema import TableId
from cdc.model.types import Canonical
from joins.inspection.origins import deciders, lineages
from joins.oracle.oracle import Rows, tables_after
from joins.process.lineage import declared_datasets, planned_datasets
from joins.query.nodes import PlanSource
from joins.query.plan import Plan
from tests.joins.aggrandom import random_aggregate
from tests.joins.joincase import CLOCK_MS, Case, events_of, prepared
from tests.joins.joinrandom import random_case, value_of
from tests.joins.pairrandom import random_pair_case
from tests.joins.queryrandom import random_query

TABLES = {
    "shop.a": {"key": ["id"], "id": "int", "word": "varchar(9)?", "n": "int?", "b_id": "int?"},
    "shop.b": {"key": ["id"], "id": "int", "word": "varchar(9)?", "at": "datetime?"},
}


def uses(query: str, *row_key: str) -> tuple[dict[str, set[str]], set[str]]:
    """Return the origins of each column of a query's result, and the columns that decide about its rows."""
    case = Case(tables=TABLES, query=query, row_key=list(row_key), history=[])
    topology = case.topology()
    _, [output] = planned_datasets(topology, topology.tables["wide"], case.plan(), case.schemas())
    shown = {
        name: {f"{one.dataset.name[-1]}.{one.field} {one.how}" for one in found}
        for name, found in output.origins.items()
    }
    assert [one.name for one in output.fields] == list(shown)
    return shown, {f"{one.dataset.name[-1]}.{one.field} {one.how}" for one in output.influences}


@pytest.mark.parametrize(
    ("query", "row_key", "columns", "rows"),
    [
        (
            "SELECT a.id, upper(b.word) AS w, 7 AS c FROM shop.a a LEFT JOIN shop.b b ON b.id = a.b_id WHERE a.n > 1",
            ["id"],
            {"id": {"a.id IDENTITY"}, "w": {"b.word TRANSFORMATION"}, "c": set()},
            {"a.b_id JOIN", "b.id JOIN", "a.n FILTER"},
        ),
        (
            "SELECT n, n + 1 AS m, count(*) AS c, max(upper(word)) AS w FROM shop.a GROUP BY n",
            ["n"],
            {"n": {"a.n IDENTITY"}, "m": {"a.n TRANSFORMATION"}, "c": set(), "w": {"a.word AGGREGATION"}},
            {"a.n GROUP_BY"},
        ),
        (
            "SELECT a.id AS i, b.id AS j FROM shop.a a JOIN shop.b b ON b.word = a.word",
            ["i", "j"],
            {"i": {"a.id IDENTITY"}, "j": {"b.id IDENTITY"}},
            {"a.word JOIN", "b.word JOIN"},
        ),
        (
            "SELECT id, word, ROW_NUMBER() OVER (PARTITION BY n ORDER BY b_id) AS k FROM shop.a QUALIFY k <= 2",
            ["id"],
            {"id": {"a.id IDENTITY"}, "word": {"a.word IDENTITY"}, "k": set()},
            {"a.n GROUP_BY", "a.b_id SORT"},
        ),
        (
            "SELECT id, lag(word) OVER w AS l, sum(b_id) OVER w AS s FROM shop.a WINDOW w AS (ORDER BY n)",
            ["id"],
            {"id": {"a.id IDENTITY"}, "l": {"a.word AGGREGATION"}, "s": {"a.b_id AGGREGATION"}},
            {"a.n WINDOW"},
        ),
        (
            "SELECT id, 1 AS t, word FROM shop.a UNION ALL SELECT id, 2 AS t, upper(word) FROM shop.b",
            ["id", "t"],
            {
                "id": {"a.id IDENTITY", "b.id IDENTITY"},
                "t": set(),
                "word": {"a.word IDENTITY", "b.word TRANSFORMATION"},
            },
            set(),
        ),
        (
            "SELECT id FROM shop.b WHERE at > now() - INTERVAL 1 HOUR",
            ["id"],
            {"id": {"b.id IDENTITY"}},
            {"b.at FILTER"},
        ),
    ],
)
def test_columns_come_from_columns(query: str, row_key: list[str], columns: object, rows: set[str]) -> None:
    """Values that are passed on, computed and aggregated; joins, conditions, groups and orders."""
    found, deciding = uses(query, *row_key)
    assert found == columns
    assert rows <= deciding


def test_a_topology_names_the_inputs_before_their_columns_are_known() -> None:
    """They are the topics that the plan reads."""
    case = Case(
        tables=TABLES, query="SELECT a.id, b.word FROM shop.a a JOIN shop.b b ON b.id = a.n", row_key=["id"], history=[]
    )
    topology = case.topology()
    before, after = (
        [[one.name for one in side] for side in sides]
        for sides in (
            declared_datasets(topology, topology.tables["wide"]),
            planned_datasets(topology, topology.tables["wide"], case.plan(), case.schemas()),
        )
    )
    assert before == after


def named(plan: Plan) -> tuple[dict[str, set[tuple[TableId, str]]], set[tuple[TableId, str]]]:
    """Return the captured columns on which each column of the result depends, and those that decide about rows."""

    def column(node: int, name: str) -> tuple[TableId, str]:
        source = nodes[node].source
        assert isinstance(source, PlanSource)
        return source.table_id, name

    nodes = plan.nodes()
    values = {one.column: {column(i.node, i.column) for i in one.inputs} for one in lineages(plan)}
    return values, {column(one.node, one.column) for one in deciders(plan)}


def changed(case: Case, tables: dict[TableId, Rows], table: TableId, column: str, seed: int) -> dict[TableId, Rows]:
    """Return the tables with other values in a column."""
    chance, type_ = random.Random(seed), case.tables[f"{table.source}.{table.table}"][column]

    def other() -> Canonical:
        return value_of(type_.removesuffix("?"), chance)

    return {**tables, table: {key: {**row, column: other()} for key, row in tables[table].items()}}


KINDS: dict[str, tuple[Callable[[int], Case], int]] = {
    "joins": (lambda seed: random_case(seed, merged=False), 20),
    "pairs": (random_pair_case, 15),
    "groups": (random_aggregate, 20),
    "queries": (random_query, 20),
}


def differences(case: Case, seed: int) -> Iterator[str]:
    """Yield the columns of the result that change with a captured column on which they do not depend. Count the rest.

    Columns of primary keys do not change."""
    try:
        known = prepared(case)
    except TopologyError:
        return  # some random queries are not supported
    keys = {table: schema.primary_key for table, schema in case.schemas().items()}
    tables = tables_after([one for events in events_of(case) for one in events], keys)
    values, deciding = named(known.plan)
    expected = known.answer(tables, CLOCK_MS)
    identity = set[tuple[TableId, str]]().union(*(values[name] for name in known.plan.sink.row_key))
    for table, schema in case.schemas().items():
        for column in (one.name for one in schema.columns if one.name not in schema.primary_key):
            if (table, column) in deciding | identity:
                continue
            try:
                found = known.answer(changed(case, tables, table, column, seed), CLOCK_MS)
            except ValueError:
                continue  # a value for which the oracle has no answer
            free = [name for name, origins in values.items() if (table, column) not in origins]
            yield ""
            for key in expected.keys() | found.keys():
                one, other = expected.get(key), found.get(key)
                if one is None or other is None:
                    yield f"row {key} with {table}.{column}: {case.query}"
                else:
                    yield from (
                        f"{name} with {table}.{column}: {case.query}" for name in free if one[name] != other[name]
                    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_changes_only_with_what_its_lineage_names(kind: str) -> None:
    """Other values in any other column of the captured tables change neither values nor rows of the result."""
    make, seeds = KINDS[kind]
    found = [one for seed in range(seeds) for one in differences(make(seed), seed)]
    assert len(found) > seeds / 2
    assert not [one for one in found if one]
