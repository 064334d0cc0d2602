"""Keep a password from a MySQL server that has not proven its identity, and files of this machine from every server.

A server chooses how a client logs in, so an impostor can ask for the password itself. PyMySQL's handlers of such
requests are replaced here. The remedy is to verify the server: `ssl_mode: verify_identity`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymysql import _auth
from pymysql.constants import CR
from pymysql.err import OperationalError

_REFUSED = CR.CR_AUTH_PLUGIN_ERR


class _NoPassword:
    """Refuses a login that would send the password as it is."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Raise OperationalError."""
        raise OperationalError(_REFUSED, "the server asks for the password in clear text")


class _EncryptedPassword(_NoPassword):
    """Logs in by `sha256_password` over TLS only. Without TLS, the password is encrypted with a key of the server."""

    def authenticate(self, packet: Any) -> Any:
        """Return the server's answer. Raises OperationalError without TLS."""
        if not self._connection._secure:
            raise OperationalError(_REFUSED, "the server sends a key to encrypt the password with")
        return _auth.sha256_password_auth(self._connection, packet)  # type: ignore[no-untyped-call]


class _HashedPassword(_NoPassword):
    """Logs in by `caching_sha2_password`: with a hash, or over TLS with the password."""

    def authenticate(self, packet: Any) -> Any:
        """Return the server's answer. Raises OperationalError if the server wants more than a hash without TLS."""
        if not self._connection._secure:
            self._connection.server_public_key = b"none is accepted"  # so PyMySQL does not ask the server for one
        try:
            return _auth.caching_sha2_password_auth(self._connection, packet)
        except ValueError as error:  # the text above is no key
            raise OperationalError(_REFUSED, "the server wants more than a hash of the password") from error


@contextmanager
def no_file_leaves() -> Iterator[None]:
    """Raise OperationalError if the server answers a query in the block with a request for a file of this machine.

    PyMySQL does not send one, but raises an error that looks like a mistake of the program."""
    try:
        yield
    except RuntimeError as error:
        if "LOAD_LOCAL" not in str(error):
            raise
        raise OperationalError(CR.CR_SERVER_LOST, "the server asked for a file of this machine") from error


# For connections to servers that are neither verified nor on this machine.
CAUTIOUS_LOGIN = {
    "mysql_clear_password": _NoPassword,
    "dialog": _NoPassword,
    "caching_sha2_password": _HashedPassword,
    "sha256_password": _EncryptedPassword,
}
