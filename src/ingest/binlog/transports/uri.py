"""Parse the address of a binlog: `mysql://user:pw@host:port?…`, `mariadb://…`, `file:///…/binlog.000001`, or a path.

Parameters of servers: `ssl=required|verify_ca|verify|off` (default: the server's choice), `ca`, `cert`, `key` (paths),
`server_id`, `heartbeat` and `timeout` (seconds), `follow=0` (end at the server's newest event), `reconnect=0`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from cdc.model.errors import UsageError

Ssl = Literal["preferred", "required", "verify_ca", "verify", "off"]
_EXAMPLES: Final = "write mysql://user:password@host:3306, mariadb://…, file:///path/binlog.000001 or a path"
_PORT: Final = 3306


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Address of a server, and how to connect. With `server_id` 0 the transport chooses one. `repr` omits the password.

    `by_place`: request a file and position even if a GTID set is known. With GTIDs, a server itself reads the file from
    its beginning, which fails if a part of it is damaged. `heartbeat` and `timeout` are in seconds. `follow` is False
    to end at the newest event, `reconnect` is False to raise ConnectionLost instead of connecting again.
    """

    host: str
    port: int = _PORT
    user: str = ""
    password: str = field(default="", repr=False)
    ssl: Ssl = "preferred"
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_id: int = 0
    heartbeat: float = 10.0
    timeout: float = 10.0
    follow: bool = True
    reconnect: bool = True
    by_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAddress:
    """Path of a binlog file, or of the index file of several ones."""

    path: str


def _number(text: str, name: str, uri: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value < 0:
        raise UsageError(f"{name}={text} in {uri} is not a number", f"write {name}=10")
    return value


def _flag(text: str, name: str) -> bool:
    if text.lower() in ("1", "true", "yes"):
        return True
    if text.lower() in ("0", "false", "no"):
        return False
    raise UsageError(f"{name}={text} is neither 0 nor 1", f"write {name}=1 or {name}=0")


def parse_uri(uri: str) -> ServerAddress | FileAddress:
    """Parse the address of a binlog. Raises UsageError that says what is wrong."""
    parts = urlsplit(uri)
    if "://" not in uri:
        return FileAddress(path=uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{uri} names the host {parts.netloc}", "write file:///path with three slashes")
        return FileAddress(path=unquote(parts.path))
    if parts.scheme not in ("mysql", "mariadb"):
        raise UsageError(f"{parts.scheme}:// is not an address of a binlog", _EXAMPLES)
    shown = f"{parts.scheme}://{parts.hostname or ''}"
    try:
        port = parts.port or _PORT
    except ValueError as error:
        raise UsageError(f"the port in {shown} is not a number", _EXAMPLES) from error
    if not parts.hostname:
        raise UsageError(f"{shown} has no host", _EXAMPLES)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(
        set(options) - {"ssl", "ca", "cert", "key", "server_id", "heartbeat", "timeout", "follow", "reconnect"}
    )
    if unknown:
        raise UsageError(f"unknown parameter {unknown[0]} in {shown}", "see the help for the known ones")
    ssl = options.get("ssl", "verify" if "ca" in options else "preferred")
    if ssl not in get_args(Ssl):
        raise UsageError(f"ssl={ssl} in {shown}", "write ssl=off, required, verify_ca or verify")
    return ServerAddress(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        ssl=ssl,  # type: ignore[arg-type]  # checked above
        ca=options.get("ca", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
        server_id=int(_number(options.get("server_id", "0"), "server_id", shown)),
        heartbeat=_number(options.get("heartbeat", "10"), "heartbeat", shown),
        timeout=_number(options.get("timeout", "10"), "timeout", shown),
        follow=_flag(options.get("follow", "1"), "follow"),
        reconnect=_flag(options.get("reconnect", "1"), "reconnect"),
    )
