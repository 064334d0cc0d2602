"""The portable engine's store of a key behaves as `joins.steps.state` over a dict, and a change costs one page."""

from __future__ import annotations

import random

import pytest

from joins.query.plan import KeyedJoin
from joins.steps import pages
from joins.steps.records import DIM_GONE, DIM_PUT, GONE, MOVED, NEW, PUT, Message
from joins.steps.state import joined_in, lookup_step

K = b"\x00[7]"


def lookup(*, inner: bool = True, star: int | None = None) -> KeyedJoin:
    return KeyedJoin(
        number=0, stage=0, of="f", right="d", inner=inner, width=1, target=0xFF, star=star, part=0
    )  # fmt: skip


class Store(dict[bytes, bytes]):
    """A store that counts the bytes written."""

    written = 0

    def put(self, k: bytes, value: bytes | None) -> None:
        if value is None:
            self.pop(k, None)  # a page that became empty
        else:
            self.written += len(value)
            self[k] = value


def change(chance: random.Random, v: int, rows: int, grows: bool) -> Message:
    if chance.random() < 0.03:
        return Message(K, chance.choice([DIM_PUT, DIM_PUT, DIM_GONE]), b"", v, b"x" * 8 + b"%d" % chance.randrange(9))
    put = (chance.random() < 0.85) is grows
    return Message(
        K, chance.choice([PUT, PUT, NEW] if put else [GONE, MOVED]), b"%d" % chance.randrange(rows), v, b"p" * 12
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_store_of_pages_says_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of rows are added and removed, with and without a right side: the messages are the same, batch by batch,
    and no state is left after the last row."""
    monkeypatch.setattr(pages, "PAGE", 8)
    chance, store, state = random.Random(seed), Store(), None
    step = lookup(inner=seed % 2 == 0, star=0x80 if seed % 4 > 1 else None)
    most = 0
    for batch in range(120):
        grows = batch // 30 % 2 == 0
        messages = [change(chance, v, 300, grows) for v in range(chance.randrange(1, 12))]
        state, reported = lookup_step(step, K, state, messages)
        assert sorted(joined_in(step, K, messages, store.get, store.put)) == sorted(reported)
        assert (K in store) == (state is not None)
        most = max(most, len(store))
    assert most > 4, "never more than a page"
    everything = [Message(K, GONE, b"%d" % row, 1, b"") for row in range(300)]
    joined_in(step, K, [*everything, Message(K, DIM_GONE, b"", 1, b"")], store.get, store.put)
    assert store == {}


def test_a_change_at_a_hot_key_costs_a_page() -> None:
    """One change of a key with 20,000 rows writes less than a hundredth of it: its page and the key's head."""
    step, store = lookup(), Store()
    for start in range(0, 20_000, 1000):
        rows = [Message(K, PUT, b"%d" % row, 1, b"p" * 40) for row in range(start, start + 1000)]
        joined_in(step, K, rows, store.get, store.put)
    whole = sum(map(len, store.values()))
    store.written = 0
    joined_in(step, K, [Message(K, PUT, b"77", 2, b"q" * 40)], store.get, store.put)
    assert 0 < store.written < whole / 100
