"""A join continues only with state of its own query, partitions and engine; otherwise it names the command to run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.errors import UsageError
from joins.engine.file_checkpoint import QueryRecord
from joins.process.state_checks import check_state
from tests.joins.joincase import Case

CASE = Case(
    tables={"shop.t": {"key": ["id"], "id": "int"}}, query="SELECT t.id FROM shop.t t", row_key=["id"], history=[]
)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"fingerprint": "other"}, "is not what its state was made for"),
        ({"partitions": 3}, "has 3 partitions, the topology says 2"),
        ({"engine": "python"}, "was built by the engine python, which no longer exists"),
    ],
)
def test_other_state_is_refused_with_the_command_that_rebuilds_it(changed: dict[str, object], what: str) -> None:
    """Spark would not find its operators in such a state, or would count rows twice."""
    plan = CASE.plan()
    table = replace(CASE.topology().tables["wide"], state_partitions=2)
    own = QueryRecord(
        id="1", fingerprint=plan.fingerprint(), partitions=2, first_timestamp=0, target={}, complete=True, engine="jvm"
    )
    for known in (own, replace(own, engine="")):  # records of the first versions do not name an engine
        check_state(known, plan, table, "t.yml")
    with pytest.raises(UsageError, match=what) as refused:
        check_state(replace(own, **changed), plan, table, "t.yml")  # type: ignore[arg-type]  # one field each
    assert "`tailorbird run t.yml --rebuild wide`" in refused.value.hint
