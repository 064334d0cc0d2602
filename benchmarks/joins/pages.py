"""Write docs/results/joins.md and docs/results/aggregates.md from the lines that a run prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.joins.report import LEAST_RATIO
from benchmarks.page import bullets, page, paragraph, span, write_page

GOAL: Final = 1.2  # times a Flink with the same guarantee, for groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The prose of a page. `what`: its paragraphs before the facts, `how`: the one after them."""

    file: str
    title: str
    what: tuple[str, ...]
    queries: str
    how: str
    digits: int  # of the ratios in the result


_BATCHES: Final = """Tailorbird's batches are as large as those of a join that is far behind ([ADR
    123](../adr/0123-batches-follow-their-time.md)): the first has 20,000 changes and the fourth 200,000, but none has
    more than a tenth of all changes."""
JOINS: Final = Template(
    file="joins.md",
    title="# Joins compared with Flink SQL",
    what=(
        """This page compares the throughput of joins with Flink SQL. Result: {ratios} times Flink (required: {least}).
        {missed}""",
        """Both engines read the same Debezium JSON files on the same machine, one after the other, and discard their
        output. The time is from the start of the query to its end. *Facts* are the rows of the query's FROM;
        *dimensions* are the tables joined to it. During a run more and more facts refer to each dimension row, so a
        change of a dimension row causes more and more rows to be written. The second half of a run is therefore
        compared with the first one by two measures: changes read, and changes read plus rows written.""",
    ),
    queries="""queries: `n1` joins facts with one dimension, `star` with three, `snowflake` with a chain of three
    dimensions; in `hot` a tenth of the facts refer to the same dimension row (`benchmarks/joins/workload.py`)""",
    how="""How to read the output: `{first:.2f}× Flink` is the ratio of the two rates that follow, Tailorbird's first.
    `state` is the size of the checkpoint on disk: Tailorbird's, the part of it that a restart reads, and Flink's.
    `second half` compares Tailorbird's rates in the second and the first half of its run. `rows written per change` has
    one figure for each half. `CPU steal` is the share of CPU time that the host of the virtual machine took.""",
    digits=1,
)
AGGREGATES: Final = Template(
    file="aggregates.md",
    title="# Groups and many-to-many joins compared with Flink SQL",
    what=(
        """This page compares the throughput of GROUP BY and of many-to-many joins with Flink SQL. Result: Tailorbird
        reaches {ratios} times the throughput of a Flink with the same guarantee (required: {least}; the goal of {goal}
        is {reached}). {missed}""",
        """Both engines read the same Debezium JSON files on the same machine, one after the other, and discard their
        output. The time is from the start of the query to its end. Flink has RocksDB, mini-batches and two-phase
        aggregation.""",
        _BATCHES,
        """**Two configurations of Flink.** Tailorbird never counts a change twice: changes that capture marks as exact
        are added up, and for others it stores each row ([ADR 100](../adr/0100-groups-add-up-exact-changes.md)). Flink
        has the same guarantee with `table.exec.source.cdc-events-duplicate`; this is the figure to compare with. By
        default Flink trusts its source and stores no row if the query only counts; the last line of each query shows
        that figure, too ([ADR
        34](../adr/0034-compared-with-a-peer-of-the-same-guarantee.md)).""",
    ),
    queries="""queries (`benchmarks/joins/aggregates.py`): `revenue` groups a join by customer, `global` has one group,
    and in `hot_group` nine tenths of the rows are in one group; `distinct` counts different values; `q4` is NEXMark's
    query 4, a group of groups; `pairs` is a many-to-many join with 20 partners per row""",
    how="""How to read the output: `{first:.2f}× Flink` is the ratio of the two rates that follow, Tailorbird's first.
    `state` is the size of the checkpoint on disk: Tailorbird's, the part of it that a restart reads, and Flink's.
    `second half` compares Tailorbird's rates in the second and the first half of its run, by two measures
    ([why](joins.md)). `rows written per change` has one figure for each half; rows are counted after all changes of a
    batch are combined. `CPU steal` is the share of CPU time that the host of the virtual machine took.""",
    digits=2,
)


def document(
    template: Template, lines: Sequence[str], ratios: Sequence[float], missed: Sequence[str], command: str
) -> str:
    """Return the text of a page. `ratios`: Tailorbird's rate relative to Flink's by query, `missed`: what is missed."""
    figures = {
        "ratios": span(ratios, template.digits),
        "least": LEAST_RATIO,
        "goal": GOAL,
        "reached": "reached" if min(ratios) >= GOAL else "missed",
        "missed": _missed_figures(missed),
    }
    facts = (
        f"command: `{command}`",
        f"date: {datetime.now(UTC):%Y-%m-%d}",
        f"machine: {os.cpu_count()} cores, Python {sys.version.split()[0]}",
        template.queries,
    )
    printed = "\n".join([*lines, *(f"MISSED {miss}" for miss in missed)])
    return page(
        template.title,
        *(paragraph(text.format_map(figures)) for text in template.what),
        bullets(facts),
        paragraph(template.how.format(first=ratios[0])),
        f"```\n{printed}\n```",
    )


def _missed_figures(missed: Sequence[str]) -> str:
    """Return a sentence such as "Required figures that are missed: 0.65× Flink, … (`star`)."; empty without misses."""
    parts = (miss.partition(": ") for miss in missed)
    named = [f"{figure} (`{query}`)" if figure else query for query, _, figure in parts]
    return f"Required figures that are missed: {'; '.join(named)}." if named else ""


def write(
    root: Path, template: Template, lines: Sequence[str], ratios: Sequence[float], missed: Sequence[str], command: str
) -> None:
    """Write a page to docs/results of a checkout."""
    write_page(root / "docs" / "results" / template.file, document(template, lines, ratios, missed, command))
