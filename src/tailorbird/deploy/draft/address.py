"""Parse the URL of a database, with or without a password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import parse_qs, unquote, urlsplit

from cdc.model.errors import UsageError
from cdc.model.tls import Tls, TlsMode, default_mode
from tailorbird.deploy.draft.shape import FoundServer

TLS_OPTIONS = frozenset({"ssl_mode", "ssl_ca", "ssl_cert", "ssl_key"})
MYSQL = "mysql://user@host:3306/database"
POSTGRES = "postgresql://user@host:5432/database?schema=public"
_FORM = f"write {MYSQL}, mariadb://… or {POSTGRES}"
_KINDS = {"mysql": "mysql", "mariadb": "mariadb", "postgresql": "postgresql", "postgres": "postgresql"}
_PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432}


def address_of(url: str) -> tuple[FoundServer, str | None]:
    """Parse a database URL. Return the server, without its tables, and the password if the URL has one.

    Raises UsageError for an invalid URL. The message never contains the password."""
    parts = urlsplit(url)
    kind = _KINDS.get(parts.scheme)
    if kind is None or not parts.hostname or not parts.username:
        raise UsageError(f"{_hidden(url)} is not a database URL", _FORM)
    try:
        port = parts.port or _PORTS[kind]
    except ValueError as error:
        raise UsageError(f"{_hidden(url)}: {error}", _FORM) from error
    path, options = unquote(parts.path.strip("/")), parse_qs(parts.query)
    if unknown := options.keys() - TLS_OPTIONS - ({"schema"} if kind == "postgresql" else set()):
        raise UsageError(f"{_hidden(url)}: unknown option {sorted(unknown)[0]!r}", _FORM)
    postgres = kind == "postgresql"
    server = FoundServer(
        source="",
        kind=kind,
        hostname=parts.hostname,
        port=port,
        username=unquote(parts.username),
        password_env="",
        dbname=path if postgres else "",
        database=options.get("schema", ["public"])[0] if postgres else path,
        tls=_tls(parts.hostname, {key: values[-1] for key, values in options.items()}),
    )
    return server, None if parts.password is None else unquote(parts.password)


def _tls(host: str, options: Mapping[str, str]) -> Tls:
    mode: Any = options.get("ssl_mode", default_mode(host))
    if mode not in get_args(TlsMode):
        raise UsageError(f"ssl_mode={mode} in the URL", f"write ssl_mode={'|'.join(get_args(TlsMode))}")
    named = {key.removeprefix("ssl_"): options.get(key, "") for key in ("ssl_ca", "ssl_cert", "ssl_key")}
    return Tls(mode=mode, **named)


def _hidden(url: str) -> str:
    """Return the URL without its password."""
    before, at, after = url.rpartition("@")
    scheme, slashes, login = before.partition("://")
    return f"{scheme}{slashes}{login.partition(':')[0]}{at}{after}" if at else url
