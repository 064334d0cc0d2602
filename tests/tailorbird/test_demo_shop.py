"""The demo's traffic is what it claims: every kind of change often enough, on rows that live."""

from __future__ import annotations

from collections import Counter
from random import Random

from tailorbird.devtools.demo.shop import Shop


def loaded(seed: int = 7) -> Shop:
    shop = Shop(random=Random(seed))
    rows = sum(len(batch) for batch in shop.catalogue(customers=50, products=20, orders=500, now_ms=10**12))
    assert rows == 570
    return shop


def test_every_kind_of_change_is_at_least_a_twentieth() -> None:
    """Inserts, updates, deletes, foreign-key moves and renames are each ≥ 5% of the traffic."""
    shop = loaded()
    kinds = Counter(shop.traffic(10**12).kind for _ in range(5_000))
    assert set(kinds) == {
        "order placed",
        "order changed",
        "order moved",
        "order removed",
        "customer renamed",
        "product repriced",
    }
    assert kinds.pop("product repriced") > 0
    assert min(kinds.values()) >= 0.05 * 5_000


def test_changes_hit_orders_that_live() -> None:
    """No update or delete of a row that is gone, revisions count up, ids are never used twice."""
    shop = loaded()
    revisions = dict(shop.orders)
    for _ in range(3_000):
        change = shop.traffic(10**12)
        if change.kind == "order placed":
            assert change.order is not None
            assert change.order not in revisions
            revisions[change.order] = 1
        elif change.kind == "order removed":
            del revisions[change.statement.values[-1]]
        elif change.order is not None:
            assert change.revision == revisions[change.order] + 1
            revisions[change.order] += 1
    assert revisions == shop.orders


def test_a_seed_gives_the_same_traffic() -> None:
    """A run can be repeated."""
    first, second = loaded(3), loaded(3)
    assert [first.traffic(0) for _ in range(200)] == [second.traffic(0) for _ in range(200)]


def test_a_shop_is_remembered() -> None:
    """A second run continues with the existing orders and new ids."""
    shop = Shop(random=Random(1))
    shop.remember({5: 2, 9: 1}, customers=3, products=4, last_order=9)
    placed = {change.order for change in (shop.traffic(0) for _ in range(200)) if change.kind == "order placed"}
    assert min(order for order in placed if order is not None) == 10


def test_what_an_earlier_load_left_is_completed() -> None:
    """A catalogue continues after the existing rows, table by table; a complete one adds nothing."""
    for left in ((0, 0, 0), (50, 0, 0), (50, 20, 0), (30, 20, 100), (50, 0, 700)):
        shop = Shop(random=Random(1))
        shop.remember({}, customers=left[0], products=left[1], last_order=left[2])
        lacks = shop.lacks(customers=50, products=20, orders=500)
        written = [
            one for batch in shop.catalogue(customers=50, products=20, orders=500, now_ms=10**12) for one in batch
        ]
        assert len(written) == lacks == 50 - left[0] + 20 - left[1] + max(0, 500 - left[2])
        ids = [one.values[0] for one in written if "customers" in one.sql]
        assert ids == list(range(left[0] + 1, 51))
        assert shop.lacks(customers=50, products=20, orders=500) == 0
        shop.traffic(10**12)


def test_a_shop_stays_as_large_as_it_is_reported() -> None:
    """Above a number of orders, each new one is followed by a removal; all other changes continue."""
    shop = loaded()
    shop.most = 500
    kinds = Counter[str]()
    for _ in range(3_000):
        kinds[shop.traffic(0).kind] += 1
        assert len(shop.orders) <= 501
    assert min(kinds["order placed"], kinds["order changed"]) > 600
