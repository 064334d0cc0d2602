"""Read the options of one captured table; part of `cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cdc.grammar.forms import DURATION, TEXT, TEXTS, YES, mapping, matching
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.model.filters import TableRule, mask


def _mask(value: Value) -> str:
    try:
        mask(value.text())
    except ValueError as error:
        value.fail(str(error), "sha256(salt), truncate(n) or redact")
    return value.text()


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
