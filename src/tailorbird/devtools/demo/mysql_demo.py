"""Load the demo's shop into two MySQL servers, apply its live traffic, and read the position of each server's log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pymysql
from pymysql.constants import CR, ER

from cdc.model.errors import Retriable
from cdc.topology.topology import Source
from tailorbird.devtools.demo.shop import SCHEMAS, Server, Shop, ShopStatement, ShopTransaction
from tailorbird.operate.status.captured_position import CapturedPosition

RECONNECT_SECONDS: Final = 180.0  # how long the shop waits for a server that was killed, or whose disk is full
_LOST: Final = {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, 0}
_FULL: Final = {ER.DISK_FULL, ER.ERROR_ON_WRITE, ER.RECORD_FILE_FULL, 1598}  # 1598: the binary log cannot be written


class MySqlShop:
    """The two MySQL servers of the shop. Like an application, it uses autocommit: one statement per transaction.

    After a lost connection it connects again and repeats the statement, and also while a disk is full. That is
    harmless, because each statement of the shop writes values by key."""

    def __init__(self, sources: Mapping[str, Source], *, user: str, password: str) -> None:
        self._connections: dict[Server, pymysql.Connection] = {}
        for server in SCHEMAS:
            source = sources[server]
            try:
                self._connections[server] = pymysql.connect(
                    host=source.hostname,
                    port=source.port,
                    user=user,
                    password=password,
                    charset="utf8mb4",
                    autocommit=True,
                )
            except pymysql.MySQLError as error:
                where = f"{source.hostname}:{source.port}"
                raise Retriable(f"MySQL server {server} at {where}: {error}", "tailorbird stack status") from error

    def prepare(self) -> None:
        """Create missing databases and tables."""
        for server, statements in SCHEMAS.items():
            for sql in statements:
                self._execute(server, sql)

    def recall(self, shop: Shop) -> None:
        """Read the rows that an earlier demo left, even a killed one, and let the generator continue with them."""
        orders = {int(order): int(revision) for order, revision in self._rows("SELECT id, revision FROM shop.orders")}
        customers = self._one("crm", "SELECT MAX(id) FROM crm.customers")
        last = self._one("shop", "SELECT AUTO_INCREMENT - 1 FROM information_schema.tables WHERE table_name = 'orders'")
        shop.remember(orders, customers=customers, products=self._products(), last_order=max([last, *orders]))

    def _products(self) -> int:
        """Return the greatest product id."""
        return self._one("shop", "SELECT MAX(id) FROM shop.products")

    def load(self, batches: Iterable[list[ShopStatement]], loaded: Callable[[int], None]) -> None:
        """Write the first rows, one transaction per batch. `loaded` is called with the number of rows of each."""
        for batch in batches:
            with self._connections[batch[0].server].cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.executemany(batch[0].sql, [statement.values for statement in batch])
                cursor.execute("COMMIT")
            loaded(len(batch))

    def begin(self) -> None:
        """Start producers other than the captures. Here there are none."""

    def apply(self, change: ShopTransaction) -> float:
        """Execute one change. Return the monotonic time (s) at which its COMMIT returned."""
        self._execute(change.statement.server, change.statement.sql, change.statement.values)
        return time.monotonic()

    def executed(self) -> dict[str, str]:
        """Return, by source, the GTIDs that its server has executed."""
        return {server: str(self._one_text(server, "SELECT @@GLOBAL.gtid_executed")) for server in SCHEMAS}

    def covers(self, source: str, position: CapturedPosition, wanted: str) -> bool:
        """Return whether a capture has reached the position `wanted`, which `executed` returned. The server
        compares."""
        with self._connections["crm" if source == "crm" else "shop"].cursor() as cursor:
            cursor.execute("SELECT GTID_SUBSET(%s, %s)", (wanted, position.gtid_set))
            row = cursor.fetchone()
        return bool(row and row[0] == 1)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _execute(self, server: Server, sql: str, values: tuple[object, ...] = ()) -> None:
        connection, deadline, repeated = self._connections[server], time.monotonic() + RECONNECT_SECONDS, False
        while True:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(sql, values)
                return
            except pymysql.IntegrityError as error:
                if not repeated or error.args[0] != ER.DUP_ENTRY:
                    raise
                return  # the server had committed the statement before the connection was lost
            except (pymysql.OperationalError, pymysql.InternalError, pymysql.InterfaceError) as error:
                if error.args[0] not in _LOST | _FULL or time.monotonic() > deadline:
                    raise
                repeated = True
                time.sleep(0.5)
                with contextlib.suppress(pymysql.MySQLError):  # the next attempt reports it
                    connection.ping(reconnect=True)

    def _rows(self, sql: str) -> Iterable[tuple[Any, ...]]:
        with self._connections["shop"].cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _one(self, server: Server, sql: str) -> int:
        return int(self._one_text(server, sql) or 0)

    def _one_text(self, server: Server, sql: str) -> str | None:
        with self._connections[server].cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
        return None if row is None or row[0] is None else str(row[0])
