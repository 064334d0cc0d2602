"""Random traffic of one case on MySQL or MariaDB: transactions of every shape, with DDL in between.

Every unit yields lines and receives whether the server accepted each, to update its model of the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.databases.cases import Line
from tests.databases.kinds import Table, Unit
from tests.databases.mysql_ddl import MySqlDdl
from tests.databases.mysql_tables import MySqlTables, quoted

SESSIONS = 4
_MODES = (
    "''",
    "'ALLOW_INVALID_DATES'",
    "'NO_ZERO_IN_DATE,STRICT_TRANS_TABLES'",
    "'ANSI_QUOTES'",
    "'PAD_CHAR_TO_FULL_LENGTH'",
)


class MySqlTraffic:
    """One case: `setup` creates its tables, `unit` yields one random piece of traffic, `ending` ends open
    transactions."""

    def __init__(self, random: Random, flavour: str, prefix: str, avoid: frozenset[str] = frozenset()) -> None:
        self.random, self.flavour, self.prefix, self.avoid = random, flavour, prefix, avoid
        self.maria = flavour.startswith("maria")
        self.make = MySqlTables(random, flavour, prefix, avoid)
        self.tables: list[Table] = []
        self.prepared: list[str] = []
        self.ddl = MySqlDdl(self.make, self.tables)
        self._transactions = 0

    def settings(self) -> Unit:
        """Set the variables of each session."""
        for session in range(SESSIONS):
            mode = self.random.choices(_MODES, (70, 15, 10, 3, 2))[0]
            yield Line(session, f"SET SESSION sql_mode = {mode}")
            if self.random.random() < 0.2:
                yield Line(session, f"SET SESSION time_zone = '{self.random.choice(('+05:30', '-08:00'))}'")
            if self.random.random() < 0.08:
                yield Line(session, f"SET SESSION binlog_row_image = '{self.random.choice(('MINIMAL', 'NOBLOB'))}'")
            if self.random.random() < 0.06:
                yield Line(session, f"SET SESSION binlog_format = '{self.random.choice(('MIXED', 'STATEMENT'))}'")
            if self.flavour == "mysql80" and self.random.random() < 0.1:
                yield Line(session, "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
            if self.flavour == "mysql9" and self.random.random() < 0.2:
                yield Line(session, "SET SESSION binlog_transaction_compression = ON")
            if self.random.random() < 0.3:
                yield Line(session, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def setup(self) -> Unit:
        """Yield settings, one to three tables, perhaps with a trigger or a foreign key, and some rows."""
        yield from self.settings()
        for _ in range(self.random.choice((1, 1, 2, 2, 3))):
            yield from self._created(0)
        if self.random.random() < 0.15:
            yield from self._family()
        if self.random.random() < 0.15 and len(self.tables) > 1:
            yield from self._trigger()
        if self.random.random() < 0.08 and self.maria and "sequence" not in self.avoid:
            yield Line(0, f"CREATE SEQUENCE {quoted(self.prefix + 'seq')}")
        for table in self.tables:
            yield Line(0, self.make.insert(table, self.random.randint(1, 6)))
            yield Line(0, self.make.insert(table, 3, "INSERT IGNORE"))

    def _created(self, session: int) -> Unit:
        for _ in range(4):
            table, sql = self.make.table()
            if (yield Line(session, sql)):
                self.tables.append(table)
                return

    def _family(self) -> Unit:
        parent, sql = self.make.table()
        while parent.key != ("id",) or "InnoDB" not in sql or "PARTITION" in sql or "VERSIONING" in sql:
            parent, sql = self.make.table()
        if not (yield Line(0, sql)):
            return
        child, other = self.make.table()
        while child.key != ("id",) or "InnoDB" not in other or "PARTITION" in other or "VERSIONING" in other:
            child, other = self.make.table()
        if not (yield Line(0, other)):
            return
        self.tables += [parent, child]
        action = self.random.choice(("CASCADE", "SET NULL", "CASCADE"))
        added = f"ADD COLUMN parent INT NULL, ADD FOREIGN KEY (parent) REFERENCES {quoted(parent.name)} (id)"
        if (yield Line(0, f"ALTER TABLE {quoted(child.name)} {added} ON DELETE {action} ON UPDATE {action}")):
            self.ddl.added(child, "parent", "int", "{n}")
            for n in range(10, 20):
                yield Line(0, f"INSERT IGNORE INTO {quoted(parent.name)} (id) VALUES ({n})")
                yield Line(0, f"INSERT IGNORE INTO {quoted(child.name)} (id, parent) VALUES ({n + 10}, {n})")

    def _trigger(self) -> Unit:
        first, second = self.random.sample(self.tables, 2)
        event = self.random.choice(("AFTER INSERT", "BEFORE UPDATE", "AFTER DELETE"))
        body = self.make.insert(second, 1, "REPLACE" if self.random.random() < 0.5 else "INSERT IGNORE")
        yield Line(
            0, f"CREATE TRIGGER {quoted(self.prefix + 'tr')} {event} ON {quoted(first.name)} FOR EACH ROW {body}"
        )

    def unit(self) -> Unit:
        """Yield one piece of traffic."""
        if not self.tables:
            yield from self._created(0)
            return
        shapes: list[tuple[int, Callable[[], Unit]]] = [
            (40, self._single), (22, self._transaction), (10, self._xa), (4, self._temporary), (3, self._loaded),
            (3, self._interleaved), (2, self._locked), (2, self._set), (2, self._sequence), (1, self._hidden_commit),
        ]  # fmt: skip
        shapes = [(weight, one) for weight, one in shapes if one.__name__.strip("_") not in self.avoid]
        if not self.prepared:
            shapes.append((16, self.ddl.unit))
            shapes.append((2, lambda: self._created(0)))
        yield from self.random.choices([one for _, one in shapes], [weight for weight, _ in shapes])[0]()

    def ending(self) -> Unit:
        """End every prepared transaction."""
        while self.prepared:
            yield from self._finish()

    def change(self) -> str:
        """Yield one statement that changes rows."""
        random, table = self.random, self.random.choice(self.tables)
        kind = random.choices(
            ("insert", "ignore", "replace", "duplicate", "select", "update", "delete", "many", "multi", "truncated"),
            (30, 5, 8, 8, 3, 28, 12, 3, 3, 0.5),
        )[0]
        if kind == "insert":
            return self.make.insert(table, random.choice((1, 1, 1, 2, 5)))
        if kind == "ignore":
            return self.make.insert(table, 2, "INSERT IGNORE")
        if kind == "replace":
            return self.make.insert(table, random.choice((1, 2)), "REPLACE")
        if kind == "duplicate":
            return f"{self.make.insert(table, 2)} ON DUPLICATE KEY UPDATE {self.make.assignments(table, 2)}"
        if kind == "select":
            names = ", ".join(quoted(column.name) for column in table.writable())
            return f"INSERT IGNORE INTO {quoted(table.name)} ({names}) SELECT {names} FROM {quoted(table.name)} LIMIT 2"
        if kind == "delete":
            return f"DELETE FROM {quoted(table.name)} {self.make.where(table) or 'LIMIT 1'}"
        if kind == "many":
            rows = ", ".join(["()"] * 3)
            return f"INSERT INTO {quoted(table.name)} () VALUES {rows}"
        if kind == "truncated":
            return f"DELETE FROM {quoted(table.name)}"
        if kind == "multi" and len(self.tables) > 1:
            return self._multi()
        return f"UPDATE {quoted(table.name)} SET {self.make.assignments(table)} {self.make.where(table)}"

    def _multi(self) -> str:
        one, two = self.random.sample(self.tables, 2)
        if self.random.random() < 0.4:
            named = self.random.choice(one.columns).name
            return f"DELETE a, b FROM {quoted(one.name)} a JOIN {quoted(two.name)} b ON a.{quoted(named)} IS NULL"
        a, b = self.random.choice(one.writable()), self.random.choice(two.writable())
        first, second = self.make.literal(one, a), self.make.literal(two, b)
        condition = f"a.{quoted(self.random.choice(one.columns).name)} IS NULL"
        return (
            f"UPDATE {quoted(one.name)} a JOIN {quoted(two.name)} b ON {condition} "
            f"SET a.{quoted(a.name)} = {first}, b.{quoted(b.name)} = {second}"
        )

    def _single(self) -> Unit:
        for _ in range(self.random.randint(1, 3)):
            yield Line(self.random.randrange(SESSIONS), self.change())

    def _body(self, session: int) -> Unit:
        """Yield the changes of one transaction, with savepoints."""
        points = 0
        for _ in range(self.random.choice((1, 2, 3, 3, 6))):
            chance = self.random.random()
            if chance < 0.12:
                points += 1
                yield Line(session, f"SAVEPOINT s{points}")
            elif chance < 0.2 and points and "savepoints" not in self.avoid:
                yield Line(session, f"ROLLBACK TO SAVEPOINT s{self.random.randint(1, points)}")
            elif chance < 0.24 and points:
                yield Line(session, f"RELEASE SAVEPOINT s{self.random.randint(1, points)}")
            elif chance < 0.27 and "temporary" not in self.avoid:
                yield Line(session, f"CREATE TEMPORARY TABLE IF NOT EXISTS {quoted(self.prefix + 'tmp')} (a INT)")
            elif chance < 0.3 and "temporary" not in self.avoid:
                yield Line(session, f"DROP TEMPORARY TABLE IF EXISTS {quoted(self.prefix + 'tmp')}")
            else:
                yield Line(session, self.change())

    def _transaction(self) -> Unit:
        session = self.random.randrange(SESSIONS)
        yield Line(session, self.random.choice(("BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT")))
        yield from self._body(session)
        ends = ("COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "BEGIN")
        end = self.random.choices(ends, (70, 24, 3, 3))[0]
        yield Line(session, end)
        if end in ("COMMIT AND CHAIN", "BEGIN"):
            yield Line(session, self.change())
            yield Line(session, "COMMIT")

    def _interleaved(self) -> Unit:
        """Interleave two transactions of two sessions, over different tables if possible."""
        sessions = self.random.sample(range(SESSIONS), 2)
        rest = {session: [Line(session, "BEGIN"), *self._body(session)] for session in sessions}
        while any(rest.values()):
            session = self.random.choice([session for session in sessions if rest[session]])
            yield rest[session].pop(0)
        for session in sessions:
            yield Line(session, self.random.choice(("COMMIT", "COMMIT", "ROLLBACK")))

    def _xa(self) -> Unit:
        """Prepare a transaction and end it now or later, in the session that started it or another one."""
        if self.prepared and self.random.random() < 0.6:
            yield from self._finish()
            return
        session = self.random.randrange(SESSIONS)
        self._transactions += 1
        form = self.random.choice(("'{0}'", "'{0}','b'", "'{0}',x'00ff',7"))
        xid = form.format(f"{self.prefix}{self._transactions}")
        if not (yield Line(session, f"XA START {xid}")):
            return
        yield from self._body(session)
        yield Line(session, f"XA END {xid}")
        if self.random.random() < 0.2:
            one = self.random.choice(("XA COMMIT {} ONE PHASE", "XA ROLLBACK {}"))
            yield Line(session, one.format(xid))
            return
        if (yield Line(session, f"XA PREPARE {xid}")):
            if self.random.random() < 0.5:
                self.prepared.append(xid)
                yield Line(session, "--- new session")
            else:
                yield Line(session, self.random.choice(("XA COMMIT {}", "XA COMMIT {}", "XA ROLLBACK {}")).format(xid))
        else:
            yield Line(session, f"XA ROLLBACK {xid}")

    def _finish(self) -> Unit:
        xid = self.prepared.pop(self.random.randrange(len(self.prepared)))
        end = self.random.choice(("XA COMMIT", "XA COMMIT", "XA ROLLBACK"))
        for _ in range(5):  # the server releases a closed session a moment later
            if (yield Line(self.random.randrange(SESSIONS), f"{end} {xid}")):
                return

    def _temporary(self) -> Unit:
        session, table = self.random.randrange(SESSIONS), self.random.choice(self.tables)
        name = quoted(self.prefix + "tmp2")
        yield Line(session, "BEGIN")
        yield Line(session, self.change())
        yield Line(session, f"CREATE TEMPORARY TABLE {name} AS SELECT * FROM {quoted(table.name)} LIMIT 2")
        yield Line(session, f"UPDATE {name} SET {self.make.assignments(table, 1)}")
        yield Line(session, f"REPLACE INTO {quoted(table.name)} SELECT * FROM {name}")
        yield Line(session, self.random.choice(("COMMIT", "ROLLBACK")))
        yield Line(session, f"DROP TEMPORARY TABLE IF EXISTS {name}")

    def _loaded(self) -> Unit:
        table = self.random.choice(self.tables)
        columns = [column for column in table.writable() if column.kind.number or "char" in column.kind.sql]
        if not columns:
            return
        rows = ["\t".join(self._field() for _ in columns) for _ in range(self.random.randint(1, 5))]
        content = ("\n".join(rows) + "\n").encode().hex()
        names = ", ".join(quoted(column.name) for column in columns)
        how = self.random.choice(("REPLACE ", "IGNORE "))
        sql = (
            f"LOAD DATA LOCAL INFILE '@{content}' {how}INTO TABLE {quoted(table.name)} CHARACTER SET utf8mb4 ({names})"
        )
        yield Line(0, sql)

    def _field(self) -> str:
        return self.random.choice((str(self.random.randrange(10, 50)), "\\N", f"k{self.random.randrange(10, 50)}", ""))

    def _locked(self) -> Unit:
        table = self.random.choice(self.tables)
        yield Line(0, f"LOCK TABLES {quoted(table.name)} WRITE")
        yield Line(0, self.make.insert(table, 1, "REPLACE"))
        yield Line(0, f"UPDATE {quoted(table.name)} SET {self.make.assignments(table)} {self.make.where(table)}")
        yield Line(0, "UNLOCK TABLES")

    def _set(self) -> Unit:
        session = self.random.randrange(SESSIONS)
        yield Line(session, "SET autocommit = 0")
        yield from self._body(session)
        yield Line(session, self.random.choice(("COMMIT", "ROLLBACK")))
        yield Line(session, "SET autocommit = 1")

    def _sequence(self) -> Unit:
        if self.maria:
            yield Line(0, f"SELECT NEXTVAL({quoted(self.prefix + 'seq')})")
        else:
            yield Line(0, "FLUSH BINARY LOGS")

    def _hidden_commit(self) -> Unit:
        """DDL in a transaction commits it."""
        yield Line(1, "BEGIN")
        yield Line(1, self.change())
        if not self.prepared:
            yield from self._created(1)
        yield Line(1, self.change())
        yield Line(1, "COMMIT")
