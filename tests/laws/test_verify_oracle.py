"""`verify` over random correct tables: nothing is reported as different, nothing is removed, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from cdc.model.errors import Skippable
from cdc.stored.cells import RowCodec, document_id
from joins.query.plan import Plan
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.table_repair import repair_rows
from tailorbird.verify.table.table_stage import QueryAnswer, Row, Stored, TableStage
from tests.joins.joincase import Case
from tests.joins.meaningrandom import joined, random_query, read

TABLES = 1000
PARTS = 20  # so that they are distributed over processes; `make matrix` runs all of them


class Table:
    """Both ends of one table that does not change; it records the actions of a repair."""

    def __init__(self, case: Case, plan: Plan) -> None:
        self.case, self.plan = case, plan
        self.codec = RowCodec(plan.layout(1))
        rows = joined(case, plan).live().values()
        self.kept = {self.key(row): Stored(2, row) for row in rows}
        self.done: list[object] = []

    def key(self, row: Row) -> str:
        return document_id(self.codec.row_key(row))

    def ask(self) -> QueryAnswer:
        topology = self.case.topology()
        found = answer(topology, topology.tables["wide"], read(self.case))
        return QueryAnswer({self.key(row): row for row in found.rows}, {}, 0, found.unknown)

    def scan(self) -> Iterator[tuple[str, Stored]]:
        return iter(sorted(self.kept.items()))

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        return {key: self.kept[key] for key in keys if key in self.kept}

    def written(self) -> int:
        return 1

    def wait(self, positions: Mapping[str, str]) -> int:
        return 1

    def remove(self, rows: Mapping[str, int]) -> None:
        self.done += rows

    def report(self, rows: Sequence[Row]) -> str:
        self.done += rows
        return ""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.matrix) for part in range(1, PARTS))])
def test_a_repair_of_right_tables_changes_nothing(part: int) -> None:
    """Random expressions, groups, joins and conditions over extreme values, 1,000 tables in all."""
    outcomes = []
    for seed in range(part, TABLES, PARTS):
        case, plan = random_query(seed)
        table = Table(case, plan)
        layout = plan.layout(1)
        stage = TableStage(
            table="wide", row_key=layout.row_key, columns=[column.name for column in layout.columns],
            sources=table, kept=table, seconds=lambda: 0.0, pause=lambda _: None,
        )  # fmt: skip
        try:
            verdict, wrong = stage.compare()
        except Skippable as error:
            if "its set of rows depends on" not in error.message:
                raise AssertionError(f"seed {seed}: {case.query}") from error
            outcomes.append("could not tell")
            continue
        repair_rows(wrong, table, table, now_ms=10**9, without_join=True)
        assert (verdict.differing, table.done) == (0, []), f"seed {seed}: {case.query}\n{verdict.findings[:3]}"
        outcomes.append(verdict.outcome)
    assert outcomes.count("equal") > len(outcomes) / 2, "too few are compared completely"
