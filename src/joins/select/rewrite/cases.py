"""Write the names of tables as FROM and WITH define them, before parsing (part of stage 1). SQL ignores their case.

Columns are found in the same way when their tables are known (`joins.select.names`)."""

from __future__ import annotations

from sqlglot import exp

from joins.select.names import same_name, sources_of


def with_cases(statement: exp.Expr) -> exp.Expr:
    """Replace names of tables and WITH queries that differ only in case, in place."""
    for table in list(statement.find_all(exp.Table)):
        if len(table.parts) == 1 and (name := same_name(defined_for(table), table.name)) not in (None, table.name):
            alias = table.alias or table.name
            table.set("this", exp.to_identifier(name))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    for column in list(statement.find_all(exp.Column)):
        if not column.table:
            continue
        select = column.find_ancestor(exp.Select)
        while select is not None:
            if (name := same_name(tables_of(select), column.table)) is not None:
                if name != column.table:
                    column.set("table", exp.to_identifier(name))
                break
            select = select.find_ancestor(exp.Select)
    return statement


def defined_for(node: exp.Expr) -> list[str]:
    """Return the names of WITH that a table's name may mean. A query of WITH cannot read itself."""
    found: list[str] = []
    around: exp.Expr | None = None
    while (parent := node.parent) is not None:
        node, named = parent, parent.args.get("with_")
        around = node if isinstance(node, exp.CTE) else around
        found += [one.alias for one in named.expressions if one is not around] if isinstance(named, exp.With) else []
    return found


def tables_of(select: exp.Select) -> list[str]:
    """Return the names by which a SELECT knows its tables."""
    return [one.alias_or_name for one in sources_of(select)]
