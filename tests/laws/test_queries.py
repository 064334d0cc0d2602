"""Properties of queries with all forms that people write (`tests.joins.queryrandom`): for any history of the sources,
the stored table equals DuckDB's answer to the query, also to its text as it is written."""

from __future__ import annotations

import pytest

from tests.joins.queryrandom import random_query
from tests.joins.tally import Tally, tallied

QUICK, PART = 20, 250
MOST_REFUSED = 0.1
FORMS = (
    "SEMI JOIN", "GROUP_CONCAT", "RLIKE", "date_format", "WINDOW w", "(WITH", "coalesce(a.g, b.g)", "ROLLUP", "LIMIT",
    "QUALIFY", "lag(", "EXISTS", "UNION",
)  # fmt: skip
# docs/queries.md lists the queries that are rejected
DOCUMENTED = (
    "in a LEFT JOIN of many to many",
    "row_key is not unique",
    "no key of the",
    "that the query cannot name",
    "comes from the joined table",
    "joined many to many",
    "which are joined to others, have no key",
    "joins and groups",
    "next to NULL in a UNION",
    "a subquery of single rows as a value",
    "no equality joins",
    "expressions have at most N digits",
)


def holds(tally: Tally) -> None:
    """Check that every query that compiles is equal, and that few are refused."""
    count = tally.equal + tally.refused.total()
    assert not tally.differ, f"{tally}"
    assert tally.refused.total() <= MOST_REFUSED * count, f"{tally}"
    assert all(any(one in reason for one in DOCUMENTED) for reason in tally.refused), f"{tally}"
    assert tally.read >= 0.4 * count, f"DuckDB reads too few queries as they are written: {tally}"


def test_random_queries_are_their_select() -> None:
    """Joins by expressions, subqueries, windows, sets and patterns, nested in each other; the same in every run."""
    holds(tallied(range(QUICK)))


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(100_000, 105_000, PART))
def test_five_thousand_queries_are_their_selects(first: int) -> None:
    """In parts, each of which may run alone."""
    holds(tallied(range(first, first + PART)))


def test_forms_are_nested() -> None:
    """The generator makes queries of several forms, in other queries too."""
    cases = map(random_query, range(150))
    texts = [case.query + "".join(view["query"] for view in case.views.values()) for case in cases]
    for form in FORMS:
        found = [text for text in texts if form in text]
        assert found, form
        assert any(other in text for text in found for other in FORMS if other != form), form
