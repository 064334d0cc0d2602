"""Read the text of a query as one SQL statement. Its tokens are checked before parsing, because sqlglot silently
ignores or corrects some mistakes.

Also has the messages for unsupported clauses and joins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from cdc.topology.topology import Table, Topology
from joins.query.functions.arity import ARITY, wrong_arity
from joins.query.functions.dates import PATTERN, READ_PATTERN, pattern_for, spark_pattern
from joins.query.functions.moments import with_moments
from joins.query.functions.spatial import renamed
from joins.query.functions.windows import TimeWindow
from joins.select.rewrite.absent.nearest import with_nearest
from joins.select.rewrite.calls.moments import patterns_in, with_spark_calls
from joins.select.rewrite.cases import with_cases
from joins.select.rewrite.distinct_on import with_distinct_on
from joins.select.rewrite.full_joins import NeverNull, with_full_joins
from joins.select.rewrite.group_concats import with_group_concats, with_stand_ins
from joins.select.rewrite.grouping_sets import with_grouping_sets
from joins.select.rewrite.limits import unused_order, with_limits, without_orders
from joins.select.rewrite.lists.explodes import with_explodes
from joins.select.rewrite.named_windows import with_named_windows
from joins.select.rewrite.partitions import with_partitions
from joins.select.rewrite.pivots import with_pivots
from joins.select.rewrite.right_joins import with_right_joins
from joins.select.rewrite.semi_joins import with_semi_joins
from joins.select.rewrite.sets import with_sets
from joins.select.rewrite.sliding_windows import with_sliding_windows
from joins.select.rewrite.synonyms import with_exact
from joins.select.sql import FORM, Place, refuse

_WINDOW, _STAND_IN = "window", "tumble"  # of equal length, so that other positions do not change
_REGULAR = ("rlike", "regexp", "regexp_like", "regexp_extract", "regexp_replace", "regexp_substr")
_PATTERNS = {"date_format": PATTERN, "to_date": READ_PATTERN, "to_timestamp": READ_PATTERN}
# Refuses at a line (from 0) and a column (from 1): the error, and the expected form.
RefuseAt = Callable[[int, int, str, str], NoReturn]
# The replacement for each clause that is not supported.
CLAUSES = {
    "windows": ("WINDOW", "OVER (PARTITION BY … ORDER BY …), written where it is used"),
    "order": ("ORDER BY", "no ORDER BY, as rows are stored in the order of row_key; or ORDER BY … LIMIT 10"),
    "sort": ("SORT BY", "no SORT BY: rows are stored in the order of row_key"),
    "cluster": ("CLUSTER BY", "no CLUSTER BY: rows are stored in the order of row_key"),
    "distribute": ("DISTRIBUTE BY", "no DISTRIBUTE BY: rows are stored in the order of row_key"),
    "limit": ("LIMIT", "ORDER BY … LIMIT 10; or no LIMIT, as the table holds every row"),
    "offset": ("OFFSET", "ROW_NUMBER() OVER (ORDER BY …) AS n, and WHERE n > 10 around it"),
    "laterals": (
        "this LATERAL VIEW",
        "one explode(split(x, ',')) or explode(array(a, b)), and the columns listed without *",
    ),
    "hint": ("a hint", "no hint"),
}
# The same for an ORDER BY … LIMIT that `joins.select.rewrite.limits` has left.
_LIMITED = (
    "this ORDER BY … LIMIT",
    "names of result columns, or their numbers without *; after UNION or parentheses, in FROM (SELECT …) name",
)
LEFT_LIMITS = {**CLAUSES, "order": _LIMITED, "limit": _LIMITED}
KEPT = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "qualify", "with_")
KINDS = ("", "INNER", "CROSS", "LEFT", "LEFT OUTER", "RIGHT", "RIGHT OUTER", "FULL", "FULL OUTER")
_SEMI = ", before a RIGHT or FULL JOIN in FROM (SELECT …) name; or ON with a table's name before each column"
NOT_YET = {
    "SEMI": "WHERE EXISTS (SELECT 1 FROM {table} WHERE {alias}.x = …)" + _SEMI,
    "ANTI": "WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {alias}.x = …)" + _SEMI,
}


def statements_of(
    text: str, row_key: Sequence[str] = (), never_null: NeverNull | None = None, *, now: str = ""
) -> list[exp.Expr | None]:
    """Parse a text as Spark SQL and return its statements, rewritten. Raises sqlglot's ParseError and TokenError.

    `row_key` are the names of a joined table's row key, if they are known: some rewrites depend on them. If `now`, a
    timestamp, is given, it takes the place of `now()`. For `never_null` see `joins.select.rewrite.full_joins`."""
    written = [one and (with_moments(one, now) if now else one) for one in written_statements(text)]
    return [None if one is None else _rewritten(one, row_key, never_null) for one in written]


def written_statements(text: str) -> list[exp.Expr | None]:
    """Parse a text as Spark SQL and return its statements as they are written. Raises as `statements_of` does.

    `window(…)` after GROUP BY is renamed before parsing, because sqlglot takes it for the WINDOW clause."""
    tokens = sqlglot.tokenize(text, read="spark")
    called = [
        token.start
        for token, after in pairwise(tokens)
        if token.text.lower() == _WINDOW and after.token_type == TokenType.L_PAREN
    ]
    for start in called:
        text = text[:start] + _STAND_IN + text[start + len(_STAND_IN) :]
    text = with_stand_ins(text, tokens)
    statements = [one and _with_commas(_positive(one), tokens) for one in sqlglot.parse(text, dialect="spark")]
    named = [None if one is None else renamed(_renamed(one) if called else one) for one in statements]
    patterns = patterns_in(token.text for token in tokens if token.token_type == TokenType.STRING)
    return [None if one is None else with_spark_calls(one, patterns) for one in named]


def _rewritten(statement: exp.Expr, row_key: Sequence[str], never_null: NeverNull | None) -> exp.Expr:
    """Apply the rewrites in this order: each reads what the ones before it have written."""
    for rewrite in (
        without_orders, with_group_concats, with_named_windows, with_semi_joins, with_cases, with_explodes,
        with_nearest, with_exact, with_pivots, with_sliding_windows, with_right_joins, with_grouping_sets,
        partial(with_full_joins, row_key=row_key, never_null=never_null), with_sets, with_partitions,
        with_distinct_on, with_limits, with_moments,
    ):  # fmt: skip
        statement = rewrite(statement)
    return with_places(statement)


def with_places(statement: exp.Expr) -> exp.Expr:
    """Give each window function a place of its own, in place: later stages replace its columns, but find it by that."""
    for window in statement.find_all(exp.Window):
        placed = [node for node in window.walk() if "line" in node.meta]
        if placed:
            window.meta.update(min(placed, key=lambda node: int(node.meta["start"])).meta)
    return statement


def _positive(statement: exp.Expr) -> exp.Expr:
    """Write `NOT LIKE`, which sqlglot reads as a LIKE with a mark, as NOT of a LIKE."""
    for node in list(statement.find_all(exp.Like, exp.ILike)):
        if node.args.get("negate"):
            node.set("negate", None)
            whole = node.parent if isinstance(node.parent, exp.Escape) else node
            whole.replace(exp.Paren(this=exp.Not(this=whole.copy())))
    return statement


def _with_commas(statement: exp.Expr, tokens: Sequence[Token]) -> exp.Expr:
    """Mark joins after a comma, which sqlglot reads as CROSS JOIN."""
    for join in statement.find_all(exp.Join):
        starts = [node.meta["start"] for node in join.this.walk() if "start" in node.meta]
        if join.kind == "CROSS" and starts:
            before = [token for token in tokens if token.start < min(starts)]
            last = next(one for one in reversed(before) if one.token_type in (TokenType.COMMA, TokenType.JOIN))
            if last.token_type == TokenType.COMMA:
                join.set("kind", None)
    return statement


def _renamed(statement: exp.Expr) -> exp.Expr:
    top = exp.Paren(this=statement)
    for node in list(top.find_all(exp.Anonymous)):
        if node.name.lower() == _STAND_IN:
            node.set("this", _WINDOW)
            if len(node.expressions) > 1:
                moment, length, *more = node.expressions
                node.replace(TimeWindow(this=moment, expression=length, expressions=more))
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def check_tokens(text: str, refuse: RefuseAt) -> None:
    """Refuse stray commas, adjacent string literals, wrong numbers of arguments, and patterns of date_format."""
    tokens = sqlglot.tokenize(text, read="spark")
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.COMMA and after.token_type in (TokenType.COMMA, TokenType.FROM):
            what = f"not SQL: {after.text} after a comma"
            refuse(after.line - 1, after.col, what, "a column after each comma")
        if token.token_type == after.token_type == TokenType.STRING:
            # Spark reads '' within a text as a quote, sqlglot as the end of one text and the start of another
            what = f"two texts side by side: '{token.text}' '{after.text}'"
            refuse(after.line - 1, after.col, what, "a quote as \\', texts joined by ||")
    _check_patterns(tokens, refuse)
    _check_backslashes(text, tokens, refuse)
    _check_lengths(tokens, refuse)
    _check_arguments(tokens, refuse)


def _check_backslashes(text: str, tokens: Sequence[Token], refuse: RefuseAt) -> None:
    """Refuse `\\d` in a query with regular expressions: Spark reads it as the letter d, unless it is written twice."""
    if not any(token.text.lower() in _REGULAR and token.token_type != TokenType.STRING for token in tokens):
        return
    for token in tokens:
        written = text[token.start : token.end + 1] if token.token_type == TokenType.STRING else ""
        if (found := re.search(r"(?<!\\)(?:\\\\)*(\\[dswDSWbB.*+?|(){}^$\[\]-])", written)) is not None:
            what = f"{found[1]} in {written}, which means {found[1][1:]} without the backslash"
            refuse(token.line - 1, token.col - len(written) + 1, what, f"\\{found[1]}, or r{written}")


def _check_arguments(tokens: Sequence[Token], refuse: RefuseAt) -> None:
    """Check the number of arguments of each call of a known function, because sqlglot drops some when it parses."""
    for i, (token, after) in enumerate(pairwise(tokens)):
        if token.text.lower() not in ARITY or after.token_type != TokenType.L_PAREN:
            continue
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue  # a text, or a quoted name
        depth, count, words = 0, 0, False
        for inner in tokens[i + 1 :]:
            if inner.token_type == TokenType.R_PAREN:
                depth -= 1
                if depth == 0:
                    break
            elif depth == 1:
                count += inner.token_type == TokenType.COMMA or count == 0
                words |= inner.text.upper() in ("FROM", "IN") and inner.token_type != TokenType.STRING
            depth += inner.token_type == TokenType.L_PAREN
        if (found := wrong_arity(token.text, count, words=words)) is not None:
            refuse(token.line - 1, token.col - len(token.text) + 1, *found)


def _check_lengths(tokens: Sequence[Token], refuse: RefuseAt) -> None:
    """Refuse `AS VARCHAR(9)` in a CAST: Spark ignores the length, and sqlglot drops it when it parses."""
    for as_, type_, bracket, length in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        sized = type_.text.upper() in ("CHAR", "VARCHAR", "CHARACTER", "NCHAR", "NVARCHAR")
        if as_.token_type == TokenType.ALIAS and sized and bracket.token_type == TokenType.L_PAREN:
            expected = f"CAST(… AS STRING), or left(CAST(… AS STRING), {length.text}), which cuts"
            what = f"CAST to {type_.text.upper()}({length.text}), whose length Spark ignores"
            refuse(type_.line - 1, type_.col - len(type_.text) + 1, what, expected)


def _check_patterns(tokens: Sequence[Token], refuse: RefuseAt) -> None:
    """Check the patterns of date_format in the original text, because sqlglot changes patterns when it parses them."""
    for i, token in enumerate(tokens[:-1]):
        name = token.text.lower()
        if name not in _PATTERNS or tokens[i + 1].token_type != TokenType.L_PAREN:
            continue
        depth, last, commas = 0, tokens[i + 1], 0
        for after in tokens[i + 1 :]:
            depth += (after.token_type == TokenType.L_PAREN) - (after.token_type == TokenType.R_PAREN)
            if depth == 0:
                break
            commas += depth == 1 and after.token_type == TokenType.COMMA
            last = after
        quotes = 2 * (last.token_type == TokenType.STRING)
        if not commas or (quotes and re.fullmatch(_PATTERNS[name], last.text)):
            continue
        if quotes and name == "date_format" and "%" in last.text and spark_pattern(last.text):
            continue  # one of MySQL's
        expected = f"of yyyy MM dd HH mm ss and - / : . _ and blanks: '{pattern_for(last.text)}'"
        shown = f"'{last.text}'" if quotes else last.text
        column = last.col - len(last.text) - quotes + 1
        refuse(last.line - 1, column, f"pattern {shown} of {name}", expected)


def statement_of(topology: Topology, table: Table, never_null: NeverNull | None = None) -> exp.Expr:
    """Return the statement of a query. Raises TopologyError if it is not SQL, or several statements."""

    def refuse_at(line: int, column: int, what: str, expected: str) -> NoReturn:
        refuse(topology, Place(table=table.name, line=line, column=column), what, expected)

    try:
        check_tokens(table.query, refuse_at)
        statements = statements_of(table.query, table.row_key, never_null)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = f"not SQL: {first.get('description', error)}".rstrip(".")
        refuse_at((first.get("line") or 1) - 1, first.get("col") or 1, what, FORM)
    except SqlglotError as error:
        refuse_at(0, 1, f"not SQL: {error}".replace("\n", " "), FORM)
    if len(statements) != 1 or statements[0] is None:
        refuse_at(0, 1, "not one statement", "one SELECT")
    return statements[0]


def without_effect(topology: Topology, table: Table) -> list[tuple[str, str]]:
    """Return what a query contains in vain, as (finding, remedy). Raises TopologyError as `statement_of` does."""
    statement_of(topology, table)
    (written,) = written_statements(table.query)
    if written is None or not any(map(unused_order, written.find_all(exp.Query))):
        return []
    remedy = "remove it; or write ORDER BY … LIMIT 10, if the table shall have only the first rows"
    return [("ORDER BY without LIMIT has no effect, as rows are stored in the order of row_key", remedy)]
