"""Describe stored state with the names of the plan: steps, aliases and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from joins.inspection.groups import group_parts
from joins.inspection.packed import Packed
from joins.query.group import Grouping
from joins.query.nodes import Pair
from joins.query.plan import KeyedJoin, Plan, Step
from joins.runtime.records import SINK, Values, split_part, ts_of, unpack, values_of, values_of_text
from joins.steps.change_detector import receivers_of

_APART = b"\xff"
Entry = tuple[str, bytes, bytes | None, bytes]  # variable, k, the key within it (of a map), value


class Where(NamedTuple):
    """A step of the plan: its description, and its grouping if it has one."""

    step: str
    group: Grouping | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One stored entry: the step it belongs to, and its kind (`what`): `right side`, `row`, `whole row`, `newest`,
    `rows`.

    `row` is the id of the row, if there is one. `values` are those of the row. For a group they are its number of
    rows, for a total the count and the sum, and for a bag the number of different values; `what` is then the
    function. `ts_ms` is the time of the newest change in it."""

    step: str
    what: str
    row: Values | None
    values: Values | None
    ts_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `--json` prints."""
        return {name: getattr(self, name) for name in self.__slots__}


def keys_of(plan: Plan, key: str) -> dict[bytes, Where]:
    """Return the stored keys under which the state may have a key given as `7`, `"a"` or `"a",7`.

    Raises ValueError if the text is not JSON."""
    values_of_text(key.encode())
    found: dict[int, Where] = {}
    for fragment in plan.fragments:
        found |= {step.number: Where(_name(step), None) for step in fragment.steps}
        detectors = {number: receiver.node for number, receiver in receivers_of(fragment).items()}
        found |= {number: Where(f"rows for {node.alias}", None) for number, node in detectors.items()}
        if isinstance(pair := fragment.root, Pair):
            found[pair.number] = Where(f"pairs of {pair.alias}", None)
        if (group := fragment.group) is not None:
            found[group.change_detector] = Where(f"rows for the groups of {fragment.root.alias}", group)
            found[group.number] = Where(f"groups of {fragment.root.alias}", group)
        if (temporal := fragment.temporal) is not None:
            found[temporal.number] = Where(" AND ".join(bound.text for bound in temporal.bounds), None)
    return {bytes([number]) + key.encode(): place for number, place in found.items() if number != SINK}


def _name(step: Step) -> str:
    if isinstance(step, KeyedJoin):
        return f"join of {step.right} to {step.of}"
    return f"star of {step.of}"


def described(entries: Iterable[Entry], keys: Mapping[bytes, Where]) -> list[Held]:
    """Describe the entries of these keys. Right sides come first, then rows in the order of their ids."""
    found: list[Held] = []
    for variable, k, row, value in entries:
        if k not in keys:
            continue
        step, group = keys[k]
        if variable.startswith("key"):
            found += _key(step, value)
        elif variable.startswith("rows"):
            found.append(_held(step, "row", None if row is None else values_of_text(row), value))
        elif variable.startswith("pair"):
            found += _met(step, value)
        elif variable.startswith(("left", "right")):
            side = variable.partition("_")[0]
            found.append(_held(step, f"{side} row", None if row is None else values_of_text(row), value))
        elif variable.startswith("row_"):
            found += _parts(step, value)
        elif variable.startswith("span"):
            found.append(_held(step, "row" if value[8] else "row not yet shown", None, value[9:]))
        elif variable.startswith("told"):
            found.append(_reported(step, group, value))
        elif variable.startswith("group") and group is not None:
            ts_ms, parts = group_parts(group, value)
            found += [Held(step=step, what=what, row=None, values=values, ts_ms=ts_ms) for what, values in parts]
    return sorted(found, key=lambda one: (one.step, one.what != "right side", one.what == "right row", str(one.row)))


def _reported(step: str, group: Grouping | None, value: bytes) -> Held:
    """Describe the last row that a step emitted. In a group it has the key, then the arguments of the functions."""
    parts = [value] if group is None else split_part(value)
    values = [one for part in parts for one in values_of_text(part)]
    return Held(step=step, what="row", row=None, values=values, ts_ms=None)


def _key(step: str, value: bytes) -> Iterator[Held]:
    """Describe an entry of a keyed join: the right side if there is one, and its rows.

    A key with few rows has them in this entry, after a byte with their number."""
    end = 5 + int.from_bytes(value[1:5], "big")
    # where rows are entries of their own, a bound of their number follows
    parts = [value[5:end]] if value[:1] == _APART else unpack(value[1:])
    if parts[0]:
        yield _held(step, "right side", None, parts[0])
    for row, payload in zip(parts[1::2], parts[2::2], strict=True):
        yield _held(step, "row", values_of_text(row), payload)


def _met(step: str, value: bytes) -> Iterator[Held]:
    """Describe an entry of a many-to-many join: the rows of both sides.

    A key with few rows has them in this entry: a zero byte, then each side after its number of rows."""
    stored = Packed(value)
    if stored.next(1) == b"\0":
        for side in ("left", "right"):
            for _ in range(stored.count()):
                yield _held(step, f"{side} row", values_of_text(stored.block()), stored.block())


def _held(step: str, what: str, row: Values | None, payload: bytes) -> Held:
    if not payload:  # the assembling step has the values
        return Held(step=step, what=what, row=row, values=None, ts_ms=None)
    return Held(step=step, what=what, row=row, values=values_of(payload), ts_ms=ts_of(payload))


def _parts(step: str, value: bytes) -> list[Held]:
    found: list[Held] = []
    at = 0
    while at < len(value):
        end = at + 4 + int.from_bytes(value[at : at + 4], "big")
        what = "row" if not found else f"part {len(found)}"
        found.append(_held(step, what, None, value[at + 4 : end]))
        at = end
    return found
