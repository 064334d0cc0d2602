"""Connect to the PostgreSQL server that stores joined tables, and turn its errors into those of `cdc.model.errors`.

Every session has the same settings, so that texts of values are equal in all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.model.errors import Fatal, Retriable, TailorbirdError, UsageError
from cdc.model.tls import PostgresServer, libpq_parameters, remedy_of

T = TypeVar("T")
_SESSION = (
    "datestyle=ISO", "intervalstyle=postgres", "timezone=UTC", "extra_float_digits=1", "bytea_output=hex",
    "client_encoding=UTF8", "standard_conforming_strings=on", "idle_in_transaction_session_timeout=0",
    "lock_timeout=0", "statement_timeout=0", "search_path=pg_catalog", "synchronous_commit=on",
)  # fmt: skip
# SQLSTATEs, or classes of them, after which the same statement may succeed: the connection, resources, the operator,
# a conflict of transactions, a lock, a server that only reads
_TRANSIENT = ("08", "53", "57", "58", "40", "55P03", "55006", "25006")
_DENIED = ("28", "42501", "3D000")
_REFUSED_LOGIN = ("password authentication failed", "no pg_hba.conf entry", "does not exist", "not permitted to log in")
Transaction = psycopg.Connection[tuple[Any, ...]]


class ServerSession:
    """One connection, for one thread. Opened at the first transaction, and again after a loss."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._connection: Transaction | None = None

    def transaction(self, action: Callable[[Transaction], T]) -> T:
        """Run an action in a transaction, which commits when it returns.

        Raises Retriable while the server is unavailable: then the transaction may have committed. Raises UsageError for
        a refused login or a missing privilege, Fatal for other errors of the server."""
        with self._translated():
            if self._connection is None:
                self._connection = psycopg.connect(_conninfo(self.server), autocommit=False)
                self._closing = weakref.finalize(self, self._connection.close)
            with self._connection.transaction():
                return action(self._connection)
        raise AssertionError("unreachable")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._connection is None or self._connection.broken or error.sqlstate is None:
                self.close()
            raise _error(self.server, error) from error
        except OSError as error:
            self.close()
            raise Retriable(f"{self.server}: {error}", "is it running?") from error

    def close(self) -> None:
        """Close the connection; the next transaction opens another."""
        if self._connection is not None:
            self._closing()
            self._connection = None


def _error(server: PostgresServer, error: psycopg.Error) -> TailorbirdError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    state = error.sqlstate or ""
    what = f"{server}: {text}"
    if state.startswith(_DENIED) or (not state and any(sign in str(error) for sign in _REFUSED_LOGIN)):
        return UsageError(what, "check username, password, dbname and privileges: `postgres:` in the topology")
    if not state or state.startswith(_TRANSIENT):
        return Retriable(what, remedy_of(str(error)) or "is it running?")
    return Fatal(what)


def _conninfo(server: PostgresServer) -> str:
    return make_conninfo(
        host=server.hostname, port=server.port, user=server.username, password=server.password, dbname=server.dbname,
        **libpq_parameters(server.tls, server.hostname),
        connect_timeout=10, application_name="tailorbird join", keepalives_idle=30, tcp_user_timeout=60_000,
        options=" ".join(f"-c {setting}" for setting in _SESSION),
    )  # fmt: skip


_kept: dict[PostgresServer, ServerSession] = {}


def pg_connection(server: PostgresServer) -> ServerSession:
    """Return the connection of this process, which a Python worker keeps between batches.

    Use this function: a task that refers to `_kept` directly would get a pickled copy of the driver's."""
    return _kept.setdefault(server, ServerSession(server))
