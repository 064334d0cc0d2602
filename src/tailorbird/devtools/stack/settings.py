"""The settings of a local stack: folders, ports and logins, from options and environment variables.

`services` turns them into commands, `proc_stack` starts and stops the servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal

from cdc.model.artefacts import cache_folder
from cdc.model.errors import UsageError
from tailorbird.operate.probes.login import Login

ServiceName = Literal[
    "mysql-shop", "mysql-crm", "kafka", "hbase", "thrift", "solr", "postgres", "solrcloud", "opensearch"
]

# Servers that every `stack up` starts, and those that it starts on request.
SERVICES: Final[tuple[ServiceName, ...]] = ("mysql-shop", "mysql-crm", "kafka", "hbase", "thrift", "solr")
EXTRA_SERVICES: Final[tuple[ServiceName, ...]] = ("postgres", "solrcloud", "opensearch")
ALL_SERVICES: Final = (*SERVICES, *EXTRA_SERVICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One TCP port per listener, all on the loopback address."""

    mysql_shop: int = 3307
    mysql_crm: int = 3308
    kafka: int = 9092
    kafka_controller: int = 9093
    zookeeper: int = 2181
    hbase_master: int = 16000
    hbase_region: int = 16020
    thrift: int = 9090
    solr: int = 8983
    postgres: int = 5433
    solrcloud: int = 8984
    opensearch: int = 9200
    opensearch_transport: int = 9300

    def __post_init__(self) -> None:
        taken: dict[int, str] = {}
        for name, port in self.items():
            if not 1 <= port <= 65535:
                raise UsageError(f"port {name}={port} is outside 1–65535", "choose a smaller --port-offset")
            if port in taken:
                raise UsageError(f"ports {taken[port]} and {name} are both {port}", "give each its own")
            taken[port] = name

    def items(self) -> tuple[tuple[str, int], ...]:
        """Return each listener's name and port, in the order of this class."""
        return tuple((item.name, int(getattr(self, item.name))) for item in fields(self))

    def of(self, service: ServiceName) -> tuple[tuple[str, int], ...]:
        """Return the ports of one service. Clients use the first."""
        return tuple((name, port) for name, port in self.items() if _LISTENERS[name] == service)


_LISTENERS: Final[Mapping[str, ServiceName]] = {
    "mysql_shop": "mysql-shop",
    "mysql_crm": "mysql-crm",
    "kafka": "kafka",
    "kafka_controller": "kafka",
    "zookeeper": "hbase",
    "hbase_master": "hbase",
    "hbase_region": "hbase",
    "thrift": "thrift",
    "solr": "solr",
    "postgres": "postgres",
    "solrcloud": "solrcloud",
    "opensearch": "opensearch",
    "opensearch_transport": "opensearch",
}


# Users of both MySQL servers and of PostgreSQL. The passwords are not secret, because the servers listen on loopback
# only.
CAPTURE_LOGIN: Final = Login(user="cdc", password="cdc")
LOAD_LOGIN: Final = Login(user="app", password="app")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """One local stack: `home` has its data, logs and configuration, `cache` the downloads.

    Stacks with different homes and ports can run at the same time and share a cache. `bind` is the address that
    servers listen on. `kafka_heap` is the broker's heap in MiB; it needs about 1 MiB for 25 partitions.
    At least every `hbase_minutes`, HBase writes the rows that it has in memory to files, and begins a new log."""

    home: Path
    cache: Path
    ports: Ports = field(default_factory=Ports)
    bind: str = "127.0.0.1"
    kafka_heap: int = 192
    hbase_minutes: int = 60

    def __post_init__(self) -> None:
        for folder in (self.home, self.cache):
            if re.search(r"[:*\s]", str(folder)):
                raise UsageError(
                    f"the folder {str(folder)!r} has a blank, colon or star in its name, not allowed in a class path",
                    "choose another with TAILORBIRD_HOME and TAILORBIRD_CACHE",
                )

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str],
        cwd: Path,
        *,
        home: Path | None = None,
        ports: Mapping[str, int] | None = None,
        port_offset: int | None = None,
        former: Mapping[str, int] | None = None,
    ) -> StackSettings:
        """Return the settings from options and environment variables. An option takes precedence over its variable.

        A port that is given is used as it is. Others are the defaults plus the offset, or, without an offset, the
        `former` ports with which the stack was started."""
        folder = folder_of(environ, home)
        moved = port_offset is not None or bool(environ.get("TAILORBIRD_PORT_OFFSET", "").strip())
        offset = _number(environ, "TAILORBIRD_PORT_OFFSET", 0) if port_offset is None else port_offset
        chosen: dict[str, int] = {}
        for name, default in Ports().items():
            plain = default + offset if moved or former is None else former.get(name, default)
            chosen[name] = _number(environ, port_variable(name), plain)
        chosen.update(ports or {})
        return cls(home=cwd / folder, cache=cwd / cache_folder(environ), ports=Ports(**chosen))

    def addresses(self) -> dict[str, str]:
        """Return each server's address for clients: `host:port`, or the URL of Solr's API."""
        at = {name: f"{self.bind}:{port}" for name, port in self.ports.items()}
        return {
            "mysql-shop": at["mysql_shop"],
            "mysql-crm": at["mysql_crm"],
            "kafka": at["kafka"],
            "zookeeper": at["zookeeper"],
            "hbase-master": at["hbase_master"],
            "thrift": at["thrift"],
            "solr": f"http://{at['solr']}/solr",
            "postgres": at["postgres"],
            "solrcloud": f"http://{at['solrcloud']}/solr",
            "opensearch": f"http://{at['opensearch']}",
        }

    def environ(self) -> dict[str, str]:
        """Return the environment variables that let a child process find this stack from any folder."""
        named = {port_variable(name): str(port) for name, port in self.ports.items()}
        return {"TAILORBIRD_HOME": str(self.home), "TAILORBIRD_CACHE": str(self.cache), **named}


def folder_of(environ: Mapping[str, str], home: Path | None) -> Path:
    """Return a stack's data folder: `home`, else `$TAILORBIRD_HOME`, else `.tailorbird`."""
    return home or Path(environ.get("TAILORBIRD_HOME") or ".tailorbird")


def port_variable(listener: str) -> str:
    """Return the environment variable of one listener's port."""
    return f"TAILORBIRD_PORT_{listener.upper()}"


def parse_ports(options: Iterable[str]) -> dict[str, int]:
    """Parse `--port kafka=19092` options. Hyphens and underscores in a listener's name are equivalent.

    Raises UsageError for an unknown listener, or a text that is not a port."""
    known = [name for name, _ in Ports().items()]
    ports: dict[str, int] = {}
    for option in options:
        name, _, number = option.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            raise UsageError(f"--port {option}: no listener {name!r}", f"choose among {', '.join(known)}")
        if not number.strip().isdecimal():
            raise UsageError(f"--port {option}: {number!r} is not a port", f"write --port {name}=19092")
        ports[name] = int(number)
    return ports


def service_name(text: str) -> ServiceName:
    """Return the service that the user named. Raises UsageError, which lists the names, for an unknown one."""
    for name in ALL_SERVICES:
        if text.replace("_", "-") == name:
            return name
    raise UsageError(f"no service {text!r}", f"choose among {', '.join(ALL_SERVICES)}")


def extra_service(text: str) -> ServiceName:
    """Return the service of `stack up --with`. Raises UsageError, which lists the names, for an unknown one."""
    name = next((one for one in EXTRA_SERVICES if one == text), None)
    if name is None:
        raise UsageError(f"--with {text}: unknown server", f"choose among {', '.join(EXTRA_SERVICES)}")
    return name


def _number(environ: Mapping[str, str], variable: str, default: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise UsageError(f"{variable}={text!r} is not a number", f"write {variable}=19092")
    return int(text)
