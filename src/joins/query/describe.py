"""Describe a plan as text and as JSON, for `tailorbird explain`. `joins.query.drawing` draws a plan as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from cdc.model.types import Canonical
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Grouping, Temporal
from joins.query.nodes import EVERY, Derived, Interval, LookupJoin, Node, Pair, Root
from joins.query.plan import Fragment, KeyedJoin, Plan, Step


def condition_of(node: Node, lookup: LookupJoin) -> str:
    """Return the ON condition of a lookup join of `node`, as SQL text."""
    child = lookup.child
    theirs = [f"{node.alias}.{node.columns[n]}" for n in lookup.columns] + [shown(one) for one in lookup.constants]
    pairs = zip(child.id_columns, theirs, strict=True)
    return " AND ".join(f"{child.alias}.{child.columns[c]} = {one}" for c, one in pairs)


def shown(constant: Canonical) -> str:
    """Return a constant as an SQL literal."""
    return exp.convert(constant).sql("spark")


def key_of(fragment: Fragment, group: Grouping) -> str:
    """Return the names of the values that a fragment's rows are grouped by, as text."""
    origins = {output.index: output.origin for output in fragment.finish.outputs}
    return ", ".join(origins[index] for index in group.keys)


def first_of(fragment: Fragment, group: Grouping) -> str:
    """Describe which rows of each group belong to the result, for a query with ROW_NUMBER() and a limit."""
    assert group.top is not None
    rows = "row" if group.top.most == 1 else f"{group.top.most} rows"
    return f"the first {rows} by {_order(fragment, group, group.top.ordered)}"


def windows_of(fragment: Fragment, group: Grouping) -> str:
    """Describe the window functions of a group, and the order of its rows."""
    assert group.windows is not None
    order = _order(fragment, group, group.windows.ordered)
    functions = ", ".join(dict.fromkeys(function.text for function in group.windows.functions))
    return f"{functions} over rows by {order}" if order else f"{functions} over all rows"


def _order(fragment: Fragment, group: Grouping, values: int) -> str:
    """Return the first values of a group's bag, by which its tuples are ordered, as SQL text."""
    origins = {output.index: output.origin for output in fragment.finish.outputs}
    (bag,) = group.bags
    return ", ".join(origins[group.arguments[i]] + (" DESC" if bag.descending[i] else "") for i in range(values))


def read_by(plan: Plan, node: Node) -> str:
    """Describe what a node reads: a captured table or earlier fragments, and which columns."""
    if not isinstance(node.source, Derived):
        return f"{node.of} ({', '.join(node.columns)})"
    rows = _rows(plan, node.source)
    return f"{rows} ({', '.join(node.columns)})" if node.alias else rows


def _rows(plan: Plan, source: Derived) -> str:
    """Describe the fragments that `source` reads, by the numbers that are shown to the user.

    A fragment that only passes rows on is replaced by the fragments that it reads."""
    reported = [fragment.number for fragment in _reported(plan)]
    numbers = [reported.index(_first(plan, number)) + 1 for number in source.fragments]
    return "rows " + " and ".join(map(str, numbers))


def _first(plan: Plan, number: int) -> int:
    fragment = plan.fragments[number]
    root = fragment.root
    if isinstance(root, Node) and isinstance(root.source, Derived) and _passes(fragment):
        return _first(plan, root.source.fragments[0])
    return number


def _passes(fragment: Fragment) -> bool:
    """Return whether a fragment only passes on the rows that it reads, without joins, expressions or groups."""
    root = fragment.root
    if not isinstance(root, Node) or not isinstance(root.source, Derived):
        return False
    if len(root.source.fragments) > 1 or root.source.change_detector is not None:
        return False
    return not fragment.steps and fragment.finish.plain and fragment.group is None and fragment.temporal is None


def _reported(plan: Plan) -> list[Fragment]:
    return [fragment for fragment in plan.fragments if fragment is plan.last or not _passes(fragment)]


def _role(step: Step, fragment: Fragment) -> str:
    if isinstance(step, KeyedJoin):
        kind = "JOIN" if step.inner else "LEFT JOIN"
        kept = f"the rows of {step.of}" if step.star is None else f"which rows of {step.of} point where"
        role = f"lookup join {step.number}: {step.of} {kind} {step.right}; keeps {step.right} and {kept}"
        if _looks_up_one_row(fragment.root, step.number):
            return f"{role}; one row for all, so one task has them, and a change of it updates every row of {step.of}"
        return f"{role}, by key"
    return f"assemble: whole rows of {step.of} from {len(step.widths)} parts; keeps them, by row"


def _looks_up_one_row(root: Root, number: int) -> bool:
    """Return whether a lookup join has no column, only constants, so that all rows look up the same row."""
    lookups = [lookup for node in root.walk() for lookup in node.lookups]
    return any(lookup.number == number and not lookup.columns for lookup in lookups)


def _grouping(fragment: Fragment, group: Grouping) -> Iterator[str]:
    """Yield lines that describe the stateful steps of a grouped fragment."""
    rows = fragment.root.alias or "these"
    if fragment.retracts:
        yield f"retract: the join emits each changed row of {rows} as it was and as it is, from the rows that it keeps"
    else:
        yield f"detect {group.change_detector}: what each row of {rows} contributed; keeps it by row"
    if group.top is not None:
        yield f"aggregate {group.number}: {first_of(fragment, group)}; keeps all rows in this order, by group"
        return
    if group.windows is not None:
        yield f"aggregate {group.number}: {windows_of(fragment, group)}; keeps all rows in this order, by partition"
        yield f"  a change reads all rows of its partition{_in_one(group)}, and writes those whose values change"
        return
    kept = ["how many rows"]
    kept += [f"the sum of argument {total.argument + 1}" for total in group.totals]
    kept += [f"the values of argument {', '.join(str(n + 1) for n in bag.arguments)} in order" for bag in group.bags]
    functions = ", ".join(result.text for result in group.results) or "nothing but its being there"
    yield f"aggregate {group.number}: {functions}; keeps {', '.join(kept)}, by group"
    if whole := [result.text for result in group.results if BY_NAME[result.function].whole]:
        yield f"  a change reads all different values of its group, for {', '.join(dict.fromkeys(whole))}"


def _by_clock(temporal: Temporal) -> Iterator[str]:
    """Yield lines that describe the step of conditions on the time."""
    conditions = " AND ".join(bound.text for bound in temporal.bounds)
    yield f"live {temporal.number}: rows while {conditions}; keeps each row until its time is over, with a timer"
    yield "  a batch a second, also without changes, reads the rows whose time begins or ends, and no others"


def _in_one(group: Grouping) -> str:
    return "" if group.keys else " (there is one, in one task)"


def _differs(plan: Plan, fragment: Fragment) -> Iterator[str]:
    for node in fragment.root.walk():
        if isinstance(node.source, Derived) and node.source.change_detector is not None:
            yield f"detect {node.source.change_detector}: what {_rows(plan, node.source)} read before; keeps it by row"


def text_of_plan(plan: Plan) -> str:
    """Return the plan as several lines of text: table trees, steps by stage, expressions, and result columns."""
    lines = [f"{plan.sink.table}: {_one_row_per(plan)}, row key {', '.join(plan.sink.row_key)}", ""]
    several = len(plan.fragments) > 1
    for number, fragment in enumerate(_reported(plan), start=1):
        if several:
            title = "the result" if fragment is plan.last else f"rows {number}"
            lines += [title + _of_groups(fragment), ""]
        lines += [*_text_of_fragment(plan, fragment), ""]
    if latest := [str(source.table_id) for source in plan.sources if source.needs_latest]:
        lines += ["through `latest`, which drops what is repeated or late: " + ", ".join(latest), ""]
    if several:
        lines += [f"{commits(plan)} stateful stages: each writes its state once a batch", ""]
    lines.append("columns")
    width = max(len(output.name) for output in plan.outputs)
    lines += [f"  {o.name:{width}}  {o.type!s:14}  {o.origin}" for o in plan.outputs]
    return "\n".join([*lines, "", f"fingerprint {plan.fingerprint()}"])


def _of_groups(fragment: Fragment) -> str:
    if fragment.temporal is not None:
        return ", while conditions on the time are true"
    if fragment.group is None:
        return ""
    if fragment.group.windows is not None:
        return ", with window functions"
    return ", groups" if fragment.group.top is None else ", the first rows of groups"


def _one_row_per(plan: Plan) -> str:
    root = plan.last.root
    assert isinstance(root, Node)  # pairs are always read by another fragment
    source = root.source
    if not isinstance(source, Derived):
        return f"one row per row of {root.alias} ({root.of})"
    read = [plan.fragments[_first(plan, number)] for number in source.fragments]
    if len(read) > 1:
        return f"one row per row of {_rows(plan, source)}"
    group = read[0].group
    if group is not None and group.top is not None:
        return first_of(read[0], group) + (f" of each {key_of(read[0], group)}" if group.keys else "")
    if group is not None and group.windows is not None:
        return f"one row per row of {_named(plan, read[0])}, with window functions"
    if not isinstance(read[0].root, Node) and group is None:
        return f"one row per pair of {read[0].root.alias}"
    if group is None:
        return f"one row per row of {root.alias} ({_rows(plan, source)})"
    return "one row of all" if group.always is not None else f"one row per group by {key_of(read[0], group)}"


def _named(plan: Plan, fragment: Fragment) -> str:
    """Return the table or the rows that a fragment reads."""
    root = fragment.root
    return _rows(plan, root.source) if isinstance(root, Node) and isinstance(root.source, Derived) else root.alias


def _text_of_fragment(plan: Plan, fragment: Fragment) -> list[str]:
    root = fragment.root
    lines = list(_tree(plan, root, "", "")) if isinstance(root, Node) else _met(plan, root)
    steps = [f"  stage {step.stage}  {_role(step, fragment)}" for step in fragment.steps]
    steps = [*(f"  before   {one}" for one in _differs(plan, fragment)), *steps]
    if isinstance(root, Pair):
        steps.append(f"  stage 1  pairs {root.number}: {root.alias}; keeps both, by key")
    if isinstance(root, Interval):
        steps.append(
            f"  stage 1  Spark's join of streams: {root.alias}; keeps both until the watermark has passed them"
        )
        steps += [f"           {one}" for one in _waits(root)]
    if fragment.group is not None:
        steps += [f"  after    {one}" for one in _grouping(fragment, fragment.group)]
    if fragment.temporal is not None:
        steps += [f"  after    {one}" for one in _by_clock(fragment.temporal)]
    if steps or fragment is not plan.last or len(plan.fragments) == 1:
        lines += ["", "steps" if steps else "no stateful step", *steps]
    if fragment.finish.where is not None:
        lines += ["", f"where {fragment.finish.where.text}"]
    if fragment.group is not None and fragment.group.always is None and fragment.group.keys:
        word = "grouped" if fragment.group.windows is None else "partitioned"
        lines += ["", f"{word} by {key_of(fragment, fragment.group)}"]
    return lines


def _met(plan: Plan, root: Pair | Interval) -> list[str]:
    kind = {(False, False): "JOIN", (True, False): "LEFT JOIN", (False, True): "RIGHT JOIN", (True, True): "FULL JOIN"}
    pairs = isinstance(root, Pair)
    lines = ["pairs, many to many" if pairs else "pairs, by time", *_tree(plan, root.left, "├─ ", "│    ")]
    stays = (root.left_stays, root.right_stays if isinstance(root, Pair) else False)
    lines.append(f"└─ {kind[stays]} ON {met_on(root)}")
    return [*lines, *_tree(plan, root.right, "     ", "     ")]


def met_on(root: Pair | Interval) -> str:
    """Describe the join condition of a many-to-many join or of a join by time."""
    return pair_condition(root) if isinstance(root, Pair) else time_condition(root)


def time_condition(interval: Interval) -> str:
    """Describe the time condition of a join by time."""
    left, right = interval.left, interval.right
    meets = [
        f"{right.alias}.{right.columns[theirs]} = {left.alias}.{left.columns[own]}"
        for own, theirs in zip(interval.left_key, interval.right_key, strict=True)
    ]
    times = f"{right.alias}.{right.columns[interval.right_time]}", f"{left.alias}.{left.columns[interval.left_time]}"
    bounds = [f"{times[1]}{duration_text(micros)}" for micros in (interval.earliest, interval.latest)]
    return " AND ".join([*meets, f"{times[0]} BETWEEN {bounds[0]} AND {bounds[1]}"])


def duration_text(micros: int) -> str:
    """Format microseconds as a signed offset, in the largest unit that gives a whole number."""
    if micros == 0:
        return ""
    units = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MICROSECOND": 1}
    unit, length = next((unit, length) for unit, length in units.items() if micros % length == 0)
    return f" {'+' if micros > 0 else '-'} INTERVAL {abs(micros) // length} {unit}"


def _waits(interval: Interval) -> Iterator[str]:
    """Yield lines that say how long a join by time keeps rows and waits for late ones."""
    for node, lateness in zip(interval.walk(), interval.lateness, strict=True):
        late = duration_text(lateness * 1000).removeprefix(" + INTERVAL ") or "0 SECOND"
        yield f"{node.alias}: append-only, rows up to {late} late; later ones, updates and deletes are dead letters"
    yield "the watermark is that of the slower table: while one of them is silent, it does not advance"
    if interval.left_stays:
        yield f"rows of {interval.left.alias} without a match are emitted once it has passed their time"


def pair_condition(pair: Pair) -> str:
    """Describe the equalities of a many-to-many join."""
    meets = zip(pair.left_key, pair.right_key, strict=True)
    if pair.left.columns[pair.left_key[0]] == EVERY:
        return (
            f"TRUE: one task has all rows of both; at most {pair.most} pairs, and a change of a row touches all of its"
        )
    return " AND ".join(f"{pair.right.columns[theirs]} = {pair.left.columns[own]}" for own, theirs in meets)


def _tree(plan: Plan, node: Node, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{node.alias + '  ' if node.alias else ''}{read_by(plan, node)}"
    if node.filter is not None:
        yield f"{rest}{'│ ' if node.lookups else '  '} only rows with {node.filter.text}"
    for i, lookup in enumerate(node.lookups):
        last = i == len(node.lookups) - 1
        kind = "JOIN" if lookup.inner else "LEFT JOIN"
        yield f"{rest}{'└' if last else '├'}─ {kind} ON {condition_of(node, lookup)}"
        below = rest + ("     " if last else "│    ")
        yield from _tree(plan, lookup.child, below, below)


def commits(plan: Plan) -> int:
    """Return the number of stateful operators of a plan. Each commits its state store in every batch."""
    found = 0
    for fragment in plan.fragments:
        found += len({step.stage for step in fragment.steps}) + len(list(_differs(plan, fragment)))
        found += (2 if fragment.group is not None else 0) + (not isinstance(fragment.root, Node))
        found += fragment.temporal is not None
    return found


def json_of_plan(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON values with the content of `text_of_plan`.

    The keys `tree`, `steps` and `where` describe the last fragment, whose rows are the result."""
    return {
        "table": plan.sink.table,
        "row_key": list(plan.sink.row_key),
        **_json_fragment(plan, plan.last),
        "below": [{"rows": n, **_json_fragment(plan, one)} for n, one in enumerate(_reported(plan)[:-1], start=1)],
        "latest": [str(source.table_id) for source in plan.sources if source.needs_latest],
        "columns": [{"name": o.name, "type": str(o.type), "from": o.origin} for o in plan.outputs],
        "topics": list(plan.topics),
        "stateful_stages": commits(plan),
        "append_only": {
            str(n.of): ms for one in _intervals(plan) for n, ms in zip(one.walk(), one.lateness, strict=True)
        },
        "fingerprint": plan.fingerprint(),
    }


def _json_fragment(plan: Plan, fragment: Fragment) -> dict[str, Any]:
    group = fragment.group
    return {
        "tree": _json_root(plan, fragment.root),
        "steps": [{"stage": s.stage, "number": s.number, "does": _role(s, fragment)} for s in fragment.steps],
        "where": None if fragment.finish.where is None else fragment.finish.where.text,
        "group": None
        if group is None
        else {
            "by": key_of(fragment, group),
            "functions": [result.text for result in group.results],
            "first": None if group.top is None else first_of(fragment, group),
            "windows": None if group.windows is None else windows_of(fragment, group),
            "steps": list(_grouping(fragment, group)),
        },
        "while": [] if fragment.temporal is None else [bound.text for bound in fragment.temporal.bounds],
    }


def _intervals(plan: Plan) -> list[Interval]:
    return [fragment.root for fragment in plan.fragments if isinstance(fragment.root, Interval)]


def _json_root(plan: Plan, root: Root) -> dict[str, Any]:
    if isinstance(root, Node):
        return _json_node(plan, root)
    return {
        "pairs": [_json_node(plan, root.left), _json_node(plan, root.right)],
        "on": met_on(root),
        "stay": [root.left_stays, root.right_stays if isinstance(root, Pair) else False],
    }


def _json_node(plan: Plan, node: Node) -> dict[str, Any]:
    return {
        "alias": node.alias,
        "table": node.of if not isinstance(node.source, Derived) else _rows(plan, node.source),
        "columns": list(node.columns),
        "id": [node.columns[i] for i in node.id_columns],
        "filter": None if node.filter is None else node.filter.text,
        "joins": [
            {
                "kind": "inner" if lookup.inner else "left",
                "on": condition_of(node, lookup),
                **_json_node(plan, lookup.child),
            }
            for lookup in node.lookups
        ],
    }
