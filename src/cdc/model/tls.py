"""TLS to a database server: the modes of MySQL's `--ssl-mode`, which Debezium uses, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal

TlsMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption and authentication of a connection. `ca`, `cert` and `key` are paths of PEM files, or empty.

    `ca` contains the certificates that the client trusts (empty: those of the operating system). `cert` and `key` are
    the client's own certificate and its key.

    `disabled`: no TLS. `preferred`: TLS if the server offers it. `required`: TLS with any certificate. `verify_ca`: the
    certificate comes from a trusted authority. `verify_identity`: it also names the host.
    """

    mode: TlsMode = "preferred"
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def verifies(self) -> bool:
        """Return whether a server that cannot prove its identity is refused."""
        return self.mode in ("verify_ca", "verify_identity")

    def settings(self) -> Mapping[str, str]:
        """Return the keys of a topology or policy that mean the same."""
        named = {"ssl_mode": self.mode, "ssl_ca": self.ca, "ssl_cert": self.cert, "ssl_key": self.key}
        return {key: value for key, value in named.items() if value}


TLS_IF_OFFERED = Tls()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredAddress:
    """Address of a database server, and how a connection to it is secured."""

    hostname: str
    port: int
    tls: Tls = TLS_IF_OFFERED


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer(SecuredAddress):
    """The PostgreSQL server that stores joined tables: address, login, database, and schema of the tables.

    `password` never appears in messages or logs (`repr` omits it)."""

    username: str
    password: str = field(repr=False)
    dbname: str
    schema: str

    def __str__(self) -> str:
        return f"PostgreSQL at {self.hostname}:{self.port}"


_LIBPQ: Mapping[TlsMode, str] = {
    "disabled": "disable", "preferred": "prefer", "required": "require",
    "verify_ca": "verify-ca", "verify_identity": "verify-full",
}  # fmt: skip


def libpq_parameters(tls: Tls, hostname: str) -> dict[str, str]:
    """Return libpq's TLS parameters. A server that need not prove its identity never gets the password in clear."""
    found = {"sslmode": _LIBPQ[tls.mode], "sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}
    if tls.mode == "verify_identity" and not tls.ca:
        found["sslrootcert"] = "system"
    if not (tls.verifies or is_loopback(hostname)):
        found["require_auth"] = "!password"
    return {key: value for key, value in found.items() if value}


_PROVE = "give the authority of its certificate (ssl_ca), or do without proof of its identity (ssl_mode: required)"
_ENCRYPT = "turn on TLS at the server, or connect without it (ssl_mode: preferred)"


def remedy_of(error: str) -> str:
    """Return what to do about a failed login if TLS or the proof of the server's identity was the cause, else "".

    `error` is the message of the client library.
    """
    if any(sign in error for sign in ("SSL is required but", "does not support SSL")):
        return _ENCRYPT
    return _PROVE if any(sign in error for sign in ("SSL", "certificate", "password")) else ""


def is_loopback(host: str) -> bool:
    """Return whether a connection to a host stays on this machine: a loopback address, or the path of a socket."""
    if host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def default_mode(host: str) -> TlsMode:
    """Return the mode of a server whose topology does not set one. A server on another machine must prove itself."""
    return "preferred" if is_loopback(host) else "verify_identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchServer:
    """A search engine: its base URL; basic authentication and the trusted certificates, if set.

    `password` never appears in messages or logs (`repr` omits it)."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
