"""Rewrite a RIGHT JOIN after other joins as a LEFT JOIN to them, before parsing (part of stage 1).

    FROM a JOIN b ON b.id = a.x RIGHT JOIN c ON c.y = a.id
      FROM c LEFT JOIN (SELECT a.id AS a_id FROM a JOIN b ON b.id = a.x) _r ON c.y = _r.a_id

All columns of the query must name their tables, because this step does not know the columns of the tables. Other
queries stay, and are refused."""

from __future__ import annotations

from sqlglot import exp

from joins.select.rewrite.cases import tables_of

_ROWS = "_r"


def with_right_joins(statement: exp.Expr) -> exp.Expr:
    """Rewrite every RIGHT JOIN after another join, in place."""
    for select in reversed(list(statement.find_all(exp.Select))):
        joins = select.args.get("joins") or []
        for number, join in enumerate(joins):
            if number and join.side == "RIGHT" and _can_turn(select, number):
                _turn(select, number)
                break  # further ones would need another round, and are refused
    return statement


def _can_turn(select: exp.Select, number: int) -> bool:
    joins = select.args["joins"]
    columns = [column for column in select.find_all(exp.Column) if column.find_ancestor(exp.Select) is select]
    plain = all(join.args.get("on") is not None for join in joins[: number + 1])
    # a USING or NATURAL after it would not see the columns of the joined rows
    plain = plain and not any(join.args.get("using") or join.args.get("method") for join in joins)
    named = {item.alias for item in select.expressions if item.alias}
    free = [one for one in columns if not one.table and not (one.name in named and one.find_ancestor(exp.Qualify))]
    return plain and not select.is_star and not free


def _turn(select: exp.Select, number: int) -> None:
    joins = select.args["joins"]
    first, before, join, after = select.args["from_"].this, joins[:number], joins[number], joins[number + 1 :]
    inside = {one.alias_or_name for one in (first, *(one.this for one in before))}
    moved = [column for column in select.find_all(exp.Column) if column.table in inside and _owner(column) is select]
    rows = exp.select().from_(first.copy())
    rows.set("joins", [one.copy() for one in before])
    for item in select.expressions:
        if isinstance(item, exp.Column):
            alias = exp.Alias(alias=item.this.copy())
            item.replace(alias)
            alias.set("this", item)
    select.set("from_", exp.From(this=join.this))
    select.set("joins", [exp.Join(on=join.args["on"], side="LEFT"), *after])
    names: dict[tuple[str, str], str] = {}
    kept = {id(column) for column in select.find_all(exp.Column)}
    for column in moved:
        if id(column) not in kept:
            continue  # it is in the subquery now
        at = (column.table, column.name.casefold())
        if at not in names:
            name = "_".join(at)
            while name in names.values():
                name += "_"
            names[at] = name
            rows.append("expressions", exp.alias_(column.copy(), name, quoted=True))
        column.replace(exp.column(names[at], table=f"{_ROWS}{number}", quoted=True))
    named = exp.TableAlias(this=exp.to_identifier(f"{_ROWS}{number}"))
    select.args["joins"][0].set("this", exp.Subquery(this=rows, alias=named))


def _owner(column: exp.Column) -> exp.Select | None:
    """Return the nearest SELECT around a column that has its table."""
    node: exp.Expr = column
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.Select) and not isinstance(node, exp.With) and column.table in tables_of(parent):
            return parent
        node = parent
    return None
