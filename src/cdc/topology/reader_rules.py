"""Read the options of one captured table; part of `cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cdc.model.filters import TableRule, mask


def read_rule(value: Any, also: Callable[[Any], None] = lambda section: None, *, exact_case: bool = False) -> TableRule:
    """Return the rule of one table, from nothing or from its options.

    These are `ignored_columns: […], mask: {column: …}, where: …, message_key_columns: […], append_only: true,
    watermark: …`. `also` reads the keys that only some kinds of source have. `exact_case`: the server's column names
    are case-sensitive.
    """
    if value.node.tag == "tag:yaml.org,2002:null":
        return TableRule(exact_case=exact_case)
    s = value.section()
    also(s)
    rule = TableRule(
        ignored_columns=s.take("ignored_columns", lambda v: v.texts(), ()),
        masks=s.take("mask", _masks, {}),
        where=s.take("where", lambda v: v.text(), ""),
        message_key_columns=s.take("message_key_columns", lambda v: v.texts(), ()),
        append_only=s.take("append_only", lambda v: v.one_of("true", "false"), "false") == "true",
        watermark=s.take("watermark", lambda v: v.duration(), 0.0),
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


def _masks(value: Any) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for column, text in value.pairs().items():
        try:
            mask(text.text())
        except ValueError as error:
            text.fail(str(error), "sha256(salt), truncate(n) or redact")
        found[column] = text.text()
    return found
