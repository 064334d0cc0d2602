"""Read `checks:` of a topology file; `cdc.topology.reader` has the rest and the format of errors."""

from __future__ import annotations

import re
from typing import get_args

from cdc.topology.topology import Check, CheckStage, Topology
from cdc.topology.values import Section, Value

_STAGES: tuple[CheckStage, ...] = get_args(CheckStage)


def read_check(name: str, s: Section) -> Check:
    """Read one check: `{every: 1h, stage: index, tables: [orders_wide], sample: 1/64}`."""
    check = Check(
        name=name,
        every=s.take("every", _every),
        stage=s.take("stage", lambda v: v.one_of(*_STAGES), None),
        tables=s.take("tables", _tables, ()),
        sample=s.take("sample", _sample, 1),
        changed=s.take("changed_since", lambda v: v.one_of("last") == "last", False),
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
    kept = [name for name, table in topology.tables.items() if table.sink == "hbase"]
    indexed = {index.table for index in topology.indexes.values()} & set(kept)
    for name, check in topology.checks.items():
        for place, table in enumerate(check.tables):
            if table in kept or (check.covers("log") and topology.tables_meant(table)):
                continue
            known = ", ".join(kept) or "a table that is kept in HBase"
            also = ", or a captured table" if check.covers("log") else ""
            raise topology.error(f"checks.{name}.tables[{place}]", f"no table {table} to compare", known + also)
        wanted = set(check.tables) or set(kept)
        if check.stage == "index" and not wanted & indexed:
            raise topology.error(f"checks.{name}", "no index over these tables", "an index under `indexes:`")
        if check.stage == "table" and not kept:
            raise topology.error(f"checks.{name}", "no table that is kept in HBase", "a table with `sink: hbase`")


def _every(value: Value) -> float:
    seconds = value.duration()
    if seconds < 1:
        value.fail(value.text(), "1s at least: a check starts again when the previous run has ended")
    return seconds


def _tables(value: Value) -> tuple[str, ...]:
    return value.texts() or value.fail("an empty list", "one table at least, or no key: all of them")


def _sample(value: Value) -> int:
    match = re.fullmatch(r"1/([1-9][0-9]{0,5})", value.text())
    if match is None:
        value.fail(repr(value.text()), "a part such as 1/64")
    return int(match[1])
