"""Generate the shop of the demo from a seed: its tables, its first rows, and live traffic.

The functions return statements, which `mysql_demo` executes. The generator tracks the existing orders, so that
updates and deletes match rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

Server = Literal["shop", "crm"]
Kind = Literal["order placed", "order changed", "order moved", "order removed", "customer renamed", "product repriced"]

SCHEMAS: dict[Server, tuple[str, ...]] = {
    "shop": (
        "CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4",
        "CREATE TABLE IF NOT EXISTS shop.products (id INT PRIMARY KEY, title VARCHAR(200) NOT NULL,"
        " category VARCHAR(40) NOT NULL, price DECIMAL(10,2) NOT NULL)",
        "CREATE TABLE IF NOT EXISTS shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer_id INT, product_id INT,"
        " status ENUM('new','paid','shipped','returned') NOT NULL, quantity INT UNSIGNED NOT NULL,"
        " amount DECIMAL(12,2) NOT NULL, note TEXT, created_at DATETIME(3) NOT NULL, revision INT NOT NULL)",
    ),
    "crm": (
        "CREATE DATABASE IF NOT EXISTS crm CHARACTER SET utf8mb4",
        "CREATE TABLE IF NOT EXISTS crm.customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(120) NOT NULL,"
        " country CHAR(2) NOT NULL, email VARCHAR(160))",
    ),
}

_FIRST = (
    "Ada Björn Chloé Dmitri Eszter Fatima Günther Hélène Ioana Jürgen Kenji Léa Małgorzata Niamh Oğuz Paulo Quentin"
    " Rosa Søren Tereza Ursula Vasco Wanda Ximena Yusuf Zoë"
).split()
_LAST = (
    "Abbott Brontë Çelik D'Angelo Edwards Fischer García Håkansson Ivanov Janssen Kowalski Lefèvre Müller Nakamura"
    " O'Brien Petrov Quispe Rossi Schmidt Tanaka Ünal Vogel Weiß Xu Young Żak"
).split()
_COUNTRIES = "FR DE PL ES IT NL BE PT SE JP CA GB".split()
_ADJECTIVES = "Quiet Oak Linen Brass Folding Travel Winter Garden Copper Wool Stoneware Cork".split()
_NOUNS = {
    "kitchen": "Kettle Pan Teapot Bowl Grater".split(),
    "garden": "Trowel Bench Lantern Planter Hose".split(),
    "office": "Lamp Notebook Stapler Chair Shelf".split(),
    "travel": "Backpack Bottle Tent Towel Pouch".split(),
    "textile": "Blanket Cushion Curtain Rug Scarf".split(),
}
_NOTES = (
    *(None, None, None, None, "gift wrap", "leave at the door", "call before"),
    *("<b>fragile</b> & urgent", "zweite Klingel, 3. Stock"),
)
_STATUSES = ("new", "paid", "shipped", "returned")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopStatement:
    """One SQL statement for one server."""

    server: Server
    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopTransaction:
    """One source transaction of the traffic.

    `order` and `revision`, if set, name the version of a document to look for in Solr."""

    kind: Kind
    statement: ShopStatement
    order: int | None = None
    revision: int | None = None


@dataclass(slots=True, kw_only=True)
class Shop:
    """State of the generator: the greatest id of each table, and the revision of each existing order (`orders`).

    `most` is the number of orders to keep: once it is reached, each new order is followed by a removal."""

    random: Random
    most: int | None = None
    customers: int = 0
    products: int = 0
    last_order: int = 0
    orders: dict[int, int] = field(default_factory=dict)
    _living: list[int] = field(default_factory=list)

    def remember(self, orders: dict[int, int], *, customers: int, products: int, last_order: int) -> None:
        """Continue with an existing shop. `orders` gives the revision by order id; the others are the greatest ids."""
        self.orders, self._living = dict(orders), list(orders)
        self.customers, self.products, self.last_order = customers, products, last_order

    def lacks(self, *, customers: int, products: int, orders: int) -> int:
        """Return how many rows are missing until the shop has these sizes."""
        wanted = ((customers, self.customers), (products, self.products), (orders, self.last_order))
        return sum(max(0, size - known) for size, known in wanted)

    def catalogue(self, *, customers: int, products: int, orders: int, now_ms: int) -> Iterator[list[ShopStatement]]:
        """Yield the missing rows of the first load, in batches of equal statements for `executemany`.

        Orders date back up to 90 days from `now_ms`. An earlier demo, or an interrupted load, may have left some of
        the rows."""
        known = self.customers, self.products
        self.customers, self.products = max(customers, known[0]), max(products, known[1])
        yield from _batches(self._customer(i + 1) for i in range(known[0], customers))
        yield from _batches(self._product(i + 1) for i in range(known[1], products))
        yield from _batches(
            self._order(now_ms - self.random.randrange(90 * 86_400_000)).statement
            for _ in range(self.last_order, orders)
        )

    def traffic(self, now_ms: int) -> ShopTransaction:
        """Return the next live change: 33% new orders, 34% changed, 14% moved, 10% removed, 6% renames, 3% new prices.

        A rename changes about ten rows of the joined table, a new price about twenty-five.
        """
        if self.most is not None and len(self._living) > self.most:
            return self._removal(self.random.randrange(len(self._living)))
        dice = self.random.random()
        if dice < 0.33 or not self._living:
            return self._order(now_ms)
        if dice < 0.36:
            price = f"{self.random.randrange(199, 49_900) / 100:.2f}"
            return ShopTransaction(
                kind="product repriced",
                statement=_update("shop", "products", {"price": price}, self.random.randint(1, self.products)),
            )
        if dice < 0.42:
            return ShopTransaction(
                kind="customer renamed",
                statement=_update("crm", "customers", {"name": self._name()}, self.random.randint(1, self.customers)),
            )
        place = self.random.randrange(len(self._living))
        if dice < 0.52:
            return self._removal(place)
        order = self._living[place]
        revision = self.orders[order] = self.orders[order] + 1
        values: dict[str, Any] = {"revision": revision}
        if dice < 0.66:
            moved: Kind = "order moved"
            values |= {"customer_id": self._customer_id()} if dice < 0.59 else {"product_id": self._product_id()}
        else:
            moved = "order changed"
            values |= {"status": self.random.choice(_STATUSES), "note": self.random.choice(_NOTES)}
        return ShopTransaction(
            kind=moved, statement=_update("shop", "orders", values, order), order=order, revision=revision
        )

    def _order(self, created_ms: int) -> ShopTransaction:
        self.last_order += 1
        order = self.last_order
        self.orders[order] = 1
        self._living.append(order)
        quantity = self.random.randint(1, 9)
        values = (
            order,
            self._customer_id(),
            self._product_id(),
            self.random.choice(_STATUSES),
            quantity,
            f"{quantity * self.random.randrange(199, 49_900) / 100:.2f}",
            self.random.choice(_NOTES),
            _datetime(created_ms),
            1,
        )
        sql = (
            "INSERT INTO shop.orders"
            " (id, customer_id, product_id, status, quantity, amount, note, created_at, revision)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
        )
        statement = ShopStatement(server="shop", sql=sql, values=values)
        return ShopTransaction(kind="order placed", statement=statement, order=order, revision=1)

    def _removal(self, place: int) -> ShopTransaction:
        order, self._living[place] = self._living[place], self._living[-1]
        self._living.pop()
        del self.orders[order]
        statement = ShopStatement(server="shop", sql="DELETE FROM shop.orders WHERE id = %s", values=(order,))
        return ShopTransaction(kind="order removed", statement=statement)

    def _customer(self, customer: int) -> ShopStatement:
        email = f"c{customer}@example.org" if self.random.random() < 0.8 else None
        values = (customer, self._name(), self.random.choice(_COUNTRIES), email)
        sql = "INSERT INTO crm.customers (id, name, country, email) VALUES (%s, %s, %s, %s)"
        return ShopStatement(server="crm", sql=sql, values=values)

    def _product(self, product: int) -> ShopStatement:
        category = self.random.choice(list(_NOUNS))
        title = f"{self.random.choice(_ADJECTIVES)} {self.random.choice(_NOUNS[category])} No. {product}"
        values = (product, title, category, f"{self.random.randrange(199, 49_900) / 100:.2f}")
        sql = "INSERT INTO shop.products (id, title, category, price) VALUES (%s, %s, %s, %s)"
        return ShopStatement(server="shop", sql=sql, values=values)

    def _name(self) -> str:
        return f"{self.random.choice(_FIRST)} {self.random.choice(_LAST)}"

    def _customer_id(self) -> int | None:
        # 2% are guests, 1% refer to a customer who does not exist: both remain in a left join.
        dice = self.random.random()
        if dice < 0.02:
            return None
        return self.customers + 1 + self.random.randrange(50) if dice < 0.03 else self.random.randint(1, self.customers)

    def _product_id(self) -> int | None:
        return None if self.random.random() < 0.01 else self.random.randint(1, self.products)


def _update(server: Server, table: str, values: dict[str, Any], key: int) -> ShopStatement:
    assignments = ", ".join(f"{column} = %s" for column in values)
    sql = f"UPDATE {server}.{table} SET {assignments} WHERE id = %s"
    return ShopStatement(server=server, sql=sql, values=(*values.values(), key))


def _batches(statements: Iterator[ShopStatement], size: int = 1000) -> Iterator[list[ShopStatement]]:
    batch: list[ShopStatement] = []
    for statement in statements:
        batch.append(statement)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _datetime(ms: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)).isoformat(sep=" ", timespec="milliseconds")
