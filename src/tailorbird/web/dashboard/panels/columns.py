"""Find the index fields of a panel's columns: for counting, summing and sorting. Build filters.

A filter becomes a Solr query. Its values are numbers, times, or separate parameters that `{!term}` takes literally.
User input is never parsed as a query."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc.stored.fields import members_field, query_field
from cdc.topology.panels import FilterOperator, PanelMeasure
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.time import instant_of, solr_instant
from tailorbird.web.dashboard.view import IndexField, Look, heading

_NAME = re.compile(r"[^\W\d]\w*")
_NUMBERS = {"pint", "plong", "pfloat", "pdouble"}
_WHOLE = re.compile(r"-?\d{1,19}")
_NUMBER = re.compile(r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?")
_LEAST = {"pint": 31, "plong": 63}
LONGEST_VALUE = 1_000


class Misfit(ValueError):
    """Raised for a column, measure or value that does not fit. `str` is the problem, `expected` the remedy."""

    def __init__(self, what: str, expected: str) -> None:
        super().__init__(what)
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelColumn:
    """A column as panels use it, with the Solr fields for each purpose.

    `counted` is for counting and filtering, `number` for sums, `ordered` for comparisons; the last two are empty if
    there is no such field. `many`: a row may have several values. `type` is Solr's type. `look` is the format for
    display."""

    name: str
    look: Look
    type: str
    counted: str
    number: str = ""
    ordered: str = ""
    many: bool = False

    @property
    def heading(self) -> str:
        return heading(self.name)

    @property
    def whole(self) -> bool:
        """Return whether the values are whole numbers. Their sums are exact up to 2^53."""
        return self.type in ("pint", "plong")


def column_of(name: str, fields: Mapping[str, IndexField]) -> PanelColumn:
    """Return the column with a name. Raises Misfit if the index does not have it."""
    plain = [known for known in fields if _NAME.fullmatch(known) and not known.startswith("_")]
    if name not in plain:
        raise Misfit(f"unknown column {name[:LONGEST_VALUE]}", "one of " + ", ".join(plain))
    field, query = fields[name], fields.get(query_field(name))
    kind = query.type if query is not None else field.type
    members = members_field(name) in fields
    number = kind in _NUMBERS and not field.many
    look: Look = "members" if members else "time" if kind == "pdate" else "number" if kind in _NUMBERS else "text"
    ordered = number or (kind == "pdate" and not field.many)
    queried = query_field(name) if query is not None else name
    return PanelColumn(
        name=name,
        look=look,
        type=field.type,
        counted=(members_field(name) if members else name) if field.counted else "",
        number=queried if number else "",
        ordered=queried if ordered else "",
        many=field.many or members,
    )


def measured(measure: PanelMeasure, column: PanelColumn | None) -> str:
    """Return a measure as a Solr aggregation. Empty for a count. Raises Misfit if the column's type does not support
    it.

    A decimal is summed as a double, so about 15 digits are right. A uint64 and a text cannot be summed."""
    if column is None:
        return ""
    function = measure.function
    if function == "unique":
        if not column.counted:
            raise Misfit(f"{measure}: column {column.name} is only stored, not counted", "a column of another type")
        return f"unique({column.counted})"
    if function in ("min", "max"):
        if not column.ordered:
            raise Misfit(f"{measure}: column {column.name} is neither number nor time", "count, unique")
        return f"{function}({column.ordered})"
    if not column.number:
        raise Misfit(f"{measure}: column {column.name} holds no numbers that Solr adds up", "count, unique")
    if function == "percentile":
        return f"percentile({column.number},{measure.percent:g})"
    return f"{function}({column.number})"


def filtered(column: PanelColumn, operator: FilterOperator, values: Sequence[str], name: str) -> Params:
    """Return a filter as Solr parameters. `name` is the parameter of the query; the names of others begin with it.

    As in SQL, a row without a value matches only `is null`. Raises Misfit for an invalid value."""
    if not column.counted and not column.ordered:
        raise Misfit(f"column {column.name} is only stored, not filtered by", "a column of another type")
    present = f"{column.counted or column.ordered}:[* TO *]"
    if operator == "is null":
        return {name: f"+*:* -{present}"}
    if operator == "is not null":
        return {name: present}
    if operator in ("<", "<=", ">", ">="):
        if not column.ordered:
            raise Misfit(f"column {column.name} is neither number nor time", "=, !=, in, not in, is null")
        value = literal_of(column, values[0])
        low = f"{'[' if operator == '>=' else '{'}{value} TO *]"
        return {name: f"{column.ordered}:" + (low if operator[0] == ">" else f"[* TO {value}{_end(operator)}")}
    params: Params = {}
    clauses = []
    for i, value in enumerate(values):
        part = f"{name}_{i}"
        params |= _equal(column, value, part)
        clauses.append(f"{'should' if operator in ('=', 'in') else 'must_not'}=${part}")
    if operator in ("!=", "not in"):
        params[f"{name}_all"] = present
        clauses.append(f"must=${name}_all")
    return {name: f"{{!bool {' '.join(clauses)}}}", **params}


def _end(operator: str) -> str:
    return "]" if operator == "<=" else "}"


def _equal(column: PanelColumn, value: str, name: str) -> Params:
    if len(value) > LONGEST_VALUE:
        raise Misfit(f"a value of {len(value)} characters for column {column.name}", f"{LONGEST_VALUE} at most")
    if column.ordered:
        literal = literal_of(column, value)
        return {name: f"{column.ordered}:[{literal} TO {literal}]"}
    if column.type == "boolean" and value not in ("true", "false"):
        raise Misfit(f"value {value!r} for column {column.name}", "true or false")
    if column.type in _NUMBERS:  # in lists, each member is a number
        value = _number(column, value)
    return {name: f"{{!term f={column.counted} v=${name}_v}}", f"{name}_v": value}


def literal_of(column: PanelColumn, value: str) -> str:
    """Return a number or time as an index stores it. Raises Misfit for an invalid value."""
    if column.look != "time":
        return _number(column, value)
    moment = moment_of(value)
    if moment is None:
        raise Misfit(
            f"value {value[:LONGEST_VALUE]!r} for column {column.name}", "a time: 2026-01-31, 2026-01-31 10:00"
        )
    return solr_instant(moment)


def _number(column: PanelColumn, value: str) -> str:
    whole = column.type in _LEAST and column.number == column.name
    if not (_WHOLE if whole else _NUMBER).fullmatch(value):
        raise Misfit(
            f"value {value[:LONGEST_VALUE]!r} for column {column.name}", "a whole number" if whole else "a number"
        )
    if whole:
        bits = _LEAST[column.type]
        if not -(2**bits) <= int(value) < 2**bits:
            raise Misfit(f"value {value} for column {column.name}", f"a number of {bits + 1} bits")
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        raise Misfit(f"value {value} for column {column.name}", "a number of 64 bits")
    return repr(number)


def moment_of(text: str) -> int | None:
    """Parse a time of a URL or a user, without a zone or in UTC, to milliseconds. None if it is invalid."""
    try:
        moment = dt.datetime.fromisoformat(text.strip().removesuffix("Z"))
    except ValueError:
        return None
    return None if moment.tzinfo is not None else instant_of(moment.isoformat() + "Z")
