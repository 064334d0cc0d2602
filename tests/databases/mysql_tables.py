"""Random tables of MySQL and MariaDB: keys of every shape, partitions, computed and invisible columns, odd names."""

from __future__ import annotations

from random import Random

from tests.databases.kinds import Column, Kind, Table, some, value
from tests.databases.mysql_kinds import NAMES, computed, keyed, kinds, without_odd_dates


def quoted(name: str) -> str:
    """Quote an identifier."""
    return "`" + name.replace("`", "``") + "`"


class MySqlTables:
    """Creates the tables of one case; every name begins with the case's `prefix`."""

    def __init__(self, random: Random, flavour: str, prefix: str, avoid: frozenset[str] = frozenset()) -> None:
        self.random, self.flavour, self.prefix, self.avoid = random, flavour, prefix, avoid
        self.maria = flavour.startswith("maria")
        self.kinds = [kind for kind in kinds(flavour) if kind.sql.split("(")[0].split(" ")[0] not in avoid]
        if "odd dates" in avoid:
            self.kinds = [without_odd_dates(kind) for kind in self.kinds]
        self.keyed = keyed(self.kinds)
        self._names = 0

    def name(self, stem: str = "t") -> str:
        """Return a table name that the case has not used; sometimes an odd one."""
        self._names += 1
        odd = self.random.choice(NAMES) if self.random.random() < 0.3 and "odd names" not in self.avoid else stem
        return f"{self.prefix}{odd}{self._names}"

    def column_name(self, taken: list[str]) -> str:
        """Return a column name, perhaps of a dropped column, that differs from the others also without case."""
        lowered = {one.lower() for one in taken}
        while True:
            name = self.random.choice(NAMES) if self.random.random() < 0.15 else f"c{self.random.randrange(30)}"
            if name.lower() not in lowered:
                return name

    def table(self, name: str = "") -> tuple[Table, str]:
        """Return a table and the statement that creates it."""
        random = self.random
        shape = random.choices(
            ("int", "auto", "one", "composite", "unique", "prefix", "none", "nullable"), (20, 15, 25, 15, 8, 4, 7, 3)
        )[0]
        if shape in ("none", "nullable", "prefix") and "no key" in self.avoid:
            shape = "int"
        columns, key = list[Column](), tuple[str, ...]()
        if shape in ("int", "auto"):
            words = "NOT NULL" + (" AUTO_INCREMENT" if shape == "auto" else "")
            columns.append(Column(name="id", kind=Kind(sql="int", values=("1", "2"), fresh="{n}"), words=words))
            key = ("id",)
        elif shape != "none":
            number = 1 if shape in ("one", "prefix") else random.randint(1, 3)
            for _ in range(number):
                kind = random.choice([k for k in self.keyed if k.prefix == (shape == "prefix")])
                words = "NULL" if shape == "nullable" else "NOT NULL"
                columns.append(Column(name=self.column_name([c.name for c in columns]), kind=kind, words=words))
            key = tuple(column.name for column in columns)
        for _ in range(random.randint(1, 7)):
            columns.append(self.plain([column.name for column in columns]))
        if random.random() < 0.25:
            base = random.choice(columns)
            made = computed(random, [base], self.column_name([c.name for c in columns]), quoted(base.name))
            if made is not None:
                columns.insert(random.randrange(len(columns) + 1), made)
        if random.random() < 0.3:
            random.shuffle(columns)
        table = Table(name=name or self.name(), columns=columns, key=key)
        return table, self._create(table, shape)

    def plain(self, taken: list[str]) -> Column:
        """Return a column that is not in a key."""
        random, kind = self.random, self.random.choice(self.kinds)
        column = Column(name=self.column_name(taken), kind=kind)
        chance = random.random()
        if chance < 0.15 and "text" not in kind.sql and "blob" not in kind.sql and "json" not in kind.sql:
            column.words = f"NOT NULL DEFAULT {value(random, column)}"
        elif chance < 0.22 and kind.sql.startswith("timestamp"):
            digits = kind.sql[len("timestamp") : kind.sql.find(")") + 1]
            column.words = f"DEFAULT CURRENT_TIMESTAMP{digits} ON UPDATE CURRENT_TIMESTAMP{digits}"
        elif chance < 0.26 and (self.maria or self.flavour == "mysql9"):
            column.words = "INVISIBLE"
        elif chance < 0.3:
            column.words = "COMMENT 'it''s; -- no comment'"
        return column

    def _create(self, table: Table, shape: str) -> str:
        random = self.random
        parts = [column.definition(quoted(column.name)) for column in table.columns]
        key = ", ".join(quoted(name) + ("(9)" if shape == "prefix" else "") for name in table.key)
        if shape in ("unique", "nullable"):
            parts.append(f"UNIQUE KEY u ({key})")
        elif table.key:
            parts.append(f"PRIMARY KEY ({key})")
        if random.random() < 0.15:
            parts.append(f"CHECK ({quoted(table.columns[0].name)} IS NOT NULL OR 1)")
        if random.random() < 0.2:
            parts.append(f"KEY s ({quoted(random.choice(table.columns).name)})")
        options = [self._engine()]
        if random.random() < 0.2:
            options.append(f"DEFAULT CHARSET={random.choice(('latin1', 'utf8mb4', 'ucs2', 'cp1251', 'sjis'))}")
        if random.random() < 0.1:
            options.append(f"ROW_FORMAT={random.choice(('COMPACT', 'DYNAMIC', 'REDUNDANT'))}")
        if self.maria and random.random() < 0.06 and "versioning" not in self.avoid:
            options.append("WITH SYSTEM VERSIONING")
        if table.key and random.random() < 0.15:
            options.append(self._partitions(table))
        return f"CREATE TABLE {quoted(table.name)} ({', '.join(parts)}) {' '.join(options)}"

    def _engine(self) -> str:
        if "engines" in self.avoid:
            return "ENGINE=InnoDB"
        others = ["MyISAM", "MEMORY", *(["Aria"] if self.maria else ["ARCHIVE"]), "BLACKHOLE", "CSV"]
        return f"ENGINE={self.random.choices(['InnoDB', *others], [85, 5, 2, 3, 0.5, 0.5])[0]}"

    def _partitions(self, table: Table) -> str:
        first = table.column(table.key[0])
        assert first is not None
        if first.kind.fresh == "{n}" and self.random.random() < 0.5:
            table.partitions = ["p0", "p1", "p2"]
            return (
                f"PARTITION BY RANGE ({quoted(first.name)}) (PARTITION p0 VALUES LESS THAN (15), "
                "PARTITION p1 VALUES LESS THAN (30), PARTITION p2 VALUES LESS THAN MAXVALUE)"
            )
        table.partitions = ["p0", "p1", "p2"]
        return f"PARTITION BY KEY ({', '.join(quoted(name) for name in table.key)}) PARTITIONS 3"

    def insert(self, table: Table, rows: int, verb: str = "INSERT") -> str:
        """Return an INSERT of literals for some of the columns, always for those of the key."""
        columns = [c for c in table.writable() if c.name in table.key or self.random.random() < 0.8]
        if self.random.random() < 0.1 and "AUTO_INCREMENT" in "".join(c.words for c in columns):
            columns = [c for c in columns if "AUTO_INCREMENT" not in c.words]
        named = ", ".join(quoted(column.name) for column in columns)
        lines = ", ".join("(" + ", ".join(self.literal(table, c) for c in columns) + ")" for _ in range(rows))
        return f"{verb} INTO {quoted(table.name)} ({named}) VALUES {lines}"

    def literal(self, table: Table, column: Column) -> str:
        """Return a value for a column, sometimes NULL."""
        key = column.name in table.key
        if not key and self.random.random() < 0.12:
            return "NULL"
        return value(self.random, column, key=key)

    def where(self, table: Table) -> str:
        """Return a condition on a few rows."""
        random, chance = self.random, self.random.random()
        if table.key and chance < 0.6:
            parts = []
            for name in table.key:
                column = table.column(name)
                if column is not None:
                    parts.append(f"{quoted(name)} = {value(random, column, key=True)}")
            return f"WHERE {' AND '.join(parts)}" if parts else ""
        column = random.choice(table.columns)
        if chance < 0.75:
            return f"WHERE {quoted(column.name)} IS {random.choice(('', 'NOT '))}NULL"
        order = ", ".join(quoted(name) for name in table.key)
        return f"{f'ORDER BY {order} ' if order else ''}LIMIT {random.randint(1, 3)}"

    def assignments(self, table: Table, most: int = 3) -> str:
        """Return the assignments of an UPDATE, sometimes of a key column."""
        random, columns = self.random, table.writable()
        rest = [column for column in columns if column.name not in table.key]
        chosen = columns if random.random() < 0.15 or not rest else rest
        parts = []
        for column in some(random, chosen, 1, most):
            if column.kind.number and random.random() < 0.3:
                parts.append(f"{quoted(column.name)} = {quoted(column.name)} + 1")
            else:
                parts.append(f"{quoted(column.name)} = {self.literal(table, column)}")
        return ", ".join(parts)
