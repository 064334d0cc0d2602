"""Generate what a compromised gateway may send: configurations, conditions and signals.

All generators are seeded, so that a failing case can be repeated.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import orjson

HIDDEN = {"customers": ("email", "pin", "level"), "accounts": ("ssn", "_rowid")}
PLAIN = {"customers": ("id", "name"), "accounts": ("public_id", "name"), "orders": ("id", "total")}
FOREIGN = ("foreign_table", "other.secrets", "mysql.user", "information_schema.columns", "kept2.customers")
TABLES = ("customers", "accounts", "orders")
_LETTERS = {
    "e": "E\u00e9\uff25\u0435",
    "i": "I\u0130\u0131\uff29\u0456",
    "s": "S\u017f\uff33",
    "n": "N\u00f1",
    "k": "K\u212a",
    "m": "M\uff2d",
    "p": "P\u0440",
}
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    1e308,
    "",
    " ",
    "0",
    "id",
    "pin",
    "email",
    "e\u0301",
    "\u0000",
    "\u202e",
    "a" * 5000,
    [],
    {},
    [[]],
    [{}],
    {"": ""},
    "${PATH}",
    "${file:/etc/passwd}",
    "customers",
    "*",
    "'",
    "`",
    "--",
    "/*",
)


def spelt(random: Random, name: str) -> str:
    """Return a name as an attacker may write it: other case, look-alike letters, quotes, comments, blanks."""
    match random.randrange(9):
        case 0:
            return name
        case 1:
            return "".join(random.choice((letter, letter.upper())) for letter in name)
        case 2:
            return "".join(random.choice((letter, *_LETTERS.get(letter, ""))) for letter in name)
        case 3:
            return f"`{name}`"
        case 4:
            return random.choice(
                (f"{name} ", f" {name}", f"{name}\u200b", f"\ufeff{name}", f"{name}\u0000", f"{name}\u0301")
            )
        case 5:
            return random.choice((f"{name}/**/", f"/*!{name}*/", f"/*!50000 {name}*/", f"{name}#", f"{name} -- "))
        case 6:
            return random.choice((f"customers.{name}", f"kept.customers.{name}", f"`kept`.`customers`.`{name}`"))
        case 7:
            return "`" + "".join(random.choice((letter, *_LETTERS.get(letter, ""))) for letter in name) + "`"
        case _:
            return random.choice((f'"{name}"', f"'{name}'", f"@{name}", f"@@{name}", f"({name})", f"BINARY {name}"))


_USES = (
    "{c} LIKE 'a%'",
    "{c} IS NOT NULL",
    "id = 1 OR {c} > ''",
    "NOT ({c} = 'x')",
    "id BETWEEN 0 AND {c}",
    "{c} IN ('a', 'b')",
    "id IN (SELECT {c} FROM customers)",
    "0) UNION SELECT {c}, 1, 1 FROM customers -- ",
    "id = 1 /*! OR {c} > '' */",
    "IF({c} > 'a', 1, 0)",
    "(id, {c}) > (0, 'a')",
    "CASE WHEN {c} > 'a' THEN 1 END",
    "{c} REGEXP '^.'",
    "{c} <=> 'a'",
    "MATCH({c}) AGAINST ('a')",
    "id > -{c}",
    "EXISTS(SELECT {c} FROM customers)",
    "id > 0; SELECT {c}",
    "{c}",
    "-{c} < 1",
    "id > 0 AND SLEEP({c})",
    "LENGTH({c}) > 0",
    "{c} COLLATE utf8mb4_bin > ''",
    "CAST({c} AS CHAR) > ''",
    "{c} || 'a'",
    "id = 1 UNION ALL SELECT {c} FROM other.secrets",
    "{c} XOR 0",
    "{c} & 255",
    "id > 0 GROUP BY {c}",
    "1 ORDER BY {c}",
    "{c} ->> '$.a' > ''",
    "ROW(id, {c}) = ROW(1, 2)",
    "{c} SOUNDS LIKE 'a'",
    "{c} > x'00'",
    "{c} = (SELECT pin FROM customers LIMIT 1)",
    "VALUES({c}) > ''",
    "DEFAULT({c}) > ''",
    "id IN (TABLE other.secrets)",
    "{c} MEMBER OF ('[1]')",
    "id > 0 INTO OUTFILE '/tmp/{c}'",
    "id = (SELECT id FROM other.secrets)",
    "id > 0 PROCEDURE ANALYSE()",
    "customers > 0",
    "{c} > '' LIMIT 1",
    "id > 0 LOCK IN SHARE MODE",
)


def hidden_condition(random: Random, table: str) -> str:
    """Return a condition that compares a hidden column, if a server accepts it at all, or only pretends to."""
    column = spelt(random, random.choice(HIDDEN.get(table, ("pin",))))
    return random.choice(_USES).format(c=column)


def comparing_condition(random: Random, table: str) -> str:
    """Return a condition that cannot be true without a hidden column: its name is in no text and no comment."""
    while True:
        condition = hidden_condition(random, table)
        names = "|".join(HIDDEN.get(table, ("pin",)))
        if "/*!" not in condition and not re.search(rf"['\"]({names})['\"]", condition, re.IGNORECASE):
            return condition


def plain_condition(random: Random, table: str) -> str:
    """Return a condition on columns that may leave."""
    column = random.choice(PLAIN[table])
    text = random.choice(
        ("{c} IS NOT NULL", "{c} >= ''", "NOT {c} = '0'", "{c} <> 'x' /* pin */", "({c} IN ('1', '2', '3'))")
    )
    return text.format(c=column)


def table_name(random: Random) -> str:
    """Return a table's name: an allowed one, an odd spelling of it, or one outside the policy."""
    name = random.choice((*TABLES, *TABLES, *FOREIGN))
    return spelt(random, name) if random.random() < 0.3 else name


def options(random: Random, table: str) -> dict[str, Any]:
    """Return the options of one table in a configuration."""
    columns = (*HIDDEN.get(table, ("pin",)), *PLAIN.get(table, ("id",)))
    found: dict[str, Any] = {}
    if random.random() < 0.4:
        found["where"] = hidden_condition(random, table)
    if random.random() < 0.3:
        found["message_key_columns"] = [spelt(random, random.choice(columns)) for _ in range(random.randrange(1, 3))]
    if random.random() < 0.3:
        text = random.choice(("truncate(1000)", "truncate(0)", "sha256()", "redact", "none", "", "sha256(a)"))
        found["mask"] = {spelt(random, random.choice(columns)): text}
    if random.random() < 0.3:
        found["ignored_columns"] = [spelt(random, random.choice(columns))]
    if random.random() < 0.1:
        found[random.choice(("columns", "only_columns", "exact_case", "by_name", "append_only"))] = random.choice(
            SCALARS
        )
    return found


def configuration(random: Random) -> Any:
    """Return a configuration of a source."""
    names = [table_name(random) for _ in range(random.randrange(1, 4))]
    spec: dict[str, Any] = {
        "agents": ["a1"],
        "connection": "db",
        "database": random.choice(("kept", "kept", "kept", "KEPT", "other", "mysql", "kept ", "k\u0435pt")),
        "tables": {name: options(random, name.strip("`").lower()) for name in names},
    }
    for key, values in (
        ("filter_policy", ("accept", "drop")),
        ("snapshot_mode", ("initial", "never", "always")),
        ("server_id", (1, 77, 2**32 - 1)),
        ("unrepresentable", ("null", "text", "dead_letter")),
        ("position_lost", ("auto", "fail", "resnapshot")),
        ("cascades", ("follow", "ignore")),
        ("snapshot_max_threads", (1, 64, 10**6)),
        ("snapshot_locking_mode", ("none", "minimal")),
        ("heartbeat_interval_ms", (0, 1)),
        ("hostname", ("127.0.0.1",)),
        ("snapshot", ({"hostname": "127.0.0.1"},)),
        ("url", ("mysql://x",)),
        ("password", ("x",)),
        ("ssl_ca", ("/etc/passwd",)),
        ("type", ("postgresql", "sql", "mysql")),
        ("capture", ("poll", "log")),
        ("running", SCALARS),
        ("poll", SCALARS),
        ("dumps", (True,)),
        ("conditions", SCALARS),
        ("agents", SCALARS),
        ("connection", SCALARS),
        ("tables", SCALARS),
    ):
        if random.random() < 0.06:
            spec[key] = random.choice(values)
    if random.random() < 0.05:
        content = bytearray(orjson.dumps(spec, default=str))
        content[random.randrange(len(content))] = random.randrange(256)
        return bytes(content)
    return spec


def signal(random: Random, *, reads_hidden: bool) -> dict[str, Any]:
    """Return a signal. With `reads_hidden`, it compares hidden columns or tables, so it must cause no row."""
    table = random.choice(TABLES[:2]) if reads_hidden else random.choice(TABLES)
    name = f"kept.{table}"
    if reads_hidden:
        if random.random() < 0.2:
            name = random.choice((*FOREIGN, f"kept.{random.choice(FOREIGN)}", "kept.foreign_table"))
        condition = comparing_condition(random, table)
    else:
        condition = random.choice(("", plain_condition(random, table), hidden_condition(random, table)))
    data: dict[str, Any] = {"data-collections": [name], "type": "incremental"}
    if condition:
        data["additional-conditions"] = [{"data-collection": name, "filter": condition}]
    return {"type": "execute-snapshot", "data": data}


def odd_signal(random: Random) -> dict[str, Any]:
    """Return a signal of another type: a false schema, keys of rows by hidden columns, or nonsense."""
    table = random.choice(TABLES)
    name = random.choice((f"kept.{table}", f"KEPT.{table.upper()}", f"kept.{spelt(random, table)}", *FOREIGN))
    columns = [*HIDDEN.get(table, ("pin",)), *PLAIN[table]]
    random.shuffle(columns)
    described = [{"name": spelt(random, column), "column_type": kind_of(random)} for column in columns]
    match random.randrange(4):
        case 0:
            key = [random.choice(columns)]
            return {
                "type": "schema-set",
                "data": {"data-collections": [name], "columns": described, "primary-key": key},
            }
        case 1:
            keys = [{random.choice(columns): random.choice((1, "1", "1 OR 1", "' OR '", None)) for _ in range(2)}]
            return {"type": "mend-rows", "data": {"data-collections": [name], "keys": keys}}
        case 2:
            return {
                "type": random.choice(("pause-snapshot", "resume-snapshot", "stop-snapshot")),
                "data": {"data-collections": [name]},
            }
        case _:
            return {"type": "execute-snapshot", "data": {"data-collections": [spelt(random, name)]}}


def kind_of(random: Random) -> str:
    """Return a column type."""
    return random.choice(
        (
            "int",
            "bigint",
            "varchar(60)",
            "char(36)",
            "uuid",
            "inet4",
            "inet6",
            "enum('a')",
            "set('a')",
            "json",
            "date",
            "datetime(6)",
            "timestamp",
            "time",
            "decimal(10,2)",
            "float",
            "double",
            "bit(8)",
            "blob",
            "point",
            "vector(3)",
            "year",
            "varbinary(60)",
            "geometry",
            "text",
            "xmltype",
            "nonsense",
        ),
    )
