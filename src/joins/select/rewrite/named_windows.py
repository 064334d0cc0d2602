"""Write windows with a name where they are used, before parsing (part of stage 1).

    SELECT o.id, sum(o.amount) OVER w AS s FROM o WINDOW w AS (PARTITION BY o.a ORDER BY o.b)
      SELECT o.id, sum(o.amount) OVER (PARTITION BY o.a ORDER BY o.b) AS s FROM o

An unknown name stays, and is refused."""

from __future__ import annotations

from sqlglot import exp

_PARTS = ("partition_by", "order", "spec")


def with_named_windows(statement: exp.Expr) -> exp.Expr:
    """Replace the names of windows in every SELECT, in place."""
    for select in list(statement.find_all(exp.Select)):
        named: dict[str, exp.Expr] = {}
        for window in select.args.get("windows") or ():
            _written(window, named)
            named[window.name.casefold()] = window
        for window in select.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is select:
                _written(window, named)
        if not any(window.args.get("alias") for window in named.values()):
            select.set("windows", None)
    return statement


def _written(window: exp.Expr, named: dict[str, exp.Expr]) -> None:
    """Add what a window takes from the one that it names: its own ORDER BY and frame stay."""
    alias = window.args.get("alias")
    found = None if alias is None else named.get(alias.name.casefold())
    if found is None:
        return
    window.set("alias", None)
    for key in _PARTS:
        value = found.args.get(key)
        if value and not window.args.get(key):
            window.set(key, [one.copy() for one in value] if isinstance(value, list) else value.copy())
