"""Run random queries and count how they end: `python -m tests.joins.tally FIRST COUNT`.

Each query compiles to a plan, which runs on the simulation over a random history and is compared with DuckDB's answer
at each `quiet`. DuckDB also answers the query as it is written, without the compiler's rewrites, where it can read it
(`tests.joins.written`). The last line has the counts."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cdc.model.errors import TopologyError
from joins.oracle.oracle import tables_after
from tests.joins.joincase import Case, events_of, prepared, run_case
from tests.joins.queryrandom import random_query
from tests.joins.written import written_answer

Make = Callable[[int], Case]
_PART = 100  # queries between two reports


@dataclass(slots=True)
class Tally:
    """How many queries are `equal`, `refused` (by reason), and which ones `differ`. `read`: those that DuckDB also
    answered as they are written."""

    equal: int = 0
    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    differ: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        count = self.equal + self.refused.total() + len(self.differ)
        lines = [f"{number} refused: {reason}" for reason, number in self.refused.most_common()]
        lines += [f"seed {seed} differs: {why}" for seed, why in self.differ.items()]
        lines.append(
            f"{count} queries: {count - self.refused.total()} compiled, {self.refused.total()} refused, "
            f"{self.equal} equal ({self.read} also as they are written), {len(self.differ)} different"
        )
        return "\n".join(lines)


def tallied(seeds: Iterable[int], make: Make = random_query, tally: Tally | None = None) -> Tally:
    """Run the queries of some seeds, and add them to `tally`."""
    tally = Tally() if tally is None else tally
    for seed in seeds:
        case = make(seed)
        try:
            case.plan()
        except TopologyError as error:
            tally.refused[reason_of(error)] += 1
            continue
        try:
            run_case(case, seed)
            tally.read += equals_as_written(case)
            tally.equal += 1
        except Exception as error:  # noqa: BLE001 - every other end is a difference, and is reported with its seed
            tally.differ[seed] = f"{type(error).__name__}: {error}".replace("\n", " | ")[-900:]
    return tally


def equals_as_written(case: Case) -> bool:
    """Return whether DuckDB reads a query as it is written. Raises AssertionError if its answer is another one."""
    events = [event for some in events_of(case) for event in some]
    tables = tables_after(events, {table: schema.primary_key for table, schema in case.schemas().items()})
    found = written_answer(case, tables)
    if found is None:
        return False
    wanted = prepared(case).answer(tables)
    assert found == wanted, f"as it is written (left) it is not as it is rewritten (right): {found} {wanted}"
    return True


def reason_of(error: TopologyError) -> str:
    """Return a message without the names and numbers of one query."""
    text = re.sub(r"^\S+: \S+: ", "", str(error))
    text = re.sub(r"ON .*? in a ", "ON … in a ", re.sub(r" \(query line .*", "", text, flags=re.DOTALL))
    text = re.sub(r"[`'\"]?\b\w+\.[`'\"]?\w+[`'\"]?", "T.C", text)
    return re.sub(r"\d+", "N", text).replace("\n", " ")[:160]


if __name__ == "__main__":
    began, first, many = time.monotonic(), int(sys.argv[1]), int(sys.argv[2])
    result = Tally()
    for start in range(first, first + many, _PART):
        tallied(range(start, min(start + _PART, first + many)), tally=result)
        print(f"{result} in {time.monotonic() - began:.0f} s\n", flush=True)
    sys.exit(bool(result.differ))
