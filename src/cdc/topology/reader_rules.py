"""Read the options of one captured table, and the patterns that declare merged tables; part of
`cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cdc.grammar.forms import DURATION, FILLED, TEXT, TEXTS, YES, mapping, matching
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.model.filters import TableRule, mask
from cdc.model.patterns import MergedTable, is_pattern, merged_of, merged_table, overlap
from cdc.model.schema import TableId


def _mask(value: Value) -> str:
    try:
        mask(value.text())
    except ValueError as error:
        value.fail(str(error), "sha256(salt), truncate(n) or redact")
    return value.text()


_TYPES = ("mysql", "mariadb", "postgresql")


MASK = matching(r"\s*(sha256\((.|\n)+\)|truncate\(\d+\)|redact)\s*", _mask, "redact", "truncate(4)", "sha256(salt)")
RULE: Keys = {
    "ignored_columns": DeclaredKey(
        form=TEXTS, about="Columns that never leave the process. With `filter_policy: accept`, [] captures the table."
    ),
    "mask": DeclaredKey(
        form=mapping(MASK),
        about="Columns whose values are replaced, each with `redact`, `truncate(n)` or `sha256(salt)`.",
    ),
    "where": DeclaredKey(
        form=TEXT, about="SQL condition of the rows that snapshots read. Changes of all rows are captured."
    ),
    "message_key_columns": DeclaredKey(
        form=TEXTS, about="Columns that identify a row and form the records' key. Default: the table's key."
    ),
    "append_only": DeclaredKey(
        form=YES,
        about="Rows are only inserted, so the table can be joined by time. Needs `watermark`.",
        default="false",
    ),
    "watermark": DeclaredKey(form=DURATION, about="With `append_only`: how late a row may arrive."),
    "database_column": DeclaredKey(
        form=FILLED,
        about="For a pattern: the column of the merged table with the name of each row's database. Default: "
        "`database_name` (PostgreSQL: `schema_name`).",
    ),
}
TOPIC_RULE: Keys = {
    "topic": DeclaredKey(form=TEXT, about="The table's topic.", required=True),
    "columns": DeclaredKey(
        form=mapping(TEXT, at_least=1),
        about="Types of the columns as MySQL writes them, for records without an inline schema.",
    ),
    **RULE,
}


def read_rule(
    value: Value, keys: Keys, also: Callable[[Section], None] = lambda section: None, *, exact_case: bool = False
) -> TableRule:
    """Return the rule of one table, from nothing or from its options.

    `keys` are RULE, or TOPIC_RULE, whose further keys `also` reads. `exact_case`: the server's column names are
    case-sensitive.
    """
    if value.node.tag == "tag:yaml.org,2002:null":
        return TableRule(exact_case=exact_case)
    s = Section(value, keys)
    also(s)
    rule = TableRule(
        ignored_columns=s.take("ignored_columns", ()),
        masks=s.take("mask", {}),
        where=s.take("where", ""),
        message_key_columns=s.take("message_key_columns", ()),
        append_only=s.take("append_only"),
        watermark=s.take("watermark", 0.0),
        database_column=s.take("database_column", ""),
        exact_case=exact_case,
    )
    if "ignored_columns" in s.pairs and not rule.ignored_columns:
        rule = replace(rule, keeps_table=True)
    if rule.append_only and "watermark" not in s.pairs:
        s.pairs["append_only"].fail("append_only without a watermark", "watermark: 10m, how late a row may come")
    if "watermark" in s.pairs and not rule.append_only:
        s.pairs["watermark"].fail("a watermark of a table whose rows may change", "`append_only: true` as well")
    s.end()
    return rule


def read_merged(
    s: Section, kind: str, rules: Mapping[TableId, TableRule], settings: Mapping[str, Any]
) -> tuple[MergedTable, ...]:
    """Return the merged tables among the listed ones. `settings` are others of the source that decide whether it can
    have any. Raises TopologyError for two patterns with a common name, and for a source that has no catalog to search.
    """
    merged: list[MergedTable] = []
    at = s.pairs.get("tables", s.value)
    for table, rule in rules.items():
        found = merged_table(table, kind, rule.database_column)
        if found is None:
            if rule.database_column:
                at.fail(f"database_column of {table.name}", "it at a pattern, such as `tenant_*.orders`")
            continue
        refused = _refused(kind, settings)
        if refused is not None:
            at.fail(f"pattern {table.name} {refused[0]}", refused[1])
        for other in merged:
            if other.table_id.table == table.table and overlap(other.table_id.database, table.database):
                what = f"patterns {other.table_id.name} and {table.name} match the same names"
                at.fail(what, "one of the two only")
        merged.append(found)
    for table in rules:
        both = None if is_pattern(table.database) else merged_of(table, merged)
        if both is not None:
            what = f"pattern {both.table_id.name} matches the listed table {table.name}"
            at.fail(what, "a pattern that does not match it, or only the pattern")
    return tuple(merged)


def _refused(kind: str, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why a source cannot have patterns, and what is possible; None if it can."""
    if kind not in _TYPES:
        return (
            f"in a source of type {kind}",
            "the names of single tables: only MySQL, MariaDB and PostgreSQL have patterns",
        )
    if settings["polled"]:
        return "in a polled source", "capture: log, or the names of single tables"
    if settings["policy"] == "accept":
        return "with filter_policy: accept", "filter_policy: drop, or no pattern"
    if settings["snapshot"]:
        return "in a source with a snapshot replica", "a source without `snapshot:`, or the names of single tables"
    if settings["agent"]:
        return "in a source that agents capture", "a source without agents, or the names of single tables"
    return None
