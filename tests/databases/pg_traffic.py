"""Random traffic of one case on PostgreSQL: transactions of every shape, with DDL in and between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.databases.cases import Line
from tests.databases.kinds import Column, Table, Unit
from tests.databases.pg_tables import PgTables, quoted

SESSIONS = 2


class PgTraffic:
    """One case: `setup` creates its tables, `unit` yields one random piece of traffic, `ending` ends open
    transactions."""

    def __init__(self, random: Random, version: int, prefix: str, avoid: frozenset[str]) -> None:
        self.random, self.prefix, self.avoid = random, prefix, avoid
        self.make = PgTables(random, version, prefix, avoid)
        self.tables: list[Table] = []
        self.prepared: list[str] = []
        self._transactions = 0

    def setup(self) -> Unit:
        """Yield one to three tables, perhaps with a trigger or a foreign key, and some rows."""
        for _ in range(self.random.choice((1, 1, 2, 2, 3))):
            yield from self._created(0)
        if self.random.random() < 0.15:
            yield from self._family()
        if self.random.random() < 0.15 and len(self.tables) > 1:
            yield from self._trigger()
        for table in self.tables:
            yield Line(0, self.make.insert(table, self.random.randint(1, 5), " ON CONFLICT DO NOTHING"))
            yield Line(0, self.make.insert(table, 3, " ON CONFLICT DO NOTHING"))

    def _created(self, session: int) -> Unit:
        table, statements = self.make.table()
        for number, sql in enumerate(statements):
            ok = yield Line(session, sql)
            if not number and not ok:
                return
        self.tables.append(table)

    def _family(self) -> Unit:
        parent, child = quoted(self.prefix + "parent"), quoted(self.prefix + "child")
        action = self.random.choice(("CASCADE", "SET NULL"))
        yield Line(0, f"CREATE TABLE {parent} (id INT PRIMARY KEY, t TEXT)")
        yield Line(0, f"CREATE TABLE {child} (id INT PRIMARY KEY, p INT REFERENCES {parent} ON DELETE {action} "
                      f"ON UPDATE {action})")  # fmt: skip
        yield Line(0, f"INSERT INTO {parent} SELECT n, 'p' || n FROM generate_series(1, 9) n")
        yield Line(0, f"INSERT INTO {child} SELECT n, n % 9 + 1 FROM generate_series(1, 20) n")
        for _ in range(3):
            yield Line(1, f"DELETE FROM {parent} WHERE id = {self.random.randint(1, 9)}")
            yield Line(1, f"UPDATE {parent} SET id = id + 100 WHERE id = {self.random.randint(1, 9)}")

    def _trigger(self) -> Unit:
        first, second = self.random.sample(self.tables, 2)
        name = quoted(self.prefix + "fn")
        body = self.make.insert(second, 1, " ON CONFLICT DO NOTHING")
        yield Line(0, f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $x$ BEGIN {body}; RETURN NULL; "
                      "EXCEPTION WHEN others THEN RETURN NULL; END $x$")  # fmt: skip
        event = self.random.choice(("INSERT", "UPDATE", "DELETE"))
        yield Line(0, f"CREATE TRIGGER tr AFTER {event} ON {quoted(first.name)} FOR EACH ROW EXECUTE FUNCTION {name}()")

    def unit(self) -> Unit:
        """Yield one piece of traffic."""
        if not self.tables:
            yield from self._created(0)
            return
        shapes: list[tuple[int, Callable[[], Unit]]] = [
            (40, self._single), (25, self._transaction), (6, self._prepared), (4, self._copied), (3, self._block),
            (4, self._temporary),
        ]  # fmt: skip
        if not self.prepared:
            shapes += [(18, self._ddl), (2, lambda: self._created(0))]
        shapes = [(weight, one) for weight, one in shapes if one.__name__.strip("_") not in self.avoid]
        yield from self.random.choices([one for _, one in shapes], [weight for weight, _ in shapes])[0]()

    def ending(self) -> Unit:
        """End every prepared transaction."""
        while self.prepared:
            yield from self._finish()

    def change(self) -> str:
        """Yield one statement that changes rows."""
        random, table = self.random, self.random.choice(self.tables)
        name = quoted(table.name)
        kind = random.choices(
            ("insert", "ignore", "upsert", "select", "update", "delete", "all", "with"), (26, 8, 14, 3, 32, 12, 1, 3)
        )[0]
        if kind == "insert":
            return self.make.insert(table, random.choice((1, 1, 2, 5)))
        if kind == "ignore":
            return self.make.insert(table, 2, " ON CONFLICT DO NOTHING")
        if kind == "upsert":
            return self.make.upsert(table)
        if kind == "delete":
            return f"DELETE FROM {name} {self.make.where(table) or 'WHERE true'}"
        if kind == "all":
            return f"DELETE FROM {name}"
        if kind == "with":
            gone = f"WITH gone AS (DELETE FROM {name} {self.make.where(table)} RETURNING 1) "
            return f"{gone}UPDATE {quoted(random.choice(self.tables).name)} SET {self.make.assignments(table, 1)}"
        if kind == "select":
            names = ", ".join(quoted(column.name) for column in table.writable())
            return f"INSERT INTO {name} ({names}) SELECT {names} FROM {name} LIMIT 2 ON CONFLICT DO NOTHING"
        return f"UPDATE {name} SET {self.make.assignments(table)} {self.make.where(table)}"

    def _single(self) -> Unit:
        for _ in range(self.random.randint(1, 3)):
            yield Line(self.random.randrange(SESSIONS), self.change())

    def _body(self, session: int) -> Unit:
        points = 0
        for _ in range(self.random.choice((1, 2, 3, 3, 6))):
            chance = self.random.random()
            if chance < 0.2:
                points += 1
                yield Line(session, f"SAVEPOINT s{points}")
            elif chance < 0.3 and points:
                yield Line(session, f"ROLLBACK TO SAVEPOINT s{self.random.randint(1, points)}")
            elif chance < 0.33 and points:
                yield Line(session, f"RELEASE SAVEPOINT s{self.random.randint(1, points)}")
            elif chance < 0.36 and "truncate" not in self.avoid:
                yield Line(session, f"TRUNCATE {quoted(self.random.choice(self.tables).name)}")
            elif not (yield Line(session, self.change())) and points:
                yield Line(session, f"ROLLBACK TO SAVEPOINT s{points}")

    def _transaction(self) -> Unit:
        session = self.random.randrange(SESSIONS)
        yield Line(session, self.random.choice(("BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ")))
        if self.random.random() < 0.15 and not self.prepared:
            yield Line(session, "SAVEPOINT ddl")
            table = self.random.choice(self.tables)
            column = self.make.plain([one.name for one in table.columns])
            added = f"ALTER TABLE {quoted(table.name)} ADD COLUMN {column.definition(quoted(column.name))}"
            yield Line(session, added)
            yield from self._body(session)
            yield Line(session, "ROLLBACK")
            return
        yield from self._body(session)
        yield Line(session, self.random.choices(("COMMIT", "ROLLBACK"), (75, 25))[0])

    def _prepared(self) -> Unit:
        if self.prepared and self.random.random() < 0.6:
            yield from self._finish()
            return
        session = self.random.randrange(SESSIONS)
        self._transactions += 1
        name = f"{self.prefix}{self._transactions}"
        yield Line(session, "BEGIN")
        yield from self._body(session)
        if (yield Line(session, f"PREPARE TRANSACTION '{name}'")):
            self.prepared.append(name)
        yield Line(session, "ROLLBACK")
        if self.random.random() < 0.5 and self.prepared:
            yield from self._finish()

    def _finish(self) -> Unit:
        name = self.prepared.pop()
        end = self.random.choice(("COMMIT PREPARED", "COMMIT PREPARED", "ROLLBACK PREPARED"))
        yield Line(self.random.randrange(SESSIONS), f"{end} '{name}'")

    def _copied(self) -> Unit:
        table = self.random.choice(self.tables)
        columns = [c for c in table.writable() if c.kind.sql in ("int", "text", "bigint", "varchar(200)", "posint")]
        if not columns:
            return
        rows = ["\t".join(str(self.random.randrange(10, 99)) for _ in columns) for _ in range(3)]
        names = ", ".join(quoted(column.name) for column in columns)
        content = ("\n".join(rows) + "\n").encode().hex()
        yield Line(0, f"COPY {quoted(table.name)} ({names}) FROM STDIN '@{content}'")

    def _block(self) -> Unit:
        """Yield subtransactions that fail."""
        good, bad = self.change(), self.make.insert(self.random.choice(self.tables), 1)
        inner = f"BEGIN {bad}; RAISE EXCEPTION 'no'; EXCEPTION WHEN others THEN NULL; END"
        yield Line(0, f"DO $x$ BEGIN {good}; {inner}; END $x$")

    def _temporary(self) -> Unit:
        name, table = quoted(self.prefix + "tmp"), quoted(self.random.choice(self.tables).name)
        yield Line(0, "BEGIN")
        yield Line(0, f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT * FROM {table} LIMIT 2")
        yield Line(0, f"DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} LIMIT 1)")
        yield Line(0, self.random.choice(("COMMIT", "ROLLBACK")))

    def _ddl(self) -> Unit:
        table = self.random.choice(self.tables)
        shapes: list[tuple[int, Callable[[Table], Unit]]] = [
            (20, self._add), (10, self._drop), (10, self._retype), (8, self._rename_column), (6, self._rename),
            (5, self._swap), (6, self._truncate), (5, self._as), (4, self._again), (5, self._partition),
            (4, self._other),
        ]  # fmt: skip
        shapes = [(weight, one) for weight, one in shapes if one.__name__.strip("_") not in self.avoid]
        yield from self.random.choices([one for _, one in shapes], [weight for weight, _ in shapes])[0](table)

    def _alter(self, table: Table, what: str) -> Line:
        return Line(0, f"ALTER TABLE {quoted(table.name)} {what}")

    def _add(self, table: Table) -> Unit:
        column = self.make.plain([one.name for one in table.columns])
        if (yield self._alter(table, f"ADD COLUMN {column.definition(quoted(column.name))}")):
            table.columns.append(column)
            yield Line(1, self.make.upsert(table))

    def _drop(self, table: Table) -> Unit:
        rest = [column for column in table.columns if column.name not in table.key]
        if len(rest) > 1:
            column = self.random.choice(rest)
            if (yield self._alter(table, f"DROP COLUMN {quoted(column.name)}")):
                table.columns.remove(column)

    def _retype(self, table: Table) -> Unit:
        column, kind = self.random.choice(table.columns), self.random.choice(self.make.kinds)
        name = quoted(column.name)
        if column.computed:
            return
        using = self.random.choice((f" USING {name}::text::{kind.sql}", "", f" USING {name}::{kind.sql}"))
        if (yield self._alter(table, f"ALTER COLUMN {name} TYPE {kind.sql}{using}")):
            table.columns[table.columns.index(column)] = replace(column, kind=kind)

    def _rename_column(self, table: Table) -> Unit:
        column = self.random.choice(table.columns)
        name = self.make.column_name([one.name for one in table.columns])
        if (yield self._alter(table, f"RENAME COLUMN {quoted(column.name)} TO {quoted(name)}")):
            table.key = tuple(name if one == column.name else one for one in table.key)
            column.name = name

    def _rename(self, table: Table) -> Unit:
        name = self.make.name("r")
        if (yield self._alter(table, f"RENAME TO {quoted(name)}")):
            table.name = name

    def _swap(self, table: Table) -> Unit:
        if len(self.tables) < 2:
            return
        other = self.random.choice([one for one in self.tables if one is not table])
        third = quoted(self.prefix + "swap")
        yield Line(0, "BEGIN")
        yield self._alter(table, f"RENAME TO {third}")
        yield self._alter(other, f"RENAME TO {quoted(table.name)}")
        yield Line(0, f"ALTER TABLE {third} RENAME TO {quoted(other.name)}")
        if (yield Line(0, "COMMIT")):
            table.name, other.name = other.name, table.name

    def _truncate(self, table: Table) -> Unit:
        yield Line(0, f"TRUNCATE {quoted(table.name)} CASCADE")
        yield Line(1, self.make.upsert(table))

    def _as(self, table: Table) -> Unit:
        name = self.make.name("s")
        if (yield Line(0, f"CREATE TABLE {quoted(name)} AS SELECT * FROM {quoted(table.name)}")) and table.key:
            columns = [Column(name=c.name, kind=c.kind) for c in table.columns]
            key = ", ".join(quoted(one) for one in table.key)
            if (yield Line(0, f"ALTER TABLE {quoted(name)} ADD PRIMARY KEY ({key})")):
                self.tables.append(Table(name=name, columns=columns, key=table.key))

    def _again(self, table: Table) -> Unit:
        if (yield Line(0, f"DROP TABLE {quoted(table.name)}")):
            self.tables.remove(table)
            other, statements = self.make.table(table.name)
            if (yield Line(0, statements[0])):
                for sql in statements[1:]:
                    yield Line(0, sql)
                self.tables.append(other)
                yield Line(0, self.make.upsert(other))

    def _partition(self, table: Table) -> Unit:
        if not table.partitions:
            return
        number = self.random.randrange(len(table.partitions))
        part = quoted(table.partitions[number])
        what = self.random.choice(("truncate", "detach", "drop"))
        if what == "truncate":
            yield Line(0, f"TRUNCATE {part}")
        elif what == "drop":
            yield Line(0, f"DROP TABLE {part}")
        elif (yield self._alter(table, f"DETACH PARTITION {part}")) and self.random.random() < 0.6:
            yield Line(0, f"DELETE FROM {part} WHERE ctid IN (SELECT ctid FROM {part} LIMIT 1)")
            values = f"FOR VALUES WITH (MODULUS 2, REMAINDER {number})"
            yield self._alter(table, f"ATTACH PARTITION {part} {values}")

    def _other(self, table: Table) -> Unit:
        column = quoted(self.random.choice(table.columns).name)
        yield self._alter(table, self.random.choice((
            "REPLICA IDENTITY FULL", "REPLICA IDENTITY DEFAULT", f"ALTER COLUMN {column} SET STORAGE EXTERNAL",
            f"ALTER COLUMN {column} DROP NOT NULL", "SET (fillfactor = 50)", "SET UNLOGGED" if "unlogged" not in
            self.avoid else "SET LOGGED", "CLUSTER ON x", f"ALTER COLUMN {column} DROP EXPRESSION",
        )))  # fmt: skip
