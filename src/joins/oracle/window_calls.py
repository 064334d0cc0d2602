"""Write window functions in DuckDB's SQL, from their rewritten parts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.query.group import Frame
from joins.query.windows import WindowCall, call_of

TIES = "ties"  # in the metadata of a window: how many entries of ORDER BY were added to decide between equal rows


def split(window: exp.Window) -> tuple[WindowCall, list[exp.Expr]]:
    """Return a window function as it was written, and the ORDER BY entries that were added."""
    ties = int(window.meta.get(TIES, 0))
    if not ties:
        return call_of(window), []
    copy = window.copy()
    entries = copy.args["order"].expressions
    copy.set("order", exp.Order(expressions=entries[:-ties]) if entries[ties:] else None)
    return call_of(copy), entries[-ties:]


def over(
    call: WindowCall,
    function: exp.Expr,
    partition: Sequence[exp.Expr],
    order: Sequence[exp.Expr],
    ties: Sequence[exp.Expr],
) -> exp.Expr:
    """Return a function in which each aggregate is over a window. `order` and `ties` are ORDER BY entries.

    Equal rows are peers in the frame of a function of kind `nth`, so the ties are an order within the function."""
    within = call.kind == "nth" and call.frame.peers
    if within:
        last = "offset" if function.args.get("offset") is not None else "this"
        entries = [one.copy() for one in (*order, *ties)]
        function.set(last, exp.Order(this=function.args[last], expressions=entries))
    entries = [one.copy() for one in (order if within else (*order, *ties))]
    top = exp.Paren(this=function)
    framed = call.kind in ("nth", "aggregate")
    for node in list(aggregates_in(function)) if call.kind == "aggregate" else [function]:
        holder = exp.Placeholder()
        node.replace(holder)
        # sqlglot would drop IGNORE NULLS of the short names
        named: exp.Expr = node
        if call.kind == "nth" and isinstance(node, exp.First | exp.Last):
            named = (exp.FirstValue if isinstance(node, exp.First) else exp.LastValue)(this=node.this)
        called: exp.Expr = exp.IgnoreNulls(this=named) if call.skips else named
        window = exp.Window(
            this=called,
            partition_by=[one.copy() for one in partition],
            order=exp.Order(expressions=[one.copy() for one in entries]) if entries else None,
            spec=_spec(call.frame) if framed else None,
        )
        holder.replace(window)
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def with_expression(ordered: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Return an entry of ORDER BY with another expression."""
    copy = ordered.copy()
    copy.set("this", node)
    return copy


def _spec(frame: Frame) -> exp.WindowSpec:
    start, start_side = _limit(frame.start, "PRECEDING")
    end, end_side = _limit(frame.end, "FOLLOWING")
    return exp.WindowSpec(
        kind="RANGE" if frame.peers else "ROWS", start=start, start_side=start_side, end=end, end_side=end_side
    )


def _limit(distance: int | None, unbounded: str) -> tuple[exp.Expr | str, str]:
    if distance is None:
        return "UNBOUNDED", unbounded
    if distance == 0:
        return "CURRENT ROW", ""
    return exp.Literal.number(abs(distance)), "PRECEDING" if distance < 0 else "FOLLOWING"
