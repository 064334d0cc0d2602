"""A join continues only with state of its own query, partitions and engine; otherwise it names the command to run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.errors import UsageError
from joins.engine.file_checkpoint import QueryRecord
from joins.process.state_checks import check_state
from joins.select.compiler import compile_plan
from tests.joins.joincase import Case
from tests.joins.test_retractions import moves

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


def test_the_state_of_a_group_over_a_join_by_an_earlier_version_continues() -> None:
    """It contains the rows of a change detector, so the join uses this detector until the table is rebuilt. A group of
    a topic of others has one in every version."""
    case, topology = moves(), moves().topology()
    plan, table = case.plan(), topology.tables["wide"]
    others = replace(topology, sources={name: replace(one, type="kafka") for name, one in topology.sources.items()})
    kept = compile_plan(others, table, case.schemas())
    assert (plan.state_format, kept.state_format, CASE.plan().state_format) == (6, 5, 5)
    former = kept.fingerprint()  # of the same query in the earlier version
    record = QueryRecord(id="1", fingerprint=former, partitions=2, first_timestamp=0, target={}, complete=True)
    check_state(record, kept, table, "t.yml")
    check_state(record, plan.in_format(5), table, "t.yml")
    assert plan.in_format(5).state_format == 5
    assert plan.in_format(6) == plan.in_format(None) == plan
    with pytest.raises(UsageError, match="is not what its state was made for") as refused:
        check_state(record, plan, table, "t.yml")
    assert "`tailorbird run t.yml --rebuild wide`" in refused.value.hint
