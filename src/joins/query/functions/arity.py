"""State how many arguments each function of a query takes, so that none is ignored.

sqlglot drops some arguments when it parses, such as the third of `date_trunc`. So calls are counted in the text,
before parsing (`joins.select.tokens`). A test compares the names with `docs/queries.md`."""

from __future__ import annotations

MANY = 1_000_000
# The fewest and the most arguments.
_COUNTS: dict[tuple[int, int], str] = {
    (0, 0): "rank dense_rank row_number percent_rank cume_dist",
    (1, 1): "unix_timestamp to_unix_timestamp size initcap sha1 crc32 dayofmonth weekday isnull isnotnull "
    "upper lower trim ltrim rtrim reverse length char_length md5 abs floor ceil sqrt exp ln log10 year quarter "
    "ntile month day weekofyear dayofweek dayofyear hour minute second last_day date st_x st_y st_longitude "
    "st_latitude st_srid st_astext st_aswkt sum avg min max count_if bool_and bool_or collect_list collect_set "
    "mode median percentile_cont percentile_disc stddev stddev_samp stddev_pop variance var_samp var_pop",
    (1, 2): "round first_value last_value first last to_date to_timestamp",
    (1, 3): "position lag lead",  # position('a' IN s)
    (3, 3): "timestampdiff timestampadd dateadd substring_index split_part translate nvl2 regexp_replace",
    (2, 2): "to_char array_contains "
    "repeat percentile regexp_like rlike regexp_substr date_part trunc array_join element_at "
    "nullif ifnull nvl left right instr contains startswith endswith sha2 get_json_object power months_between "
    "date_add date_sub add_months date_trunc date_format try_add try_subtract try_multiply try_divide max_by min_by "
    "locate nth_value",
    (2, 3): "datediff "
    "regexp_extract percentile_approx approx_percentile if substring substr replace lpad rpad",
    (2, MANY): "greatest least",
    (1, MANY): "coalesce concat concat_ws count string_agg listagg group_concat",  # the order may have several parts
    (2, 4): "window",  # more than two have a message of their own
}  # fmt: skip
ARITY: dict[str, tuple[int, int]] = {name: counts for counts, names in _COUNTS.items() for name in names.split()}
_INSTEAD = {
    "ifnull": "ifnull(a, b), or coalesce(a, b, c)",
    "nvl": "nvl(a, b), or coalesce(a, b, c)",
    "date": "date(x) of a moment or of a text such as '2026-01-31'",
    "floor": "floor(x), or floor(x * 10) / 10 for one decimal place",
    "ceil": "ceil(x), or ceil(x * 10) / 10 for one decimal place",
}


def wrong_arity(name: str, count: int, *, words: bool) -> tuple[str, str] | None:
    """Return the error and the remedy for a call with `count` arguments; None if it is right or the function unknown.

    `words`: words separate some of the arguments, as in `substring(x FROM 2)`, so there may be more than counted."""
    fewest, most = ARITY.get(name.lower(), (0, MANY))
    if count <= most and (words or count >= fewest):
        return None
    expected = str(fewest) if fewest == most else f"at least {fewest}" if most == MANY else f"{fewest} to {most}"
    counted = f"{count} argument{'s' * (count != 1)}"
    return f"{name}() with {counted}", _INSTEAD.get(name.lower(), f"{name}() with {expected}")
