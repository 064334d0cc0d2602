"""Each aggregate function is one row of the registry: the specification, the kernel and the page have all of them."""

from __future__ import annotations

import re
from pathlib import Path

from joins.kernel.proc_kernel import FOLDER
from joins.query.aggregate_functions import BY_NAME, FUNCTIONS
from joins.steps.results import FINISHES

ROOT = Path(__file__).parents[2]


def test_both_implementations_have_every_function() -> None:
    """A row without its computation would stop a join only when the first group is computed."""
    wanted = {function.finish for function in FUNCTIONS}
    assert set(FINISHES) == wanted
    assert set(re.findall(r'finish\.equals\("([^"]+)"\)', (FOLDER / "groups" / "Result.java").read_text())) == wanted


def test_rows_of_one_name_compute_the_same() -> None:
    """A plan contains only the name, so rows of one name may differ only in what they accept."""
    for function in FUNCTIONS:
        other = BY_NAME[function.name]
        same = ("reads", "finish", "keeps", "result", "native", "distinct", "complete")
        assert [getattr(function, field) for field in same] == [getattr(other, field) for field in same]


def test_the_page_lists_every_function() -> None:
    (listed,) = re.findall(r"^The aggregate functions are .*?\n\n", (ROOT / "docs/queries.md").read_text(), re.M | re.S)
    names = {re.sub(r", …|\(x(, y)?\)$", "", name) for name in re.findall(r"`([^`]+)`", listed)}
    assert names >= {function.shown for function in FUNCTIONS}
