"""Random DDL of one case on MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.databases.cases import Line
from tests.databases.kinds import Column, Kind, Table, Unit, value
from tests.databases.mysql_tables import MySqlTables, quoted

_NEIGHBOURS = {
    "int", "bigint", "varchar(60)", "longtext", "datetime(3)", "timestamp(6) null", "date", "decimal(10,2)", "double",
    "enum('a','größe','漢字')", "set('a','b','größe')", "char(12)", "varbinary(300)",
}  # fmt: skip


class MySqlDdl:
    """Alters the tables in `tables` and updates them when the server accepts a statement."""

    def __init__(self, make: MySqlTables, tables: list[Table]) -> None:
        self.make, self.random, self.tables = make, make.random, tables

    def unit(self) -> Unit:
        """Make one alteration of one table."""
        shapes: list[tuple[int, Callable[[Table], Unit]]] = [
            (20, self._add), (10, self._drop), (14, self._modify), (8, self._rename_column), (6, self._rename),
            (5, self._swap), (6, self._truncate), (5, self._partition), (5, self._select), (5, self._like),
            (3, self._again), (3, self._key), (3, self._both), (3, self._charset), (4, self._options), (2, self._moved),
        ]  # fmt: skip
        shapes = [(weight, one) for weight, one in shapes if one.__name__.strip("_") not in self.make.avoid]
        table = self.random.choice(self.tables)
        yield from self.random.choices([one for _, one in shapes], [weight for weight, _ in shapes])[0](table)

    def added(self, table: Table, name: str, sql: str, fresh: str) -> None:
        """Choose a column that an earlier statement added."""
        table.columns.append(Column(name=name, kind=Kind(sql=sql, values=("NULL", "11"), fresh=fresh, number=True)))

    def _alter(self, table: Table, what: str) -> Line:
        extra = self.random.choices(("", ", ALGORITHM=COPY", ", ALGORITHM=INSTANT"), (80, 15, 5))[0]
        return Line(0, f"ALTER TABLE {quoted(table.name)} {what}{extra}")

    def _add(self, table: Table) -> Unit:
        column = self.make.plain([one.name for one in table.columns])
        at, place = len(table.columns), ""
        chance = self.random.random()
        if chance < 0.2:
            at, place = 0, " FIRST"
        elif chance < 0.5:
            at = self.random.randrange(len(table.columns)) + 1
            place = f" AFTER {quoted(table.columns[at - 1].name)}"
        if (yield self._alter(table, f"ADD COLUMN {column.definition(quoted(column.name))}{place}")):
            table.columns.insert(at, column)
            yield Line(1, self.make.insert(table, 1, "REPLACE"))

    def _drop(self, table: Table) -> Unit:
        rest = [column for column in table.columns if column.name not in table.key]
        if not rest or len(table.columns) < 2:
            return
        column = self.random.choice(rest)
        if (yield self._alter(table, f"DROP COLUMN {quoted(column.name)}")):
            table.columns.remove(column)

    def _modify(self, table: Table) -> Unit:
        column = self.random.choice(table.columns)
        if column.computed:
            return
        kind = self.random.choice(self.make.keyed if column.name in table.key else self.make.kinds)
        if self.random.random() < 0.4:  # similar types, which servers convert into each other
            kind = self.random.choice([one for one in self.make.kinds if one.sql in _NEIGHBOURS])
        changed = replace(column, kind=kind, words="NOT NULL" if column.name in table.key else "")
        verb = f"MODIFY COLUMN {changed.definition(quoted(column.name))}"
        if self.random.random() < 0.2:
            verb += " FIRST"
            if (yield self._alter(table, verb)):
                table.columns.remove(column)
                table.columns.insert(0, changed)
        elif (yield self._alter(table, verb)):
            table.columns[table.columns.index(column)] = changed

    def _rename_column(self, table: Table) -> Unit:
        column = self.random.choice(table.columns)
        name = self.make.column_name([one.name for one in table.columns])
        if self.random.random() < 0.5:
            sql = f"RENAME COLUMN {quoted(column.name)} TO {quoted(name)}"
        else:
            sql = f"CHANGE COLUMN {quoted(column.name)} {column.definition(quoted(name))}"
        if (yield self._alter(table, sql)):
            table.key = tuple(name if one == column.name else one for one in table.key)
            column.name = name

    def _rename(self, table: Table) -> Unit:
        name = self.make.name("r")
        verb = self.random.choice(("RENAME TABLE {} TO {}", "ALTER TABLE {} RENAME TO {}"))
        if (yield Line(0, verb.format(quoted(table.name), quoted(name)))):
            table.name = name

    def _swap(self, table: Table) -> Unit:
        if len(self.tables) < 2:
            return
        other = self.random.choice([one for one in self.tables if one is not table])
        a, b, c = quoted(table.name), quoted(other.name), quoted(self.make.prefix + "swap")
        if (yield Line(0, f"RENAME TABLE {a} TO {c}, {b} TO {a}, {c} TO {b}")):
            table.name, other.name = other.name, table.name

    def _truncate(self, table: Table) -> Unit:
        yield Line(0, f"TRUNCATE TABLE {quoted(table.name)}")
        yield Line(1, self.make.insert(table, 2, "REPLACE"))

    def _partition(self, table: Table) -> Unit:
        name = self.random.choice(table.partitions or ["p0"])
        sql = self.random.choice((
            f"TRUNCATE PARTITION {name}", f"DROP PARTITION {name}", "REMOVE PARTITIONING", "COALESCE PARTITION 1",
            f"REBUILD PARTITION {name}", "PARTITION BY HASH (id) PARTITIONS 2", "ADD PARTITION PARTITIONS 2",
        ))  # fmt: skip
        if self.random.random() < 0.3 and table.partitions:
            other = quoted(self.make.prefix + f"ex{self.random.randrange(100)}")
            if (yield Line(0, f"CREATE TABLE {other} LIKE {quoted(table.name)}")):
                yield Line(0, f"ALTER TABLE {other} REMOVE PARTITIONING")
                yield Line(0, f"ALTER TABLE {quoted(table.name)} EXCHANGE PARTITION {name} WITH TABLE {other}")
            return
        if (yield Line(0, f"ALTER TABLE {quoted(table.name)} {sql}")) and sql.startswith("DROP"):
            table.partitions.remove(name)

    def _select(self, table: Table) -> Unit:
        name = self.make.name("s")
        key = ", ".join(quoted(one) + ("(9)" if self._long(table, one) else "") for one in table.key)
        primary = (
            f"(PRIMARY KEY ({key}))" if key and (self.random.random() < 0.8 or "no key" in self.make.avoid) else ""
        )
        if (yield Line(0, f"CREATE TABLE {quoted(name)} {primary} AS SELECT * FROM {quoted(table.name)}")):
            columns = [replace(column, computed=False, words="") for column in table.columns]
            self.tables.append(Table(name=name, columns=columns, key=table.key if primary else ()))

    @staticmethod
    def _long(table: Table, name: str) -> bool:
        column = table.column(name)
        return column is not None and column.kind.prefix

    def _like(self, table: Table) -> Unit:
        name = self.make.name("l")
        if (yield Line(0, f"CREATE TABLE {quoted(name)} LIKE {quoted(table.name)}")):
            copy = Table(
                name=name, columns=[replace(c) for c in table.columns], key=table.key, partitions=[*table.partitions]
            )
            self.tables.append(copy)
            names = ", ".join(quoted(column.name) for column in table.writable())
            yield Line(0, f"INSERT INTO {quoted(name)} ({names}) SELECT {names} FROM {quoted(table.name)}")

    def _again(self, table: Table) -> Unit:
        """Drop the table and create another one under its name."""
        if (yield Line(0, f"DROP TABLE {quoted(table.name)}")):
            other, sql = self.make.table(table.name)
            self.tables.remove(table)
            if (yield Line(0, sql)):
                self.tables.append(other)
                yield Line(0, self.make.insert(other, 3, "INSERT IGNORE"))

    def _key(self, table: Table) -> Unit:
        """Change, add or drop the primary key."""
        chance = self.random.random()
        if chance < 0.4:
            name = self.make.column_name([one.name for one in table.columns])
            drop = "DROP PRIMARY KEY, " if table.key else ""
            if (yield Line(0, f"ALTER TABLE {quoted(table.name)} {drop}ADD COLUMN {quoted(name)} INT NOT NULL "
                              f"AUTO_INCREMENT, ADD PRIMARY KEY ({quoted(name)})")):  # fmt: skip
                self.added(table, name, "int", "{n}")
                table.key = (name,)
        elif chance < 0.7 and len(table.key) == 1:
            rest = [c for c in table.columns if c.name not in table.key and c.kind.fresh and not c.kind.prefix]
            if rest:
                extra = self.random.choice(rest)
                keys = f"{quoted(table.key[0])}, {quoted(extra.name)}"
                if (yield Line(0, f"ALTER TABLE {quoted(table.name)} DROP PRIMARY KEY, ADD PRIMARY KEY ({keys})")):
                    table.key = (table.key[0], extra.name)
        elif "no key" not in self.make.avoid and (yield Line(0, f"ALTER TABLE {quoted(table.name)} DROP PRIMARY KEY")):
            table.key = ()

    def _both(self, table: Table) -> Unit:
        """Drop a column and add one with its name, in one statement."""
        rest = [column for column in table.writable() if column.name not in table.key]
        if not rest:
            return
        column = self.random.choice(rest)
        again = Column(name=column.name, kind=self.random.choice(self.make.kinds))
        name = quoted(column.name)
        if (yield self._alter(table, f"DROP COLUMN {name}, ADD COLUMN {again.definition(name)}")):
            table.columns.remove(column)
            table.columns.append(again)

    def _charset(self, table: Table) -> Unit:
        charset = self.random.choice(("utf8mb4", "latin1", "utf16", "gbk", "binary"))
        yield Line(0, f"ALTER TABLE {quoted(table.name)} CONVERT TO CHARACTER SET {charset}")

    def _options(self, table: Table) -> Unit:
        column = self.random.choice(table.columns)
        sql = self.random.choice((
            "ENGINE=InnoDB", "ENGINE=MyISAM", "FORCE", "COMMENT='x'", "AUTO_INCREMENT=100",
            f"ADD INDEX ({quoted(column.name)})",
            f"ALTER COLUMN {quoted(column.name)} SET DEFAULT {value(self.random, column)}", "ADD SYSTEM VERSIONING",
            f"ALTER COLUMN {quoted(column.name)} SET INVISIBLE", f"ADD UNIQUE ({quoted(column.name)})",
        ))  # fmt: skip
        avoided = {"engines": "MyISAM", "versioning": "VERSIONING"}
        if any(name in self.make.avoid and word in sql for name, word in avoided.items()):
            return
        yield Line(0, f"ALTER TABLE {quoted(table.name)} {sql}")

    def _moved(self, table: Table) -> Unit:
        """Rename the table to a database that is not captured, and back."""
        unavailable = f"elsewhere.{quoted(self.make.prefix + 'away')}"
        if (yield Line(0, f"RENAME TABLE {quoted(table.name)} TO {unavailable}")):
            yield Line(0, f"INSERT IGNORE INTO {unavailable} () VALUES ()")
            yield Line(0, f"DELETE FROM {unavailable} LIMIT 1")
            yield Line(0, f"RENAME TABLE {unavailable} TO {quoted(table.name)}")
