"""Read window functions: `rank() OVER (PARTITION BY … ORDER BY …)`, lag, first_value, running sums.

`joins.query.group.Windows` describes how they are computed. A window without ORDER BY reads its whole partition."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from joins.query.aggregate_functions import CALLS, function_of
from joins.query.aggregates import arguments_of, check_call
from joins.query.group import Frame, WindowKind
from joins.query.parameters import order_of
from joins.query.typed import refuse

FORM = "rank() OVER (PARTITION BY a.x ORDER BY a.y DESC) AS n"
_RANKS: dict[type[exp.Expr], WindowKind] = {
    exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank", exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist", exp.Ntile: "ntile",
}  # fmt: skip
_OFFSETS = (exp.Lag, exp.Lead)
_FIRST, _LAST = (exp.FirstValue, exp.First), (exp.LastValue, exp.Last)
_VALUES = (*_FIRST, *_LAST, exp.NthValue)
_FINISHES = ("rows", "count", "sum", "average", "first", "last")  # aggregates that rows can enter and leave in order
_FARTHEST = 2**31 - 1  # rows; no partition has more
_WHOLE = Frame(peers=False, start=None, end=None)
_RUNNING = Frame(peers=True, start=None, end=0)
_ALL = "rank, dense_rank, row_number, ntile, percent_rank, cume_dist, lag, lead, first_value, last_value, nth_value, "


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """A window function as it is written: its partition, its order, and the function.

    `order` lists expressions and whether each is descending; NULL sorts before all values. `call` is the aggregate
    function of kind `aggregate`. The other fields are as in `joins.query.group.WindowFunction`."""

    kind: WindowKind
    call: exp.Expr
    partition: tuple[exp.Expr, ...]
    order: tuple[tuple[exp.Expr, bool], ...]
    frame: Frame
    number: int = 0
    argument: exp.Expr | None = None
    default: exp.Expr | None = None
    skips: bool = False

    @property
    def needs_ties(self) -> bool:
        """Return whether rows that are equal in ORDER BY may get different values, so that their key decides."""
        return self.kind in ("row_number", "ntile", "offset", "nth") or (
            self.kind == "aggregate" and not self.frame.peers and (self.frame.start, self.frame.end) != (None, None)
        )

    def parts(self) -> tuple[exp.Expr, ...]:
        """Return the expressions that it reads, each evaluated per row."""
        given = [one for one in (self.argument, self.default) if one is not None]
        aggregated = arguments_of(self.call) if self.kind == "aggregate" else []
        return (*self.partition, *(one for one, _ in self.order), *given, *aggregated)


def windows_in(node: exp.Expr) -> list[exp.Window]:
    """Return the window functions in an expression. Those of subqueries are not included."""
    if isinstance(node, exp.Window):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [one for child in node.iter_expressions() for one in windows_in(child)]


def call_of(window: exp.Window) -> WindowCall:
    """Return a window function as it is written. Raises Unsupported for one that is not supported."""
    if window.args.get("alias") is not None:
        refuse(window, f"OVER {window.args['alias'].name}, a window with a name", FORM)
    function, skips = window.this, False
    if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
        function, skips = function.this, isinstance(function, exp.IgnoreNulls)
    order = window.args.get("order")
    ordered = () if order is None else order_of(order.expressions)
    frame = _frame_of(window, ordered=bool(ordered))
    partition = tuple(window.args.get("partition_by") or ())
    text = function.sql("spark")
    if isinstance(function, (*_RANKS, *_OFFSETS)):
        if order is None:
            refuse(window, f"{text} without ORDER BY", FORM)
        if window.args.get("spec") is not None:
            refuse(window, f"a frame of {text}, which reads its whole partition", FORM)
    if skips and not isinstance(function, (*_OFFSETS, *_VALUES)):
        refuse(window, f"IGNORE NULLS of {text}", "lag, lead, first_value, last_value or nth_value")
    if (rank := _RANKS.get(type(function))) is not None:
        number = _number(function.this, text) if isinstance(function, exp.Ntile) else 0
        return WindowCall(kind=rank, call=function, partition=partition, order=ordered, frame=_WHOLE, number=number)
    if isinstance(function, _OFFSETS):
        distance = function.args.get("offset")
        number = 1 if distance is None else _number(distance, text)
        return WindowCall(
            kind="offset", call=function, partition=partition, order=ordered, frame=_WHOLE, skips=skips,
            number=-number if isinstance(function, exp.Lag) else number, argument=function.this,
            default=function.args.get("default"),
        )  # fmt: skip
    if isinstance(function, _VALUES):
        number = -1 if isinstance(function, _LAST) else 1
        if isinstance(function, exp.NthValue):
            number = _number(function.args["offset"], text)
        return WindowCall(
            kind="nth", call=function, partition=partition, order=ordered, frame=frame, skips=skips, number=number,
            argument=function.this,
        )  # fmt: skip
    inner = function.this if isinstance(function, exp.Filter) else function
    expected = _ALL + "count, sum, avg, min, max, min_by, max_by, count_if, bool_and or bool_or, without DISTINCT"
    if not isinstance(inner, CALLS):
        refuse(window, f"{text} OVER (…) is not supported", expected)
    check_call(function, over=True)
    if function_of(inner, len(arguments_of(function))).finish not in _FINISHES:
        refuse(window, f"{text} OVER (…) is not supported", expected)
    return WindowCall(kind="aggregate", call=function, partition=partition, order=ordered, frame=frame)


def _frame_of(window: exp.Window, *, ordered: bool) -> Frame:
    spec = window.args.get("spec")
    if spec is None:
        return _RUNNING if ordered else _WHOLE
    kind = str(spec.args.get("kind")).upper()
    expected = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW, or RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        refuse(window, f"the frame {spec.sql('spark')}", expected)
    start = _limit(window, spec, "start", "PRECEDING")
    end = _limit(window, spec, "end", "FOLLOWING") if spec.args.get("end") else 0
    if kind == "RANGE" and ((start, end) not in ((None, 0), (None, None), (0, 0), (0, None))):
        refuse(window, f"the frame {spec.sql('spark')}, a range of values", expected)
    if start is not None and end is not None and start > end:
        refuse(window, f"the frame {spec.sql('spark')}, which ends before it begins", expected)
    whole = (start, end) == (None, None) or (kind == "RANGE" and not ordered)
    return _WHOLE if whole else Frame(peers=kind == "RANGE", start=start, end=end)


def _limit(window: exp.Window, spec: exp.Expr, name: str, unbounded: str) -> int | None:
    """Return a limit of a frame as a distance in rows; None without limit."""
    value, side = spec.args[name], str(spec.args.get(f"{name}_side")).upper()
    text = value if isinstance(value, str) else value.name
    if text == "UNBOUNDED" and side == unbounded:
        return None
    if text == "CURRENT ROW":
        return 0
    if isinstance(value, exp.Literal) and not value.is_string and text.isdigit():
        distance = min(int(text), _FARTHEST)
        return -distance if side == "PRECEDING" else distance
    expected = "UNBOUNDED PRECEDING, 2 PRECEDING, CURRENT ROW, 2 FOLLOWING or UNBOUNDED FOLLOWING"
    refuse(window, f"the limit {text} {side} of a frame", expected)


def _number(node: exp.Expr, text: str) -> int:
    """Return a literal number of at least 1."""
    found = int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else 0
    if not 0 < found <= _FARTHEST:
        refuse(node, f"{node.sql('spark')} in {text}", "a literal number from 1 on")
    return found
