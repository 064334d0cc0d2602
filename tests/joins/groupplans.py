"""Handmade plans with several fragments: the input of a grouping is compiled from a SELECT, the grouping is data.

The specification and the kernel must support these shapes whatever the compiler produces: groups over a table, over
lookup joins and multi-way joins, over other groups, a group of everything, a group that is joined back, one that is a
root with joins of its own, and branches of a union. `answer` is the same in DuckDB's SQL, over tables with the sources'
names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

from cdc.model.types import LogicalType, list_of
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Bag, Grouping, Result, Total
from joins.query.nodes import Derived, Expression, LookupJoin, Node, PlanSource
from joins.query.plan import MULTI_JOIN, SINK, Finish, Fragment, Output, Plan, steps_of
from joins.query.value_types import DATE, FLOAT64, INT32, INT64, STRING
from tests.joins.joincase import Case
from tests.joins.joinrandom import value_of

TABLES: dict[str, dict[str, Any]] = {
    "shop.orders": {
        "key": ["id"], "id": "int", "customer_id": "int?", "kind": "varchar(9)", "n": "int?", "amount": "decimal(6,2)?",
        "weight": "double?", "day": "date?", "seen": "datetime(3)?", "unused": "int",
    },
    "shop.customers": {"key": ["id"], "id": "int", "region_id": "int?", "name": "varchar(9)?", "unused": "int"},
    "shop.regions": {"key": ["id"], "id": "int", "name": "varchar(9)?", "unused": "int"},
}  # fmt: skip
MONEY = LogicalType(kind="decimal", precision=16, scale=2)
MEAN = LogicalType(kind="decimal", precision=16, scale=6)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An aggregate function: `of` names columns of the SELECT below; the last one is its argument."""

    function: str
    of: tuple[str, ...] = ()
    type: LogicalType = INT64
    needed: int = 1
    given: tuple[str, ...] = ()
    descending: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """A plan, the case whose tables it reads, and its answer."""

    name: str
    plan: Plan
    answer: str

    def case(self, seed: int) -> Case:
        """Return its tables with a random history."""
        topics = {source.table_id.table for source in self.plan.sources}
        tables = {name: columns for name, columns in TABLES.items() if name.partition(".")[2] in topics}
        return Case(tables=tables, query="", row_key=[], history=list(history(sorted(tables), seed)), name=self.name)


def history(tables: Sequence[str], seed: int) -> Iterator[list[Any]]:
    """Yield words of `joincase` that put and delete rows; there are few keys and values, so that rows meet."""
    chance = random.Random(seed)
    for _ in range(chance.randint(5, 60)):
        table = chance.choice(tables)
        types = {name: type_ for name, type_ in TABLES[table].items() if name != "key"}
        row = {name: value_of(type_, chance) for name, type_ in types.items()}
        row["id"] = chance.randint(1, 9 if table == "shop.orders" else 4)
        dice = chance.random()
        if dice < 0.03:
            yield ["truncate", table]
        elif dice < 0.07:
            yield ["quiet"]
        elif dice < 0.09:
            yield ["snapshot", table, [{"id": chance.randint(1, 9)} for _ in range(chance.randint(0, 4))]]
        elif dice < 0.28:
            yield ["delete", table, {"id": row["id"]}]
        else:
            yield ["put", table, row]
            if chance.random() < 0.15:
                yield ["put", table, {**row, "unused": chance.randint(5, 9)}]


def below(name: str, query: str) -> Plan:
    """Return the plan of a SELECT whose rows will be grouped; it names the row key `id`."""
    return Case(tables=TABLES, query=query, row_key=["id"], history=[], name=name).plan()


def named(plan: Plan) -> dict[str, int]:
    """Return each column's index among the values that `Finish` leaves."""
    return {output.name: output.index for output in plan.outputs}


def grouping(
    plan: Plan, keys: Sequence[str], wanted: Sequence[Wanted], numbers: Iterator[int], always: str | None = None
) -> Grouping:
    """Return the grouping of a plan's rows by some columns; functions over the same values share a total or a bag."""
    places, types = named(plan), {output.name: output.type for output in plan.outputs}
    arguments = list(dict.fromkeys(name for one in wanted for name in one.of))
    totals: list[Total] = []
    bags: list[Bag] = []
    results = []
    for one in wanted:
        of = 0
        reads = BY_NAME[one.function].reads
        if reads == "total":
            of = _shared(totals, Total(argument=arguments.index(one.of[0]), type=types[one.of[0]]))
        elif reads == "bag":
            bag = Bag(
                arguments=tuple(arguments.index(name) for name in one.of),
                types=tuple(types[name] for name in one.of),
                needed=one.needed,
                descending=one.descending or (False,) * len(one.of),
            )
            of = _shared(bags, bag)
        text = f"{one.function}({one.of})"
        results.append(Result(function=one.function, of=of, type=one.type, text=text, given=one.given))
    return Grouping(
        change_detector=next(numbers),
        number=next(numbers),
        keys=tuple(places[name] for name in keys),
        key_types=tuple(types[name] for name in keys),
        arguments=tuple(places[name] for name in arguments),
        totals=tuple(totals),
        bags=tuple(bags),
        results=tuple(results),
        always=always,
    )


def _shared(known: list[Any], one: Any) -> int:
    if one not in known:
        known.append(one)
    return known.index(one)


def derived(alias: str, group: Grouping, fragments: tuple[int, ...], change_detector: int | None = None) -> Node:
    """Return a node that reads a grouping's rows: `k0`, `k1`, …, then `r0`, `r1`, …"""
    types = (*group.key_types, *(result.type for result in group.results))
    return node(alias, types, len(group.keys), fragments, change_detector)


def node(
    alias: str, types: Sequence[LogicalType], keys: int, fragments: tuple[int, ...], change_detector: int | None = None
) -> Node:
    """Return a node that reads rows of other fragments, of which the first `keys` values are the key."""
    return Node(
        alias=alias,
        source=Derived(fragments=fragments, change_detector=change_detector),
        columns=tuple(f"k{i}" if i < keys else f"r{i - keys}" for i in range(len(types))),
        types=tuple(types),
        id_columns=tuple(range(keys)),
        filter=None,
        lookups=(),
    )


def outputs(root: Node) -> tuple[Output, ...]:
    """Return all values of its whole rows; the key of a root that is a group may be NULL."""
    names = [f"{one.alias}_{name}" for one in root.walk() for name in one.columns]
    keys = root.id_columns if isinstance(root.source, Derived) else ()
    return tuple(
        Output(name=name, type=type_, index=index, origin=name, nullable=index in keys)
        for index, (name, type_) in enumerate(zip(names, root.flat_types(), strict=True))
    )


def result(root: Node, number: int, stars: Iterator[int], where: Expression | None = None) -> Fragment:
    """Return the last fragment: the rows of a node unchanged, or those for which `where` holds."""
    finish = Finish(types=root.flat_types(), computed=(), where=where, outputs=outputs(root))
    steps = steps_of(root, SINK, stars)
    return Fragment(number=number, root=root, steps=steps, finish=finish, group=None, target=SINK)


def part(plan: Plan, number: int, target: int, group: Grouping | None = None) -> Fragment:
    """Return the only fragment of a compiled plan as one of several; its lookups keep their numbers."""
    of = plan.last
    outlet = target if group is None else group.change_detector
    steps = tuple(replace(step, target=outlet) if step.target == SINK else step for step in of.steps)
    finish = replace(of.finish, outputs=())
    return Fragment(number=number, root=of.root, steps=steps, finish=finish, group=group, target=target)


def together(plan: Plan, fragments: Sequence[Fragment], *others: Plan) -> Plan:
    """Return a plan of these fragments, over the sources of the plans that they were made of."""
    last = fragments[-1].tree
    names = tuple(f"{last.alias}_{last.columns[i]}" for i in last.id_columns)
    sources: dict[str, PlanSource] = {}
    for one in (source for of in (plan, *others) for source in of.sources):
        sources[one.topic] = _both(sources[one.topic], one) if one.topic in sources else one
    sink = replace(plan.sink, row_key=names)
    return Plan(fragments=tuple(fragments), sources=tuple(sources.values()), sink=sink)


def _both(one: PlanSource, other: PlanSource) -> PlanSource:
    order = [name for name in TABLES[f"{one.table_id.source}.{one.table_id.table}"] if name != "key"]
    types = dict(zip((*one.columns, *other.columns), (*one.types, *other.types), strict=True))
    columns = tuple(sorted(types, key=order.index))
    defaults = (None,) * len(columns)
    return replace(one, columns=columns, types=tuple(types[name] for name in columns), defaults=defaults)


def over(
    name: str,
    query: str,
    keys: Sequence[str],
    wanted: Sequence[Wanted],
    answer: str,
    *,
    having: Expression | None = None,
    always: str | None = None,
) -> GroupPlan:
    """Return a plan with one grouping over a SELECT."""
    plan = below(name, query)
    numbers = count(len(list(plan.last.tree.walk())) - 1)
    group = grouping(plan, keys, wanted, numbers, always)
    last = result(derived("g", group, (0,)), 1, iter(range(MULTI_JOIN, SINK)), having)
    made = together(plan, [part(plan, 0, SINK, group), last])
    return GroupPlan(name=name, plan=made, answer=answer)


SHARES = ("0", "0.3", "0.123456789", "1")
EVERYTHING = [
    Wanted(function="count_rows"),
    Wanted(function="count", of=("n",)),
    Wanted(function="sum", of=("n",)),
    Wanted(function="avg", of=("n",), type=FLOAT64),
    Wanted(function="sum", of=("amount",), type=MONEY),
    Wanted(function="avg", of=("amount",), type=MEAN),
    Wanted(function="sum", of=("weight",), type=FLOAT64),
    Wanted(function="avg", of=("weight",), type=FLOAT64),
    Wanted(function="count_distinct", of=("n",)),
    Wanted(function="count_distinct", of=("n", "day"), needed=2),
    Wanted(function="sum_distinct", of=("n",)),
    Wanted(function="avg_distinct", of=("n",), type=FLOAT64),
    Wanted(function="min", of=("amount",), type=LogicalType(kind="decimal", precision=6, scale=2)),
    Wanted(function="max", of=("seen",), type=LogicalType(kind="datetime")),
    Wanted(function="min", of=("weight",), type=FLOAT64),
    Wanted(function="max_by", of=("weight", "id"), type=INT32),
    Wanted(function="min_by", of=("id", "day"), type=LogicalType(kind="date")),
    Wanted(function="collect_list", of=("id", "day"), type=list_of(DATE), needed=0, descending=(True, False)),
    Wanted(function="collect_set", of=("n",), type=list_of(INT32)),
    Wanted(function="mode", of=("kind",), type=STRING),
    Wanted(function="mode", of=("day",), type=LogicalType(kind="date")),
    *(
        Wanted(function=function, of=(name,), type=FLOAT64)
        for function in ("median", "stddev_samp", "stddev_pop", "var_samp", "var_pop")
        for name in ("n", "amount", "weight")
    ),
    *(
        Wanted(function="percentile", of=(name,), type=FLOAT64, given=(share,))
        for share in SHARES
        for name in ("n", "amount", "weight")
    ),
    *(Wanted(function="percentile_disc", of=(name,), type=FLOAT64, given=("0.4",)) for name in ("n", "amount")),
    Wanted(function="percentile_approx", of=("day",), type=LogicalType(kind="date"), given=("0.75",)),
    Wanted(function="string_agg", of=("id", "kind"), type=STRING, needed=0, descending=(True, False), given=('"; ',)),
    Wanted(function="string_agg_distinct", of=("kind",), type=STRING, given=("",)),
]
_STATISTICS = ", ".join(
    f"{function}(CAST({name} AS DOUBLE))"
    for function in ("median", "stddev_samp", "stddev_pop", "var_samp", "var_pop")
    for name in ("n", "amount", "weight")
)
_PERCENTILES = ", ".join(
    f"quantile_cont(CAST({name} AS DOUBLE), {share})" for share in SHARES for name in ("n", "amount", "weight")
)
_ROWS = "o.id, o.kind, o.customer_id, o.n, o.amount, o.weight, o.day, o.seen"
_SQL = f"""
    count(*), count(n), sum(n), avg(n), sum(amount), CAST(avg(amount) AS DECIMAL(16, 6)), sum(weight), avg(weight),
    count(DISTINCT n), count(DISTINCT CASE WHEN n IS NOT NULL AND day IS NOT NULL THEN (n, day) END), sum(DISTINCT n),
    avg(DISTINCT n), min(amount), max(seen), min(weight),
    (list(id ORDER BY weight DESC, id DESC) FILTER (weight IS NOT NULL))[1], arg_min_null(day, id),
    coalesce(list(day ORDER BY id DESC) FILTER (day IS NOT NULL), []),
    coalesce(list(DISTINCT n ORDER BY n) FILTER (n IS NOT NULL), []),
    mode(kind ORDER BY kind), mode(day ORDER BY day), {_STATISTICS}, {_PERCENTILES},
    quantile_disc(CAST(n AS DOUBLE), 0.4), quantile_disc(CAST(amount AS DOUBLE), 0.4), quantile_disc(day, 0.75),
    string_agg(kind, '"; ' ORDER BY id DESC, kind), string_agg(DISTINCT kind, '' ORDER BY kind)
"""


@cache
def group_plans() -> dict[str, GroupPlan]:
    """Return all plans by name."""
    kinds = over(
        "kinds", f"SELECT {_ROWS} FROM shop.orders o WHERE o.n IS NULL OR o.n < 4", ["kind"], EVERYTHING,
        f"SELECT kind, {_SQL} FROM orders WHERE n IS NULL OR n < 4 GROUP BY kind",
    )  # fmt: skip
    customers = over(
        "customers", f"SELECT {_ROWS} FROM shop.orders o", ["customer_id", "kind"],
        [Wanted(function="count_rows"), Wanted(function="sum", of=("amount",), type=MONEY)],
        "SELECT customer_id, kind, count(*), sum(amount) FROM orders GROUP BY ALL",
    )  # fmt: skip
    lookup = over(
        "hop",
        "SELECT o.id, coalesce(c.name, 'none') AS name, o.n FROM shop.orders o "
        "LEFT JOIN shop.customers c ON c.id = o.customer_id", ["name"],
        [Wanted(function="count", of=("n",)), Wanted(function="max", of=("n",), type=INT32)],
        "SELECT coalesce(c.name, 'none') AS name, count(n), max(n) FROM orders o LEFT JOIN customers c "
        "ON c.id = o.customer_id GROUP BY 1",
    )  # fmt: skip
    star = over(
        "star",
        "SELECT o.id, o.kind, c.name, r.name AS region FROM shop.orders o "
        "JOIN shop.customers c ON c.id = o.customer_id LEFT JOIN shop.regions r ON r.id = o.n", ["kind"],
        [Wanted(function="count_rows"), Wanted(function="collect_list", of=("name",), type=list_of(STRING)),
         Wanted(function="count_distinct", of=("region",))],
        "SELECT kind, count(*), coalesce(list(c.name ORDER BY c.name) FILTER (c.name IS NOT NULL), []), "
        "count(DISTINCT r.name) FROM orders o JOIN customers c ON c.id = o.customer_id "
        "LEFT JOIN regions r ON r.id = o.n GROUP BY kind",
    )  # fmt: skip
    having = over(
        "having", f"SELECT {_ROWS} FROM shop.orders o", ["kind"],
        [Wanted(function="sum", of=("n",)), Wanted(function="min", of=("day",), type=LogicalType(kind="date"))],
        "SELECT kind, sum(n), min(day) FROM orders GROUP BY kind HAVING sum(n) > 4",
        having=Expression(sql="{1} > 4", failed=None, type=LogicalType(kind="bool"), text="sum(n) > 4"),
    )  # fmt: skip
    every = over(
        "every", "SELECT o.id, 'all' AS scope, o.n, o.weight FROM shop.orders o WHERE o.n > 1", ["scope"],
        [Wanted(function="count_rows"), Wanted(function="sum", of=("n",)),
         Wanted(function="max", of=("weight",), type=FLOAT64)],
        "SELECT 'all', count(*), sum(n), max(weight) FROM orders WHERE n > 1", always='"all"',
    )  # fmt: skip
    made = [kinds, customers, lookup, star, having, every, _nested(), _joined_back(), _root(), _union()]
    return {plan.name: plan for plan in made}


def _nested() -> GroupPlan:
    """Return groups over groups: the number of kinds per number of orders."""
    plan, numbers, stars = below("nested", f"SELECT {_ROWS} FROM shop.orders o"), count(), iter(range(MULTI_JOIN, SINK))
    wanted = [Wanted(function="count_rows"), Wanted(function="sum", of=("n",))]
    lower = grouping(plan, ["kind"], wanted, numbers)
    middle = derived("g", lower, (0,))
    finish = Finish(types=middle.types, computed=(), where=None, outputs=())
    upper = Grouping(
        change_detector=next(numbers), number=next(numbers), keys=(1,), key_types=(INT64,), arguments=(2, 0),
        totals=(Total(argument=0, type=INT64),),
        bags=(Bag(arguments=(1,), types=(STRING,), needed=1, descending=(False,)),),
        results=(
            Result(function="count_rows", of=0, type=INT64, text="count(*)"),
            Result(function="sum", of=0, type=INT64, text="sum(s)"),
            Result(function="collect_list", of=0, type=list_of(STRING), text="collect_list(kind)"),
        ),
        always=None,
    )  # fmt: skip
    between = Fragment(number=1, root=middle, steps=(), finish=finish, group=upper, target=SINK)
    last = result(derived("h", upper, (1,)), 2, stars)
    made = together(plan, [part(plan, 0, upper.change_detector, lower), between, last])
    answer = "SELECT c, count(*), sum(s), list(kind ORDER BY kind) FROM (SELECT kind, count(*) AS c, sum(n) AS s "
    return GroupPlan(name="nested", plan=made, answer=answer + "FROM orders GROUP BY kind) GROUP BY c")


def _joined_back() -> GroupPlan:
    """Return `customers LEFT JOIN (SELECT customer_id, … GROUP BY customer_id)`: a leaf with the group's key."""
    orders = below("back", "SELECT o.id, o.customer_id, o.n FROM shop.orders o WHERE o.customer_id > 0")
    customers = below("back", "SELECT c.id, c.name FROM shop.customers c")
    numbers, stars = count(1), iter(range(MULTI_JOIN, SINK))
    wanted = [Wanted(function="count_rows"), Wanted(function="sum", of=("n",))]
    group = grouping(orders, ["customer_id"], wanted, numbers)
    root = customers.last.tree
    lookup = LookupJoin(
        number=0, columns=root.id_columns, inner=False, child=derived("g", group, (0,)), offset=len(root.columns)
    )
    last = result(replace(root, lookups=(lookup,)), 1, stars)
    made = together(orders, [part(orders, 0, 0, group), last], customers)
    answer = (
        "SELECT c.id, c.name, g.* FROM customers c LEFT JOIN (SELECT customer_id, count(*), sum(n) FROM orders "
        "WHERE customer_id > 0 GROUP BY customer_id) g ON g.customer_id = c.id"
    )
    return GroupPlan(name="back", plan=made, answer=answer)


def _root() -> GroupPlan:
    """Return `(SELECT … GROUP BY kind, customer_id) g JOIN customers LEFT JOIN regions`: a root with joins."""
    orders = below("root", "SELECT o.id, o.kind, o.customer_id, o.n FROM shop.orders o WHERE o.customer_id > 0")
    customers = below("root", "SELECT c.id, c.name FROM shop.customers c")
    regions = below("root", "SELECT r.id, r.name FROM shop.regions r")
    numbers, stars = count(2), iter(range(MULTI_JOIN, SINK))
    wanted = [Wanted(function="count_rows"), Wanted(function="min", of=("n",), type=INT32)]
    group = grouping(orders, ["kind", "customer_id"], wanted, numbers)
    change_detector = next(numbers)
    root, near = derived("g", group, (0,), change_detector), customers.last.tree
    lookups = (
        LookupJoin(number=0, columns=(1,), inner=True, child=near, offset=root.width),
        LookupJoin(number=1, columns=(3,), inner=False, child=regions.last.tree, offset=root.width + near.width),
    )
    last = result(replace(root, lookups=lookups), 1, stars)
    made = together(orders, [part(orders, 0, change_detector, group), last], customers, regions)
    answer = (
        "SELECT g.*, c.id, c.name, r.id, r.name FROM (SELECT kind, customer_id, count(*), min(n) AS m FROM orders "
        "WHERE customer_id > 0 GROUP BY ALL) g JOIN customers c ON c.id = g.customer_id "
        "LEFT JOIN regions r ON r.id = g.m"
    )
    return GroupPlan(name="root", plan=made, answer=answer)


def _union() -> GroupPlan:
    """Return rows of two tables, distinguished by their tags, grouped together."""
    orders = below("union", "SELECT o.id, o.kind, o.n, o.amount FROM shop.orders o WHERE o.amount > 1")
    customers = below("union", "SELECT c.id, coalesce(c.name, 'none') AS name, c.region_id FROM shop.customers c")
    numbers, stars = count(), iter(range(MULTI_JOIN, SINK))
    types = (INT32, STRING, INT32)
    both = node("u", types, 1, (0, 1))
    finish = Finish(types=types, computed=(), where=None, outputs=())
    group = Grouping(
        change_detector=next(numbers), number=next(numbers), keys=(1,), key_types=(STRING,), arguments=(2,),
        totals=(Total(argument=0, type=INT32),), bags=(),
        results=(
            Result(function="count_rows", of=0, type=INT64, text="count(*)"),
            Result(function="sum", of=0, type=INT64, text="sum(n)"),
        ),
        always=None,
    )  # fmt: skip
    fragments = []
    for number, (of, names) in enumerate([(orders, ["id", "kind", "n"]), (customers, ["id", "name", "region_id"])]):
        places = named(of)
        made = part(of, number, group.change_detector)
        fragments.append(replace(made, picks=tuple(places[name] for name in names), tag=str(number)))
    grouped = Fragment(number=2, root=both, steps=(), finish=finish, group=group, target=SINK)
    last = result(derived("g", group, (2,)), 3, stars)
    plan = together(orders, [*fragments, grouped, last], customers)
    answer = (
        "SELECT kind, count(*), sum(n) FROM (SELECT kind, n FROM orders WHERE amount > 1 UNION ALL "
        "SELECT coalesce(name, 'none'), region_id FROM customers) GROUP BY kind"
    )
    return GroupPlan(name="union", plan=plan, answer=answer)
