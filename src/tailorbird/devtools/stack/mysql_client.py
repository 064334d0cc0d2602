"""A small SQL client for the stack's MySQL servers. The archive of the servers contains no client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, TextIO

import pymysql
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc.model.errors import Retriable, UsageError
from tailorbird.devtools.stack.statements import Statements
from tailorbird.operate.probes.login import Login

Say = Callable[[str], None]


class MySqlClient:
    """One connection in autocommit mode that prints the results of statements as tables.

    With `plain` it prints values separated by tabs, like `mysql` in a pipe."""

    def __init__(self, connection: Any, out: TextIO, *, plain: bool) -> None:
        self._connection, self._out, self._plain = connection, out, plain

    def run(self, statement: str) -> None:
        """Run one statement and print its rows, or the number of changed rows. Raises UsageError with the server's
        message, Retriable if the connection was lost."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                if cursor.description:
                    self._print([column[0] for column in cursor.description], cursor.fetchall())
                elif not self._plain:
                    print(f"{cursor.rowcount} row{'' if cursor.rowcount == 1 else 's'} changed", file=self._out)
        except (pymysql.OperationalError, pymysql.InterfaceError) as error:
            if not self._connection.open:
                raise Retriable(
                    f"the connection to the server was lost: {error}", "`tailorbird stack status`"
                ) from error
            raise UsageError(f"{_message(error)}: {_shown(statement)}") from error
        except pymysql.MySQLError as error:
            raise UsageError(f"{_message(error)}: {_shown(statement)}") from error

    def batch(self, lines: Iterable[str]) -> None:
        """Run all statements of a text in order. Stops at the first error."""
        parts = Statements()
        for line in lines:
            for statement in parts.take(line):
                self.run(statement)
        if rest := parts.rest():
            self.run(rest)

    def converse(self, ask: Callable[[str], str], name: str, complain: Say) -> None:
        """Read statements from a prompt until `exit`, `quit` or the end of the input. Errors do not end the session."""
        parts = Statements()
        while True:
            try:
                line = ask(f"{'->':>{len(name)}}  " if parts.pending else f"{name}> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                parts = Statements()  # as in any shell: the current line is discarded
                complain("")
                continue
            if not parts.pending and line.strip().rstrip(";").lower() in ("exit", "quit", "\\q"):
                return
            for statement in parts.take(line):
                try:
                    self.run(statement)
                except UsageError as error:
                    complain(str(error))

    def _print(self, names: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
        texts = [["NULL" if value is None else _text(value) for value in row] for row in rows]
        if self._plain:
            for line in [names, *texts]:
                escaped = (cell.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for cell in line)
                print("\t".join(escaped), file=self._out)
            return
        table = Table()
        for name in names:
            table.add_column(Text(name))
        for line in texts:
            table.add_row(*(Text(cell) for cell in line))
        Console(file=self._out).print(table)
        print(f"{len(texts)} row{'' if len(texts) == 1 else 's'}", file=self._out)


def opened(host: str, port: int, login: Login, database: str | None, favourite: str) -> closing[Any]:
    """Return a connection that closes itself. It uses `database` or, without one, `favourite` if that exists.

    Raises UsageError if the server refuses the login or the database, Retriable if it does not answer."""
    try:
        connection = pymysql.connect(
            host=host, port=port, user=login.user, password=login.password, database=database, charset="utf8mb4",
            connect_timeout=5, autocommit=True, conv={},
        )  # fmt: skip
    except pymysql.OperationalError as error:
        if error.args[0] >= 2000:
            raise Retriable(f"no MySQL at {host}:{port}: {error.args[-1]}", "`tailorbird stack up`") from error
        raise UsageError(f"{host}:{port}: {_message(error)}", "correct `--user` or `--database`") from error
    with connection.cursor() as cursor:
        if database is None and cursor.execute("SHOW DATABASES LIKE %s", [favourite]):
            connection.select_db(favourite)
    return closing(connection)


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _message(error: pymysql.MySQLError) -> str:
    return ": ".join(str(part) for part in error.args) or type(error).__name__


def _shown(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 100 else text[:100] + "…"
