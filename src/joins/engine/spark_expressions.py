"""Evaluate a plan's expressions in Spark: computed values and WHERE over whole rows, and filters of nodes.

For the stateful steps a whole row is opaque bytes. After them, this module parses its JSON once and casts each value
that an expression uses. A row leaves with its original values and the computed ones. All expressions are Spark SQL
that returns NULL on failure, so no row can end the query. A row with such a NULL also causes a dead letter."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from cdc.model.types import LogicalType
from joins.query.nodes import Expression
from joins.query.plan import SINK, Finish, Fragment
from joins.query.typed import any_of, escaped
from joins.query.value_types import family, spark_type
from joins.runtime.records import DIM_GONE, DIM_PUT, EXACT_AFTER, EXACT_BEFORE, REFUSED, ROW_GONE, ROW_PUT

# parts of a message `m` (`joins.runtime.records`): at an outlet it has no r; a whole row's time and trace precede its
# values
_VERSION, _PAYLOAD = "substring(m, 2, 8)", "substring(m, 14)"
_BASE64 = f"replace(base64({_PAYLOAD}), '\\r\\n', '')"  # Spark may break it into lines


def text_at(payload: str, begins: int = 1) -> str:
    """Return Spark SQL for the position of the values' JSON in the binary column `payload`.

    `begins` is the position at which the payload begins in that column."""
    at = begins + 8
    count = f"CAST(conv(hex(substring({payload}, {at + 1}, 1)), 16, 10) AS INT)"
    return f"IF(substring({payload}, {at}, 1) = X'00', {at + 2} + 8 * {count}, {at})"


_VALUES = f"substring(m, {text_at('m', 14)})"


def typed(values: str, index: int, type_: LogicalType) -> str:
    """Return Spark SQL for value number `index`, cast to a type. `values` is SQL of an array<string> of canonical
    values."""
    text = f"{values}[{index}]"
    match family(type_):
        case "text":
            return text
        case "bytes":
            return f"try_to_binary({text}, 'base64')"
        case "date":
            return f"try_cast(substring({text}, 1, 10) AS DATE)"
        case "moment":
            return f"try_cast(rtrim('Z', {text}) AS TIMESTAMP_NTZ)"
        case "list":
            return f"from_json({text}, '{spark_type(type_)}')"
    return f"try_cast({text} AS {spark_type(type_)})"


def bound(sql: str, values: str, types: Sequence[LogicalType]) -> str:
    """Return a plan's SQL with each `{i}` replaced by the typed value i. `values` is SQL of an array<string>."""
    return sql.format(*(typed(values, index, type_) for index, type_ in enumerate(types)))


def predicate(expression: Expression, values: str, types: Sequence[LogicalType]) -> str:
    """Return Spark SQL that is true where a condition holds, and false otherwise (also for NULL)."""
    return f"coalesce({bound(expression.sql, values, types)}, FALSE)"


def canonical(sql: str, type_: LogicalType) -> str:
    """Return Spark SQL for the JSON text of a computed value in canonical form. A date beyond year 9999 is null."""
    match family(type_):
        case "bool":
            text = f"CAST({sql} AS STRING)"
        case "number" if type_.kind in ("decimal", "uint64"):
            text = f"concat('\"', CAST({sql} AS STRING), '\"')" if type_.kind == "decimal" else f"CAST({sql} AS STRING)"
        case "number" if type_.kind.startswith("float"):
            # NaN and infinities are strings, as JSON has no such numbers
            finite = f"abs({sql}) < CAST('Infinity' AS DOUBLE)"
            text = f"IF({finite}, CAST({sql} AS STRING), concat('\"', CAST({sql} AS STRING), '\"'))"
        case "number":
            text = f"CAST({sql} AS STRING)"
        case "date":
            text = f"IF({_in_range(sql, type_)}, concat('\"', CAST({sql} AS STRING), 'Z\"'), NULL)"
        case "moment":
            text = f"IF({_in_range(sql, type_)}, concat('\"', replace(CAST({sql} AS STRING), ' ', 'T'), 'Z\"'), NULL)"
        case "bytes":
            text = f"concat('\"', replace(base64({sql}), '\\r\\n', ''), '\"')"
        case _:
            text = f"substring(to_json(array({sql})), 2, length(to_json(array({sql}))) - 2)"
    return f"coalesce({text}, 'null')"


def _in_range(sql: str, type_: LogicalType) -> str:
    """Return Spark SQL that is true for a date or moment that has a canonical form: of the years 1 to 9999."""
    if family(type_) == "date":
        return f"{sql} BETWEEN DATE'0001-01-01' AND DATE'9999-12-31'"
    first, last = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
    return f"{sql} BETWEEN TIMESTAMP_NTZ'{first}' AND TIMESTAMP_NTZ'{last}'"


def finish(rows: DataFrame, fragment: Fragment, named: str) -> DataFrame:
    """Append computed values to the whole rows among a fragment's messages (k, m), and apply WHERE.

    A whole row that does not satisfy WHERE becomes a delete. A row in which an expression failed also causes a
    `REFUSED` row, which names the fragment as `named`. Other messages pass. In a change with both images, `m` becomes
    NULL for an image that does not satisfy WHERE. Call it only if the fragment has something to compute."""
    put, gone = (ROW_PUT, ROW_GONE) if fragment.outlet == SINK else (DIM_PUT, DIM_GONE)
    wanted = fragment.finish
    # of a change with both images, both are whole rows; only the one after it can be a dead letter
    puts, new = [put], [put]
    if both := fragment.adds_up or fragment.retracts:
        puts, new = [put, EXACT_BEFORE, EXACT_AFTER], [put, EXACT_AFTER]
    is_put, is_new = (f"substring(m, 1, 1) IN ({', '.join(map(_byte, some))})" for some in (puts, new))
    values = f"IF({is_put}, from_json(concat('[', decode({_VALUES}, 'UTF-8'), ']'), 'array<string>'), NULL)"
    where = "TRUE" if wanted.where is None else f"coalesce({wanted.where.sql}, FALSE)"
    reason = _reason(wanted, where, is_new)
    texts = [*(e.sql for e in wanted.computed), where, reason or ""]
    used = [i for i in range(len(wanted.types)) if any(f"{{{i}}}" in text for text in texts)]
    names = [f"t{i}" for i in range(len(wanted.types))]
    computed = [f"e{j}" for j in range(len(wanted.computed))]
    opened = rows.selectExpr("k", "m", f"{values} AS vals")
    opened = opened.selectExpr("k", "m", *(f"{typed('vals', i, wanted.types[i])} AS t{i}" for i in used))
    opened = opened.selectExpr(
        "k",
        "m",
        *(f"{e.sql.format(*names)} AS {name}" for e, name in zip(wanted.computed, computed, strict=True)),
        f"IF({is_put}, {where.format(*names)}, NULL) AS holds",
        f"{(reason or 'NULL').format(*names)} AS reason",
    )
    behind = [canonical(name, e.type) for e, name in zip(wanted.computed, computed, strict=True)]
    parts = ", ".join(f"',', {text}" for text in behind)
    added = f"concat(m, encode(concat({parts}), 'UTF-8'))" if behind else "m"
    ended = f"concat({_byte(gone)}, {_VERSION}, X'00000000')"
    # Such an image has no effect instead: `Combine` ignores NULL. Spark would move a filter for it to where it parses
    # the JSON again for each value.
    if both:
        ended = f"IF(substring(m, 1, 1) = {_byte(put)}, {ended}, NULL)"
    reported = opened.selectExpr(
        "k", "m", "reason", f"CASE WHEN holds THEN {added} WHEN NOT holds THEN {ended} ELSE m END AS whole"
    )
    if reason is None:
        return reported.selectExpr("k", "whole AS m")
    whole = "named_struct('k', k, 'm', whole)"
    rows_and_letters = f"IF(reason IS NULL, array({whole}), array({whole}, {_dead_letter(named)}))"
    return reported.selectExpr(f"inline({rows_and_letters})")


def _byte(number: int) -> str:
    return f"X'{number:02X}'"


def _dead_letter(named: str) -> str:
    """Return SQL of the `REFUSED` row whose reason is in the column `reason`."""
    reason = "substring(to_json(array(reason)), 2, length(to_json(array(reason))) - 2)"
    about = f"to_json(array(concat('{named}, row ', decode(substring(k, 2), 'UTF-8'))))"
    dead_letter = f"concat(substring({about}, 1, length({about}) - 1), ',0,0,', {reason}, ',null,\"', {_BASE64}, '\"]')"
    message = f"concat({_byte(REFUSED)}, {_VERSION}, X'00000000', encode({dead_letter}, 'UTF-8'))"
    return f"named_struct('k', X'FF', 'm', {message})"


def _reason(finish_: Finish, where: str, is_put: str) -> str | None:
    """Return SQL for the reason why an expression failed in a row that passes WHERE, or in WHERE. None if nothing
    can fail."""
    reasons: list[str] = []
    if finish_.where is not None:
        reasons += [*_failed(finish_.where), f"WHEN NOT {where} THEN NULL"]
    failed = [reason for expression in finish_.computed for reason in _failed(expression)]
    if not failed and len(reasons) < 2:
        return None
    return f"CASE WHEN NOT {is_put} THEN NULL {' '.join([*reasons, *failed])} ELSE CAST(NULL AS STRING) END"


def _failed(expression: Expression) -> list[str]:
    failed = any_of(expression.failed, _beyond(expression))
    if failed is None:
        return []
    return [f"WHEN {failed} THEN {escaped('not computed: ' + expression.text)}"]


def _beyond(expression: Expression) -> str | None:
    """Return Spark SQL that is true for a date without a canonical form. None if the expression cannot yield one.

    It is added here, so that the plans of earlier versions stay the same. Only casts, which can fail, and date_add
    yield such dates."""
    possible = expression.failed is not None or "date_add(" in expression.sql
    if family(expression.type) not in ("date", "moment") or not possible:
        return None
    return f"(NOT {_in_range(f'({expression.sql})', expression.type)})"
