"""Connect to a PostgreSQL server with libpq, and turn its errors into those of `cdc.model.errors`.

Results are the server's texts, unchanged, because the same functions read results of SELECTs and the log.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from cdc.model.errors import Retriable, TableChanged, TailorbirdError, UsageError
from cdc.model.tls import libpq_parameters, remedy_of
from cdc.topology.topology import Source

Rows = list[tuple[bytes | None, ...]]
# With these settings, texts contain the whole value and are equal in all sessions, whatever the user's settings are.
_SESSION = (
    "datestyle=ISO", "intervalstyle=iso_8601", "timezone=UTC", "extra_float_digits=1", "bytea_output=hex",
    "client_encoding=UTF8", "standard_conforming_strings=on",
    "idle_in_transaction_session_timeout=0", "lock_timeout=0", "statement_timeout=0",
)  # fmt: skip
# SQLSTATEs, or classes of them, of a refused login or a missing privilege.
_DENIED = ("28", "42501")
# SQLSTATEs: a statement that is not valid for the present tables, such as an unknown column; a value not of its type
_CHANGED = ("42", "22")
_OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class PgError(Exception):
    """An error of the server. `state` is its SQLSTATE, or empty if the connection failed. `message` is the server's
    message."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state, self.message = state, message


def conninfo(source: Source, *, replication: bool = False) -> str:
    """Return libpq's connection string for a source; `replication` allows replication commands."""
    return make_conninfo(
        host=source.hostname,
        port=source.port,
        user=source.username,
        password=source.password,
        dbname=source.dbname,
        **libpq_parameters(source.tls, source.hostname),
        connect_timeout=10,
        application_name=f"tailorbird {source.name}",
        options=" ".join(f"-c {setting}" for setting in _SESSION),
        **({"replication": "database"} if replication else {}),
    )


@contextmanager
def translated(source: Source, doing: str) -> Iterator[None]:
    """Turn PgError in the block into Retriable or UsageError; messages name the source and `doing`."""
    try:
        yield
    except TailorbirdError:
        raise
    except PgError as error:
        raise _translate(error, source, doing) from error
    except (psycopg.Error, OSError) as error:
        raise Retriable(f"source {source.name} ({source.hostname}:{source.port}): {doing}: {error}") from error


@contextmanager
def connected(source: Source, *, replication: bool = False) -> Iterator[PgConnection]:
    """Open a connection for the block; `replication` allows replication commands."""
    with translated(source, "connect"):
        connection = PgConnection(conninfo(source, replication=replication))
    try:
        yield connection
    finally:
        connection.close()


class PgConnection:
    """One connection to a server. Raises PgError for errors of the server."""

    def __init__(self, info: str) -> None:
        self.pg = pq.PGconn.connect(info.encode())
        if self.pg.status != pq.ConnStatus.OK:
            lines = self.pg.error_message.decode(errors="replace").strip().splitlines() or ["no reason given"]
            self.pg.finish()
            refused = any(sign in lines[-1] for sign in ("password", "authentication", "pg_hba.conf", "does not exist"))
            unproven = "cleartext password" in lines[-1]  # libpq refused to send it
            raise PgError("28000" if refused and not unproven else "", lines[-1])

    @property
    def version(self) -> int:
        """Return the server's version as a number: 150004 is 15.4."""
        return self.pg.server_version

    def query(self, sql: str, arguments: Sequence[bytes | None] = ()) -> Rows:
        """Return all rows of a statement; values are the server's texts as bytes, None for NULL."""
        result = self._executed(sql, arguments)
        width = range(result.nfields)
        return [tuple(result.get_value(row, column) for column in width) for row in range(result.ntuples)]

    def texts(self, sql: str, *arguments: str) -> list[tuple[str, ...]]:
        """Return all rows of a query as str; NULL is the empty text. Equal texts are one object: rows of a catalog
        with thousands of tables have few different ones."""
        result = self._executed(sql, [argument.encode() for argument in arguments])
        width, known = range(result.nfields), dict[bytes | None, str]({None: ""})

        def decoded(value: bytes | None) -> str:
            found = known.get(value)
            if found is None:
                assert value is not None, "None is known"
                found = known[value] = value.decode()
            return found

        return [tuple(decoded(result.get_value(row, column)) for column in width) for row in range(result.ntuples)]

    def _executed(self, sql: str, arguments: Sequence[bytes | None]) -> pq.abc.PGresult:
        text = sql.encode()
        # without arguments, use the simple protocol, the only one for replication connections
        result = self.pg.exec_params(text, arguments) if arguments else self.pg.exec_(text)
        if result.status not in _OK:
            raise self._error(result)
        return result

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let all queries of the block read the same state of the server, in one transaction that only reads.

        A transaction that is running already continues, and is not ended. An error of a query ends the transaction, so
        the block must not catch it.
        """
        if self.pg.transaction_status != pq.TransactionStatus.IDLE:
            yield
            return
        self.query("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            yield
        except BaseException:
            if self.pg.status == pq.ConnStatus.OK:
                self.query("ROLLBACK")
            raise
        self.query("COMMIT")

    def _error(self, result: pq.abc.PGresult) -> PgError:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or self.pg.error_message
        return PgError(state, text.decode(errors="replace").strip())

    def close(self) -> None:
        """Close the connection. Safe to call at any time."""
        self.pg.finish()

    def begin_copy(self, command: str) -> None:
        """Execute START_REPLICATION. Afterwards only `take` and `send` may be used."""
        result = self.pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._error(result)
        self.pg.nonblocking = 1

    def take(self) -> memoryview | None:
        """Return the next message, or None if none has arrived.

        Never blocks. Raises PgError if the server ends the stream.
        """
        size, data = self.pg.get_copy_data(1)
        if size == 0:
            self._consume()
            size, data = self.pg.get_copy_data(1)
        if size > 0:
            return data
        if size == 0:
            return None
        result = self.pg.get_result()
        raise PgError("08006", "the server ended the stream") if result is None else self._error(result)

    def _consume(self) -> None:
        try:
            self.pg.consume_input()
        except psycopg.Error as error:
            raise PgError("08006", str(error)) from error

    def arrives(self, seconds: float) -> bool:
        """Wait up to `seconds`, and return whether data has arrived."""
        return bool(select.select([self.pg.socket], [], [], max(0.0, seconds))[0])

    def send(self, data: bytes) -> None:
        """Send a message to the server."""
        while self.pg.put_copy_data(data) == 0:
            select.select([], [self.pg.socket], [], 1.0)
        while self.pg.flush():
            select.select([], [self.pg.socket], [], 1.0)


def _translate(error: PgError, source: Source, doing: str) -> TailorbirdError:
    message = f"source {source.name} ({source.hostname}:{source.port}): {doing}: {error.message}"
    if error.state.startswith(_DENIED):
        return UsageError(message, "check username, password, dbname and pg_hba.conf; " + "; ".join(grants(source)))
    if error.state.startswith(_CHANGED):
        return TableChanged(message)
    # The server is unavailable or busy, a table was altered since its columns were read, or a slot lost its log, which
    # the next session's check reports. Or there is a fault that only the server's administrator can repair. No error of
    # a server ends a source for good: it is retried, and `status` shows the error.
    return Retriable(message, "" if error.state else remedy_of(error.message))


def grants(source: Source) -> list[str]:
    """Return the statements that grant a source's user the minimum privileges."""
    who = f'"{source.username}"'
    schemas = ", ".join(f'"{schema}"' for schema in sorted(source.databases))
    tables = ", ".join(f'"{t.database}"."{t.table}"' for t in source.tables)
    if source.merged:  # new tenants need the same: ALTER DEFAULT PRIVILEGES, or a role that may read all data
        return [f"ALTER ROLE {who} LOGIN REPLICATION", f"GRANT pg_read_all_data TO {who}"]
    select_on = f"ALL TABLES IN SCHEMA {schemas}" if source.filter_policy == "accept" or not tables else tables
    return [
        f"ALTER ROLE {who} LOGIN REPLICATION",
        f"GRANT USAGE ON SCHEMA {schemas} TO {who}",
        f"GRANT SELECT ON {select_on} TO {who}",
    ]
