"""Read `checks:` of a topology file; `cdc.topology.reader` has the rest and the format of errors."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

from cdc.grammar.forms import DURATION, matching, one_of, texts
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.topology.topology import COMPARABLE, Check, CheckStage, Topology


def _every(value: Value) -> float:
    seconds = value.duration()
    if seconds < 1:
        value.fail(value.text(), "1s at least: a check starts again when the previous run has ended")
    return seconds


def _sample(value: Value) -> int:
    match = re.fullmatch(r"1/([1-9][0-9]{0,5})", value.text())
    if match is None:
        value.fail(repr(value.text()), "a part such as 1/64")
    return int(match[1])


CHECK: Keys = {
    "every": DeclaredKey(
        form=replace(DURATION, read=_every),
        about="From the start of one run to the start of the next, 1s or more. Checks run one at a time.",
        required=True,
    ),
    "stage": DeclaredKey(form=one_of(*get_args(CheckStage)), about="What is compared. Default: all three stages."),
    "tables": DeclaredKey(
        form=texts(at_least=1, expected="one table at least, or no key: all of them"),
        about="Joined tables, and captured tables for the log. Default: all of them.",
    ),
    "sample": DeclaredKey(
        form=matching("1/[1-9][0-9]{0,5}", _sample, "1/64"),
        about="For an index: compare the versions of all rows, but the values of only one row in 64. Default: all.",
    ),
    "changed_since": DeclaredKey(
        form=one_of("last"),
        about="For `stage: index` or `stage: log`: compare only what changed since the last comparison.",
    ),
}


def read_check(name: str, s: Section) -> Check:
    """Read one check: `{every: 1h, stage: index, tables: [orders_wide], sample: 1/64}`."""
    check = Check(
        name=name,
        every=s.take("every"),
        stage=s.take("stage"),
        tables=s.take("tables", ()),
        sample=s.take("sample", 1),
        changed=s.take("changed_since") == "last",
    )
    if check.changed and check.stage not in ("log", "index"):
        s.pairs["changed_since"].fail("the table stage, which compares all rows", "stage: index or stage: log")
    if check.changed and "sample" in s.pairs:
        s.pairs["sample"].fail("a sample of what changed", "either `sample` or `changed_since`")
    if "sample" in s.pairs and not check.covers("index"):
        s.pairs["sample"].fail(f"a sample of stage {check.stage}, which compares all rows", "stage: index")
    return check


def check_checks(topology: Topology) -> None:
    """Raise TopologyError for the first check that names a missing table, or that has no index or HBase table to
    compare."""
    kept = [name for name, table in topology.tables.items() if table.sink in COMPARABLE]
    indexed = {index.table for index in topology.indexes.values()} & set(kept)
    for name, check in topology.checks.items():
        for place, table in enumerate(check.tables):
            if table in kept or (check.covers("log") and topology.tables_meant(table)):
                continue
            known = ", ".join(kept) or "a table that is kept in HBase or PostgreSQL"
            also = ", or a captured table" if check.covers("log") else ""
            raise topology.error(f"checks.{name}.tables[{place}]", f"no table {table} to compare", known + also)
        wanted = set(check.tables) or set(kept)
        if check.stage == "index" and not wanted & indexed:
            raise topology.error(f"checks.{name}", "no index over these tables", "an index under `indexes:`")
        if check.stage == "table" and not kept:
            raise topology.error(
                f"checks.{name}", "no table that is kept in HBase or PostgreSQL", "a table with `sink: hbase`"
            )
