"""SQL dialects: how version and sql_mode of a server change the meaning of statements and the printed form of types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cdc.model.errors import UsageError
from cdc.model.identifiers import fold_identifier

# The logs of the other servers contain no DDL to parse.
ServerName = Literal["mysql", "mariadb", "postgresql", "kafka", "syslog", "maxscale"]

# Default versions of `tailorbird ddl`.
NEWEST = {"mysql": 90700, "mariadb": 101100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A server's version, and the settings of a session that affect DDL.

    `version` has the form of executable comments: 80036 is 8.0.36, 101106 is 10.11.6. `explicit_timestamps` is the
    variable explicit_defaults_for_timestamp; None is the version's default. `fold_names`: the server compares table
    names in lower case (lower_case_table_names > 0). Then `spelt` and `spelt_databases` map lower-case names to the
    spelling in the topology. `strict`: the sql_mode rejects values that a column cannot store, instead of adjusting
    them. `ansi_quotes`, `backslash_escapes` and `real_as_float` are modes of the sql_mode.
    """

    server: ServerName
    version: int
    ansi_quotes: bool = False
    backslash_escapes: bool = True
    real_as_float: bool = False
    explicit_timestamps: bool | None = None
    fold_names: bool = False
    strict: bool = False
    spelt: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict, compare=False)
    spelt_databases: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def maria(self) -> bool:
        """Return whether the server is MariaDB."""
        return self.server == "mariadb"

    @property
    def prints_widths(self) -> bool:
        """Return whether integer types are printed with their display width (`int(11)`)."""
        return self.maria or self.version < 80019

    @property
    def utf8(self) -> str:
        """Return the name that information_schema uses for three-byte UTF-8."""
        return "utf8mb3" if self.version >= (100601 if self.maria else 80029) else "utf8"

    @property
    def timestamps_are_plain(self) -> bool:
        """Return whether a TIMESTAMP column without NULL or NOT NULL is nullable, like a column of any other type."""
        if self.explicit_timestamps is not None:
            return self.explicit_timestamps
        return self.version >= (101000 if self.maria else 80000)

    @property
    def default_charset(self) -> str:
        """Return the default of character_set_server in this version. Capture reads the server's real setting
        instead."""
        return "utf8mb4" if self.version >= (110600 if self.maria else 80001) else "latin1"

    def in_mode(self, sql_mode: str) -> Dialect:
        """Return the dialect of a session with that sql_mode (names joined by commas, as @@sql_mode shows them)."""
        names = {name.strip().upper() for name in sql_mode.split(",")}
        return replace(
            self,
            ansi_quotes=bool(names & {"ANSI_QUOTES", "ANSI"}),
            backslash_escapes="NO_BACKSLASH_ESCAPES" not in names,
            real_as_float=bool(names & {"REAL_AS_FLOAT", "ANSI"}),
            strict=bool(names & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"}),
        )

    def in_mode_bits(self, sql_mode: int) -> Dialect:
        """Return the dialect for the sql_mode number of a Query event (Q_SQL_MODE_CODE)."""
        return replace(
            self,
            ansi_quotes=bool(sql_mode & 1 << 2),
            backslash_escapes=not sql_mode & 1 << 20,
            real_as_float=bool(sql_mode & 1),
            strict=bool(sql_mode & 3 << 21),
        )

    def runs_comment(self, marker: str) -> bool:
        """Return whether the server executes a comment that begins with `marker` (`/*!`, `/*!80013`, `/*M!100100`)."""
        if marker.startswith("/*M!") and not self.maria:
            return False
        digits = marker.rpartition("!")[2]
        if not digits:
            return True
        wanted = int(digits)
        if self.maria and not marker.startswith("/*M!") and 50700 <= wanted <= 99999:
            return False  # MySQL-specific since MariaDB's fork
        return wanted <= self.version

    def database_name(self, name: str) -> str:
        """Return a database's name as the topology spells it, or else as given."""
        if not self.fold_names:
            return name
        return self.spelt_databases.get(fold_identifier(name), fold_identifier(name))

    def table_name(self, database: str, table: str) -> tuple[str, str]:
        """Return (database, table) as the topology spells them, or else as given."""
        if not self.fold_names:
            return database, table
        name = fold_identifier(database), fold_identifier(table)
        return self.spelt.get(name) or (self.database_name(database), name[1])


def dialect_of(server: str, version: int | None = None) -> Dialect:
    """Return the dialect of `mysql` or `mariadb`; the default version is the newest known one.

    Raises UsageError for other servers.
    """
    if server == "mysql":
        return Dialect(server="mysql", version=version or NEWEST["mysql"])
    if server == "mariadb":
        return Dialect(server="mariadb", version=version or NEWEST["mariadb"])
    raise UsageError(f"dialect {server!r} is not known", "use mysql or mariadb")
