"""The queries of NEXMark over persons, auctions and bids, with random rows, which also change and vanish.

The queries have the meaning of the suites of Beam and Flink. Bids have a key here, because their rows change. Windows
are those of `date_time`. What is missing: q10, which writes files, q11, which has session windows, and q12, whose
windows are those of the computer's clock.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.joins.tpch import Query

TABLES: dict[str, dict[str, Any]] = {
    "nexmark.person": {
        "key": ["id"], "id": "bigint", "name": "varchar(20)", "email": "varchar(40)", "city": "varchar(20)",
        "state": "varchar(2)", "date_time": "datetime(3)",
    },
    "nexmark.auction": {
        "key": ["id"], "id": "bigint", "item_name": "varchar(20)", "initial_bid": "bigint", "reserve": "bigint",
        "date_time": "datetime(3)", "expires": "datetime(3)", "seller": "bigint", "category": "bigint",
    },
    "nexmark.bid": {
        "key": ["id"], "id": "bigint", "auction": "bigint", "bidder": "bigint", "price": "bigint",
        "channel": "varchar(20)", "url": "varchar(80)", "date_time": "datetime(3)", "extra": "varchar(20)",
    },
    "nexmark.side_input": {"key": ["k"], "k": "bigint", "value": "varchar(20)"},
}  # fmt: skip
_URL = "https://127.0.0.1/{}/item.htm?query=1{}"
_DOMAINS: dict[str, tuple[Any, ...]] = {
    "state": ("OR", "ID", "CA", "NY"),
    "category": (10, 11, 12),
    "channel": ("Apple", "GOOGLE", "channel-1", "channel-2"),
    "url": tuple(_URL.format(part, more) for part in ("a/b", "c") for more in ("", "&channel_id=7", "&channel_id=")),
    "extra": ("", "c", "abcabc", "xyz"),
    "price": (500, 999, 1000, 1102, 4999, 5000, 60_000),
    "date_time": tuple(f"2026-01-0{day}T{hour:02}:{minute:02}:00.5Z" for day in (1, 2) for hour in (5, 9, 20)
                       for minute in (0, 4, 9, 17, 50)),
    "expires": ("2026-01-01T09:30:00.5Z", "2026-01-02T00:00:00.5Z", "2026-01-03T00:00:00.5Z"),
}  # fmt: skip
_SHARES = {"nexmark.person": 1 / 20, "nexmark.auction": 1 / 10, "nexmark.bid": 1 / 2, "nexmark.side_input": 0}
_DAY = "date_format(B.date_time, 'yyyy-MM-dd')"
QUERIES = (
    Query(name="q0", key="id", text="SELECT id, auction, bidder, price, date_time, extra FROM nexmark.bid"),
    Query(
        name="q1",
        key="id",
        text="SELECT id, auction, bidder, 0.908 * price AS price, date_time, extra FROM nexmark.bid",
    ),
    Query(name="q2", key="id", text="SELECT id, auction, price FROM nexmark.bid WHERE MOD(auction, 7) = 0"),
    Query(
        name="q3",
        key="id",
        text="""
        SELECT P.name, P.city, P.state, A.id FROM nexmark.auction AS A
        INNER JOIN nexmark.person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    ),
    Query(
        name="q4",
        key="category",
        text="""
        SELECT Q.category, AVG(Q.final) AS average FROM (
          SELECT MAX(B.price) AS final, A.category FROM nexmark.auction A, nexmark.bid B
          WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires GROUP BY A.id, A.category) Q
        GROUP BY Q.category""",
    ),
    Query(
        name="q5",
        key="auction, start",
        text="""
        WITH counts AS (SELECT auction, count(*) AS num, window(date_time, '10 minutes', '5 minutes') AS start
          FROM nexmark.bid GROUP BY auction, window(date_time, '10 minutes', '5 minutes'))
        SELECT c.auction, c.num, c.start FROM counts c
        JOIN (SELECT max(num) AS maxn, start FROM counts GROUP BY start) m ON c.start = m.start AND c.num >= m.maxn""",
    ),
    Query(
        name="q6",
        key="id",
        text="""
        SELECT Q.id, Q.seller, AVG(Q.final) OVER (PARTITION BY Q.seller ORDER BY Q.date_time, Q.id
          ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
        FROM (SELECT A.id, A.seller, MAX(B.price) AS final, MAX(B.date_time) AS date_time
          FROM nexmark.auction AS A, nexmark.bid AS B
          WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires GROUP BY A.id, A.seller) AS Q""",
    ),
    Query(
        name="q7",
        key="id, start",
        text="""
        SELECT B.id, B.auction, B.price, B.bidder, B.date_time, B1.start FROM nexmark.bid B
        JOIN (SELECT MAX(price) AS maxprice, window(date_time, '10 minutes') AS start FROM nexmark.bid
          GROUP BY window(date_time, '10 minutes')) B1 ON B.price = B1.maxprice
        WHERE B.date_time >= B1.start AND B.date_time < B1.start + INTERVAL '10' MINUTE""",
    ),
    Query(
        name="q8",
        key="id, start",
        text="""
        SELECT P.id, P.name, P.start FROM (
          SELECT id, name, window(date_time, '10 minutes') AS start FROM nexmark.person
          GROUP BY id, name, window(date_time, '10 minutes')) P
        JOIN (SELECT seller, window(date_time, '10 minutes') AS start FROM nexmark.auction
          GROUP BY seller, window(date_time, '10 minutes')) A ON P.id = A.seller AND P.start = A.start""",
    ),
    Query(
        name="q9",
        key="id",
        text="""
        SELECT id, item_name, reserve, seller, category, auction, bidder, price, bid_time FROM (
          SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_time,
            ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC) AS rownum
          FROM nexmark.auction A, nexmark.bid B
          WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires)
        WHERE rownum <= 1""",
    ),
    Query(
        name="q13",
        key="id",
        text="""
        SELECT B.id, B.auction, B.bidder, B.price, B.date_time, S.value FROM (
          SELECT *, auction % 10 AS k FROM nexmark.bid) B JOIN nexmark.side_input AS S ON B.k = S.k""",
    ),
    Query(
        name="q14",
        key="id",
        text="""
        SELECT id, auction, bidder, 0.908 * price AS price,
          CASE WHEN HOUR(date_time) >= 8 AND HOUR(date_time) <= 18 THEN 'dayTime'
            WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_type,
          date_time, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM nexmark.bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000""",
    ),
    Query(
        name="q15",
        key="day",
        text=f"""
        SELECT {_DAY} AS day, count(*) AS total_bids, count(*) FILTER (WHERE price < 1000) AS rank1_bids,
          count(*) FILTER (WHERE price >= 1000 AND price < 5000) AS rank2_bids,
          count(DISTINCT bidder) AS total_bidders,
          count(DISTINCT bidder) FILTER (WHERE price < 1000) AS rank1_bidders,
          count(DISTINCT auction) AS total_auctions,
          count(DISTINCT auction) FILTER (WHERE price >= 5000) AS rank3_auctions
        FROM nexmark.bid B GROUP BY {_DAY}""",
    ),
    Query(
        name="q16",
        key="channel, day",
        text=f"""
        SELECT channel, {_DAY} AS day, max(date_format(B.date_time, 'HH:mm')) AS minute, count(*) AS total_bids,
          count(*) FILTER (WHERE price < 1000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders,
          count(DISTINCT auction) FILTER (WHERE price >= 1000 AND price < 5000) AS rank2_auctions
        FROM nexmark.bid B GROUP BY channel, {_DAY}""",
    ),
    Query(
        name="q17",
        key="auction, day",
        text=f"""
        SELECT auction, {_DAY} AS day, count(*) AS total_bids, count(*) FILTER (WHERE price < 1000) AS rank1_bids,
          min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
        FROM nexmark.bid B GROUP BY auction, {_DAY}""",
    ),
    Query(
        name="q18",
        key="bidder, auction",
        text="""
        SELECT auction, bidder, price, channel, url, date_time, extra FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank_number
          FROM nexmark.bid) WHERE rank_number <= 1""",
    ),
    Query(
        name="q19",
        key="auction, rank_number",
        text="""
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
          FROM nexmark.bid) WHERE rank_number <= 10""",
    ),
    Query(
        name="q20",
        key="id",
        text="""
        SELECT B.id, auction, bidder, price, channel, url, B.date_time, extra, item_name, initial_bid, reserve,
          A.date_time AS auction_time, expires, seller, category
        FROM nexmark.bid AS B INNER JOIN nexmark.auction AS A ON B.auction = A.id WHERE A.category = 10""",
    ),
    Query(
        name="q21",
        key="id",
        text="""
        SELECT id, auction, bidder, price, channel,
          CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM nexmark.bid
        WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google')""",
    ),
    Query(
        name="q22",
        key="id",
        text="""
        SELECT id, auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
          split_part(url, '/', 6) AS dir3
        FROM nexmark.bid""",
    ),
)


def changes(
    tables: dict[str, dict[str, Any]], count: int, chance: random.Random
) -> Iterator[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    """Yield so many inserts, updates and deletes: table, row before and row after."""
    sizes = {name: max(10, int(share * count)) for name, share in _SHARES.items()}
    live: dict[tuple[str, int], dict[str, Any]] = {}
    names = list(tables)
    for number in range(count):
        first = number < 10  # every value of the side input, which has ten
        name = names[-1] if first else chance.choices(names, [_SHARES[name] + 0.02 for name in names])[0]
        at = (name, number if first else chance.randrange(sizes[name]))
        before = live.pop(at, None)
        if before is None or chance.random() > 0.3:
            live[at] = _row(name, at[1], sizes, chance)
        if live.get(at) != before:
            yield name, before, live.get(at)


def _row(name: str, key: int, sizes: dict[str, int], chance: random.Random) -> dict[str, Any]:
    references = {"auction": "nexmark.auction", "bidder": "nexmark.person", "seller": "nexmark.person"}
    row: dict[str, Any] = {}
    for column, kind in TABLES[name].items():
        if column == "key":
            continue
        if column in TABLES[name]["key"]:
            row[column] = key
        elif column in references:
            row[column] = chance.randrange(min(sizes[references[column]], 500))
        else:
            row[column] = chance.choice(
                _DOMAINS.get(column) or (range(5) if kind == "bigint" else [f"{column}{n}" for n in range(5)])
            )
    return row
