"""Generate false schema histories and checkpoints, as a compromised gateway may return them for an agent to resume
from."""

from __future__ import annotations

import copy
from contextlib import suppress
from random import Random
from typing import Any

import orjson

from tests.hostile.lies import HIDDEN, SCALARS, TABLES, hidden_condition, kind_of, spelt


def doctored(random: Random, honest: dict[str, Any]) -> dict[str, Any]:
    """Return a false answer to `recover`, made from a true one: another schema history, checkpoint and schemas."""
    found = copy.deepcopy(honest)
    for _ in range(random.randrange(1, 5)):
        change = random.choice(CHANGES)
        with suppress(
            KeyError, IndexError, TypeError, ValueError, AttributeError
        ):  # an earlier change has replaced this part
            change(random, found)
    return found


def _schemas(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all objects with columns: of the history (with detail), and of the published schemas."""
    values = [one[1] for one in found["history"] if one[1] and one[1].get("schema")]
    published: list[dict[str, Any]] = found["schemas"]
    return [part for value in values for part in (value["schema"], value["detail"])] + published


def _swap(random: Random, found: dict[str, Any]) -> None:
    left, right = random.choice(
        (("email", "name"), ("pin", "name"), ("ssn", "public_id"), ("level", "name"), ("pin", "id"))
    )
    exchanged = {left: right, right: left}
    for schema in _schemas(found):
        for column in schema["columns"]:
            column["name"] = exchanged.get(column["name"], column["name"])


def _rename(random: Random, found: dict[str, Any]) -> None:
    old = random.choice(("name", "total", "id", "email", "pin", "public_id"))
    new = spelt(
        random, random.choice(("pin", "email", "ssn", "_rowid", "level", "name", "id` FROM kept.foreign_table -- "))
    )
    for schema in _schemas(found):
        for column in schema["columns"]:
            column["name"] = new if column["name"] == old else column["name"]


def _retype(random: Random, found: dict[str, Any]) -> None:
    for schema in _schemas(found):
        for column in schema["columns"]:
            if random.random() < 0.3:
                column["column_type"] = kind_of(random)
                column["charset"] = random.choice((None, "utf8mb4", "latin1", "binary", "no_such", "utf16"))


def _key(random: Random, found: dict[str, Any]) -> None:
    for schema in _schemas(found):
        key = [spelt(random, random.choice(("pin", "ssn", "email", "_rowid", "name", "public_id")))]
        if "primary_key" in schema:
            schema["primary_key"] = key
        else:
            schema["keys"] = [{"name": "PRIMARY", "kind": "primary", "columns": key}]


def _foreign(random: Random, found: dict[str, Any]) -> None:
    for one in list(found["history"]):
        if one[1] and one[1].get("table") and random.random() < 0.5:
            database, table = random.choice(
                (("kept", "foreign_table"), ("other", "secrets"), ("mysql", "user"), ("kept", "CUSTOMERS"))
            )
            key = orjson.loads(one[0])
            key[2:4] = [database, table]
            found["history"].append([orjson.dumps(key).decode(), {**one[1], "database": database, "table": table}])


def _checkpoint(found: dict[str, Any]) -> dict[str, Any]:
    return orjson.loads(found["checkpoint"])  # type: ignore[no-any-return]


def _position(random: Random, found: dict[str, Any]) -> None:
    value = _checkpoint(found)
    value["position"]["gtid_set"] = random.choice(("", "", value["position"]["gtid_set"], "x", "1-1-1"))
    value["position"]["file"] = random.choice((value["position"]["file"], "binlog.000001", "../../etc/passwd"))
    value["position"]["pos"] = random.choice((4, 4, value["position"]["pos"], 5, 2**40, -1))
    value["position"]["sequence"] = random.choice((0, value["position"]["sequence"], 2**62))
    found["checkpoint"] = orjson.dumps(value).decode()


def _snapshots(random: Random, found: dict[str, Any]) -> None:
    value = _checkpoint(found)
    table = random.choice(TABLES[:2])
    name = random.choice(
        (f"kept.{table}", f"kept.{table.upper()}", "kept.foreign_table", "other.secrets", "mysql.user")
    )
    entry = {
        "where": hidden_condition(random, table),
        "rows": 0,
        "after": random.choice((None, [1], ["' OR 1=1 -- "], ["0"])),
        "last": random.choice((None, ["9"], ["x"])),
        "marker": 5,
    }
    value.setdefault("state", {})["snapshots"] = {name: {key: one for key, one in entry.items() if one is not None}}
    value["snapshot"] = random.choice(("running", "done"))
    found["checkpoint"] = orjson.dumps(value).decode()


def _relations(random: Random, found: dict[str, Any]) -> None:
    value = _checkpoint(found)
    parent = random.choice(TABLES[:2])
    columns = [spelt(random, random.choice(HIDDEN[parent]))]
    child = random.choice(("orders", "customers", "foreign_table"))
    relation = ["kept", child, ["id"], "kept", parent, columns, "CASCADE", "CASCADE"]
    keys = [{random.choice(("id", "pin", "ssn", "public_id")): random.choice((1, "1", "x' OR '1"))}]
    tables = {f"kept.{random.choice(TABLES)}": {"keys": keys, "lost": [[["id"], [1], None]]}}
    value.setdefault("state", {})["mends"] = {
        "relations": [relation],
        **({"tables": tables} if random.random() < 0.5 else {}),
    }
    found["checkpoint"] = orjson.dumps(value).decode()


def _engine(random: Random, found: dict[str, Any]) -> None:
    for schema in _schemas(found):
        if "keys" in schema:
            schema["versioned"] = [random.choice(("pin", "email", "name")), random.choice(("pin", "ssn", "level"))]


def _nonsense(random: Random, found: dict[str, Any]) -> None:
    place: Any = found if random.random() < 0.5 else _checkpoint(found)
    top = place
    while isinstance(place, dict | list) and place:
        key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
        if not isinstance(place[key], dict | list) or random.random() < 0.2:
            place[key] = copy.deepcopy(random.choice(SCALARS))
            break
        place = place[key]
    if top is not found:
        found["checkpoint"] = orjson.dumps(top, default=str).decode()


CHANGES = (_swap, _rename, _retype, _key, _foreign, _position, _snapshots, _relations, _nonsense, _engine)
