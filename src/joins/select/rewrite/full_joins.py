"""Rewrite a FULL JOIN of groups whose key is coalesced as groups of a UNION ALL, before parsing (part of stage 1).

    SELECT coalesce(a.k, b.k) AS k, a.n, b.m FROM a FULL JOIN b ON b.k = a.k
      SELECT _f.k0 AS k, _f.c0, _f.c1 FROM (
        SELECT _u.k0, max(_u.c0) AS c0, max(_u.c1) AS c1
        FROM (SELECT a.k AS k0, a.n AS c0, NULL AS c1 FROM a
              UNION ALL SELECT b.k AS k0, NULL AS c0, b.m AS c1 FROM b) _u
        GROUP BY _u.k0) _f

Each side is a query that has one row for each k, by GROUP BY or DISTINCT, and one of them excludes `k IS NULL`: NULL
equals nothing in a join, but is one group. Other joins stay as they are, also those that show both keys, and those
whose rows need no key, because only groups of them are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.query.functions.windows import TimeWindow
from joins.select.names import text_of
from joins.select.rewrite.grouping_sets import ALIAS

_ROWS, _UNION = "_f", "_u"
# of a value that is not NULL they are not NULL, either
_STRICT = (exp.TimestampTrunc, TimeWindow, exp.Year, exp.Month, exp.Day, exp.Lower, exp.Upper, exp.Paren)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
Sides = tuple[exp.Expr, exp.Expr]
NeverNull = Callable[[exp.Select, exp.Column], bool]


def with_full_joins(statement: exp.Expr, row_key: Sequence[str] = (), never_null: NeverNull | None = None) -> exp.Expr:
    """Rewrite every FULL JOIN of this form whose rows need a key, in place. `row_key` is that of the result.

    `never_null` returns whether a column of a SELECT is NOT NULL in its table, if the tables are known."""
    for select in reversed(list(statement.find_all(exp.Select))):
        joins = select.args.get("joins") or []
        if not joins or joins[0].side != "FULL" or select.args.get("from_") is None:
            continue
        if any(one.args.get("using") or one.args.get("method") for one in joins[1:]):
            continue  # they read the key by its name
        if _needs_key(select, row_key):
            _rewrite(select, joins, never_null or _unknown)
    return statement


def _needs_key(select: exp.Select, row_key: Sequence[str]) -> bool:
    """Return whether the rows of a query must have a key, for which the FULL JOIN itself has none."""
    if _has_groups(select):
        return False
    shown = {item.alias_or_name for item in select.expressions if _is_free(item.unalias())}
    numbered = any(_is_number(item.unalias()) for item in select.expressions)  # a limit makes it a key
    if row_key and (numbered or select.parent is None) and not shown & {*row_key}:
        return False
    return _read_by_key(select)


def _read_by_key(node: exp.Expr, done: tuple[str, ...] = ()) -> bool:
    """Return whether some reader of a query's rows needs their key. Groups of the rows alone need none.

    `done` are the names of WITH on the way here: a text may have a circle, which the parser refuses."""
    parent = node.parent
    distinct = isinstance(parent, exp.SetOperation) and parent.args.get("distinct")
    if isinstance(parent, exp.Exists | exp.In) or distinct:
        return False
    if isinstance(parent, exp.CTE):
        name = parent.alias
        readers = [one for one in parent.root().find_all(exp.Table) if one.name == name not in done and not one.db]
        return any(_read_by_key(one, (*done, name)) for one in readers)
    if isinstance(parent, exp.From) and isinstance(reader := parent.parent, exp.Select):
        return bool(reader.args.get("joins")) or (not _has_groups(reader) and _read_by_key(reader, done))
    return not isinstance(parent, exp.Subquery | exp.SetOperation) or _read_by_key(parent, done)


def _has_groups(select: exp.Select) -> bool:
    """Return whether the rows of a query are groups, or distinct."""
    clauses = any(select.args.get(key) is not None for key in ("group", "having", "distinct"))
    return clauses or any(any(aggregates_in(item)) for item in select.expressions)


def _is_number(item: exp.Expr) -> bool:
    return isinstance(item, exp.Window) and isinstance(item.this, exp.RowNumber)


def _is_free(item: exp.Expr) -> bool:
    """Return whether an item shows a key of either side."""
    return isinstance(item, exp.Coalesce) or (isinstance(item, exp.Column) and not item.table)


def _unknown(select: exp.Select, column: exp.Column) -> bool:
    return False


def _rewrite(select: exp.Select, joins: list[exp.Join], never_null: NeverNull) -> None:
    sides: Sides = (select.args["from_"].this, joins[0].this)
    names = tuple(side.alias_or_name for side in sides)
    pairs = _pairs(joins[0], names)
    using = {one.name.casefold() for one in joins[0].args.get("using") or ()}
    if not pairs or select.is_star or any(part.find(exp.Query) for part in _parts(select)):
        return
    columns = [one for part in _parts(select) for one in part.find_all(exp.Column)]
    if any(not one.table and one.name.casefold() not in using for one in columns) or not _shows_one(
        select, names, pairs
    ):
        return
    keys = tuple([pair[i] for pair in pairs] for i in (0, 1))
    unique = all(_one_row_each(_definition(side), names_) for side, names_ in zip(sides, keys, strict=True))
    never = [_excludes_null(_definition(side), names_, never_null) for side, names_ in zip(sides, keys, strict=True)]
    if unique and all(map(any, zip(*never, strict=True))):
        for side in sides:
            _expand_groups(_definition(side))
        _turn(select, joins, sides, pairs)


def _parts(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the parts of a query that may use its columns, except the first join and its tables."""
    yield from select.expressions
    for key in ("where", "group", "having", "qualify", "order"):
        if (part := select.args.get(key)) is not None:
            yield part
    for join in (select.args.get("joins") or [])[1:]:
        if (condition := join.args.get("on")) is not None:
            yield condition


def _pairs(join: exp.Join, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the names of the compared columns, of the left and of the right side. Empty for other conditions."""
    if (using := join.args.get("using")) is not None:
        return [(one.name, one.name) for one in using]
    found = []
    for condition in _all_of(join.args.get("on") or exp.true()):
        one, other = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else (None, None)
        if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
            return []
        if (one.table, other.table) == (names[1], names[0]):
            one, other = other, one
        if (one.table, other.table) != names:
            return []
        found.append((one.name, other.name))
    return found


def _shows_one(select: exp.Select, names: tuple[str, ...], pairs: list[tuple[str, str]]) -> bool:
    """Return whether some key is not shown as a plain column of both sides, which is a row key of other joins."""
    plain = [item.unalias() for item in select.expressions]
    shown = {(one.table, one.name.casefold()) for one in plain if isinstance(one, exp.Column) and one.table}
    both = all((names[i], pair[i].casefold()) in shown for pair in pairs for i in (0, 1))
    return any(map(_is_free, plain)) and not both


def _definition(side: exp.Expr) -> exp.Select | None:
    """Return the query that a side reads: in parentheses, or by a name of WITH."""
    if isinstance(side, exp.Subquery):
        return side.this if isinstance(side.this, exp.Select) else None
    node: exp.Expr | None = side
    while node is not None:
        named = node.args.get("with_")
        for one in named.expressions if named is not None else ():
            if isinstance(side, exp.Table) and len(side.parts) == 1 and one.alias == side.name:
                return one.this if isinstance(one.this, exp.Select) else None
        node = node.parent
    return None


def _one_row_each(query: exp.Select | None, names: list[str]) -> bool:
    if query is None:
        return False
    items = {item.alias_or_name.casefold(): (at, item.unalias()) for at, item in enumerate(query.expressions, 1)}
    wanted = {name.casefold() for name in names}
    if query.args.get("distinct") and query.args.get("group") is None:
        return not query.args["distinct"].args.get("on") and set(items) == wanted and not query.is_star
    group = query.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False
    texts = {text for name in wanted & items.keys() for text in (text_of(items[name][1]), str(items[name][0]), name)}
    return bool(group.expressions) and all(
        text_of(one) in texts or (isinstance(one, exp.Column) and not one.table and one.name.casefold() in wanted)
        for one in group.expressions
    )


def _expand_groups(query: exp.Select | None) -> None:
    """Replace names of result columns in GROUP BY by their expressions, in place.

    Each is marked: a column of the tables with this name would precede, so the binder refuses the query if there is
    one."""
    group = None if query is None else query.args.get("group")
    if query is None or group is None:
        return
    items = {item.alias_or_name.casefold(): item.unalias() for item in query.expressions}
    shown = {text_of(item) for item in items.values()}
    for one in list(group.expressions):
        name = one.name.casefold()
        if not isinstance(one, exp.Column) or one.table or text_of(one) in shown:
            continue
        if not isinstance(items[name], exp.Column) or items[name].name.casefold() != name:
            meant = items[name].copy()
            meant.meta[ALIAS] = one.name
            one.replace(meant)


def _excludes_null(query: exp.Select | None, names: list[str], never_null: NeverNull) -> list[bool]:
    """Return for each key column of a side whether a condition, or its table, excludes NULL."""
    if query is None:
        return [False for _ in names]
    items = {item.alias_or_name.casefold(): item.unalias() for item in query.expressions}
    where = query.args.get("where")
    conditions: list[exp.Expr] = [] if where is None else _all_of(where.this)
    there = {text_of(one) for condition in conditions for one in _not_null(condition)}
    found = []
    for name in names:
        item = items.get(name.casefold())
        while isinstance(item, _STRICT):
            item = item.this
        there_always = isinstance(item, exp.Column) and not query.args.get("joins") and never_null(query, item)
        found.append(item is not None and (text_of(item) in there or there_always))
    return found


def _not_null(condition: exp.Expr) -> list[exp.Expr]:
    """Return expressions that are not NULL where a condition is true."""
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
        return [condition.this.this] if isinstance(condition.this.expression, exp.Null) else []
    if isinstance(condition, exp.Between) or (isinstance(condition, exp.In) and not condition.args.get("query")):
        return [condition.this]
    return [condition.this, condition.expression] if isinstance(condition, _COMPARISONS) else []


def _turn(select: exp.Select, joins: list[exp.Join], sides: Sides, pairs: list[tuple[str, str]]) -> None:
    names = [side.alias_or_name for side in sides]
    shown: dict[tuple[str, str], str] = {}
    by_key = {
        frozenset({(names[0], pair[0].casefold()), (names[1], pair[1].casefold())}): f"k{i}"
        for i, pair in enumerate(pairs)
    }
    by_name = {pair[0].casefold(): f"k{i}" for i, pair in enumerate(pairs)}
    for item in select.expressions:  # columns keep their names
        if isinstance(item, exp.Column):
            alias = exp.Alias(alias=item.this.copy())
            item.replace(alias)
            alias.set("this", item)
    for part in list(_parts(select)):
        for node in list(part.find_all(exp.Coalesce)):
            parts = [node.this, *node.expressions]
            if len(parts) == 2 and all(isinstance(one, exp.Column) for one in parts):
                key = by_key.get(frozenset((one.table, one.name.casefold()) for one in parts))
                if key is not None:
                    node.replace(exp.column(key, table=_ROWS))
        for column in list(part.find_all(exp.Column)):
            at = (column.table, column.name.casefold())
            if not column.table and column.name.casefold() in by_name:
                column.replace(exp.column(by_name[column.name.casefold()], table=_ROWS))
            elif column.table in names:
                column.replace(exp.column(shown.setdefault(at, f"c{len(shown)}"), table=_ROWS))
    branches = []
    for number, side in enumerate(sides):
        rows = exp.select(
            *(exp.alias_(exp.column(pair[number], table=names[number]), f"k{i}") for i, pair in enumerate(pairs))
        )
        for (table, name), made in shown.items():
            value = exp.column(name, table=table) if table == names[number] else exp.Null()
            rows.append("expressions", exp.alias_(value, made))
        rows.set("from_", exp.From(this=side.copy()))
        branches.append(rows)
    both = exp.union(*branches, distinct=False, copy=False)
    keys = [exp.column(f"k{i}", table=_UNION) for i in range(len(pairs))]
    groups = exp.select(*(key.copy() for key in keys))
    for made in shown.values():
        groups.append("expressions", exp.alias_(exp.Max(this=exp.column(made, table=_UNION)), made))
    groups.set("from_", exp.From(this=_named(both, _UNION)))
    groups = groups.group_by(*keys, copy=False)
    select.set("from_", exp.From(this=_named(groups, _ROWS)))
    select.set("joins", joins[1:])


def _all_of(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that AND connects."""
    return [one.unnest() for one in condition.flatten()] if isinstance(condition, exp.And) else [condition.unnest()]


def _named(query: exp.Expr, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
