"""Run the steps of one stage for every key of a bucket, in a stateful operator of the Python engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from joins.engine.buckets import bucket_of
from joins.query.group import Grouping
from joins.query.nodes import Pair
from joins.query.plan import SINK, Assemble, KeyedJoin, Step
from joins.steps.aggregate import aggregated_in
from joins.steps.change_detector import Reread, Transition, change_detector_step, contribution, differences, whole
from joins.steps.contributions import combined
from joins.steps.pairs import Side, paired_in
from joins.steps.records import Message, dump, load
from joins.steps.state import assemble_step, dump_multi_join, joined_in, load_multi_join

CHUNK = 10_000  # rows per output frame


@dataclass(frozen=True, slots=True)
class Grouped:
    """The step of a grouping. Its rows go to `target`; `table` is named in error messages."""

    group: Grouping
    target: int
    table: str


@dataclass(frozen=True, slots=True)
class Paired:
    """The step of a many-to-many join. Its rows go to `target`; `table` is named in error messages."""

    pair: Pair
    target: int
    table: str


# A `Grouping` stands here for the change detector before its groups, a `Reread` or `Side` for the one before a node.
Stage = Mapping[int, Step | Reread | Side | Grouping | Grouped | Paired]


class StageWork:
    """Runs the steps of one stage for every key of a bucket. The entries of keys are values of Spark's map state
    `states`."""

    states: Any

    def __init__(self, steps: Stage, numbers: tuple[int, ...]) -> None:
        self.steps, self.numbers = steps, numbers

    def __call__(self, states: Any, rows: Iterator[Any]) -> Iterator[pd.DataFrame]:
        self.states = states
        groups: dict[bytes, list[Message]] = {}
        passing: list[Message] = []
        for frame in rows:
            for k, m in zip(frame["k"], frame["m"], strict=True):
                message = load(bytes(k), bytes(m))
                if message.k[0] in self.steps:
                    groups.setdefault(message.k, []).append(message)
                else:
                    passing.append(message)
        yield from _frames(self._outputs(groups, passing), self.numbers)

    def _outputs(self, groups: dict[bytes, list[Message]], passing: list[Message]) -> Iterator[Message]:
        yield from passing
        for k, messages in groups.items():
            match self.steps[k[0]]:
                case KeyedJoin() as join:
                    yield from joined_in(join, k, messages, self._get, self._set)
                case Assemble() as star:
                    yield from self._assembled(star, k, messages)
                case Reread() | Side() as receiver:
                    if (found := self._difference(k, messages, whole)) is not None:
                        yield from differences(receiver, found)
                case Paired(pair, target, table):
                    yield from paired_in(pair, target, table, k, messages, self._get, self._set)
                case Grouped(group, target, table):
                    yield from aggregated_in(group, target, table, k, messages, self._get, self._set)
        for step in self.steps.values():
            if isinstance(step, Grouping):
                yield from combined(step, self._contributed(step, groups))

    def _contributed(self, group: Grouping, groups: dict[bytes, list[Message]]) -> Iterator[Transition]:
        """Yield how the contributions of the bucket's rows to their groups have changed."""
        picks = contribution(group)
        for k, messages in groups.items():
            if (found := self._difference(k, messages, picks)) is not None:
                yield found

    def _difference(self, k: bytes, messages: list[Message], picks: Callable[[bytes], bytes]) -> Transition | None:
        before = self._get(k)
        after, found = change_detector_step(before, messages, picks)
        if found is not None:
            self._set(k, after)
        return found

    def _assembled(self, step: Assemble, k: bytes, messages: list[Message]) -> Iterable[Message]:
        before = self._get(k)
        star, reported = assemble_step(step, k, None if before is None else load_multi_join(before), messages)
        if (after := None if star is None else dump_multi_join(star)) != before:
            self._set(k, after)
        return reported

    def _get(self, k: bytes) -> bytes | None:
        found = self.states.getValue((bytearray(k),))
        return None if found is None else bytes(found[0])

    def _set(self, k: bytes, value: bytes | None) -> None:
        if value is None:
            self.states.removeKey((bytearray(k),))
        else:
            self.states.updateValue((bytearray(k),), (bytearray(value),))


def _frames(messages: Iterable[Message], numbers: tuple[int, ...]) -> Iterator[pd.DataFrame]:
    """Yield data frames of limited size, so that the many rows of one key are never in memory together."""
    chunk: list[Message] = []
    for message in messages:
        chunk.append(message)
        if len(chunk) == CHUNK:
            yield _frame(chunk, numbers)
            chunk = []
    if chunk:
        yield _frame(chunk, numbers)


def _frame(messages: list[Message], numbers: tuple[int, ...]) -> pd.DataFrame:
    stored = [dump(message) for message in messages]
    columns = {
        "bucket": [bucket_at(message.k, numbers) for message in messages],
        "k": [k for k, _ in stored],
        "m": [m for _, m in stored],
    }
    return pd.DataFrame(columns, columns=["bucket", "k", "m"]).astype({"bucket": "int32"})


def bucket_at(k: bytes, numbers: tuple[int, ...]) -> int:
    """Return the bucket of a message by its key. Messages to the sink may be in any bucket."""
    return numbers[0] if k[0] == SINK else bucket_of(k.decode("latin-1"), numbers)
