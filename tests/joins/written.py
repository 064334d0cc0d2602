"""Let DuckDB answer a query as it is written: without the compiler's rewrites of its structure, which the oracle of the
laws shares with the compiler.

Function names and patterns are still rewritten. So are ORDER BY … LIMIT and DISTINCT ON, whose ties the join breaks by
the row's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest.mock import patch

import duckdb
from sqlglot import exp

from cdc.model.schema import TableId
from joins.oracle import duckdb_query
from joins.oracle.oracle import Rows
from joins.oracle.sql_oracle import Answer
from joins.select.rewrite.cases import with_cases
from joins.select.rewrite.distinct_on import with_distinct_on
from joins.select.rewrite.group_concats import with_group_concats
from joins.select.rewrite.limits import with_limits, without_orders
from joins.select.rewrite.named_windows import with_named_windows
from joins.select.rewrite.synonyms import with_exact
from joins.select.tokens import with_places, written_statements
from tests.joins.altering import flat
from tests.joins.joincase import Case
from tests.joins.quick import QuickOracle, database, functions


def written_answer(case: Case, tables: Mapping[TableId, Rows]) -> Answer | None:
    """Return DuckDB's answer to a query as it is written. None if it cannot read it, or if the answer may depend on the
    order of equal rows: it is known by the place of a window, which a rewritten RIGHT JOIN moves."""
    said = " ".join([case.query, *(str(view["query"]) for view in case.views.values())])
    if "RIGHT JOIN" in said and any(word in said for word in (" OVER ", "LIMIT", "DISTINCT ON")):
        return None
    topology = case.topology()
    oracle = QuickOracle(
        topology, {table: flat(schema) for table, schema in case.schemas().items()}, database(), functions()
    )
    with patch.object(duckdb_query, "statements_of", _as_written):
        try:
            return oracle.answer(topology.tables["wide"], tuple(case.row_key), tables)
        except ValueError as error:
            if "two rows of" in str(error):  # a wrong row key, and no query that it cannot read
                raise
        except (duckdb.Error, AssertionError, KeyError, AttributeError):
            pass
    return None


def _as_written(text: str, row_key: Sequence[str] = (), *, now: str = "") -> list[exp.Expr | None]:
    """Return the statements of a text as `joins.select.tokens.statements_of` does, but rewritten only so far."""
    (statement,) = written_statements(text)
    assert statement is not None
    for rewrite in (
        without_orders, with_cases, with_group_concats, with_named_windows, with_exact, with_distinct_on, with_limits,
        with_places,
    ):  # fmt: skip
        statement = rewrite(statement)
    return [statement]
