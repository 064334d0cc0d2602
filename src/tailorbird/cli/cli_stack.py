"""`tailorbird stack …`: run real servers on this machine, without Docker."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from cdc.model.artefacts import cache_folder
from cdc.model.errors import UsageError
from cdc.process.file_topology import local_ports
from tailorbird.devtools.stack.artefacts import BUNDLES, bundle_name
from tailorbird.devtools.stack.bars import reporting
from tailorbird.devtools.stack.service_spec import log_files
from tailorbird.devtools.stack.settings import (
    ALL_SERVICES,
    CAPTURE_LOGIN,
    LOAD_LOGIN,
    SERVICES,
    StackSettings,
    extra_service,
    folder_of,
    parse_ports,
    service_name,
)

if TYPE_CHECKING:
    from tailorbird.devtools.stack.proc_stack import ServiceStatus, Stack

app = typer.Typer(
    no_args_is_help=True,
    help="Manage local servers on loopback: two MySQL, Kafka, HBase with Thrift, Solr.\n\nExample: tailorbird stack up",
)

Home = Annotated[
    Path | None, typer.Option("--home", help="Data folder. Default: $TAILORBIRD_HOME, or .tailorbird here.")
]
PortOptions = Annotated[
    list[str] | None,
    typer.Option("--port", help="A listener's port, e.g. kafka=19092. Default: $TAILORBIRD_PORT_KAFKA."),
]
PortOffset = Annotated[
    int | None, typer.Option("--port-offset", help="Added to every default port. Default: $TAILORBIRD_PORT_OFFSET.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def stack_of(home: Path | None, port: list[str] | None, port_offset: int | None) -> Stack:
    """Return the stack that the options and the environment configure."""
    # imported here: the clients of five servers would slow down `tailorbird --help`
    from tailorbird.devtools.stack.proc_stack import Stack

    former = local_ports(Path.cwd() / folder_of(os.environ, home))
    return Stack(
        StackSettings.from_environ(
            os.environ,
            Path.cwd(),
            home=home,
            ports=parse_ports(port or []),
            port_offset=port_offset,
            former=former,
        )
    )


@app.command()
def fetch(
    bundle: Annotated[
        list[str] | None, typer.Argument(help="Only these: kafka, hbase, solr, mysql, spark, postgres, opensearch.")
    ] = None,
) -> None:
    """Download the servers and Spark; resumable, shared by all data folders.

    Example: tailorbird stack fetch
    """
    # imported here, since every command would load it; no client of a server is needed (as in the image of joins)
    from tailorbird.devtools.stack.proc_fetch import fetch as download

    with reporting() as progress:
        chosen = [bundle_name(name) for name in bundle] if bundle else BUNDLES
        download(Path.cwd() / cache_folder(os.environ), os.environ, progress, chosen)


@app.command()
def up(
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="An additional server: postgres, solrcloud or opensearch.")
    ] = None,
    home: Home = None,
    port: PortOptions = None,
    port_offset: PortOffset = None,
) -> None:
    """Start every server that is not running, and wait until all answer.

    Example: tailorbird stack up --with postgres
    """
    stack = stack_of(home, port, port_offset)
    besides = [extra_service(name) for name in with_ or ()]
    with reporting() as progress:
        stack.up(progress, [*SERVICES, *besides])
    _print_logins(stack.settings)


@app.command()
def mysql(
    server: Annotated[str, typer.Argument(help="shop or crm.")],
    execute: Annotated[str | None, typer.Option("--execute", "-e", help="Run these statements and exit.")] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-D", help="Default: the one named like the server.")
    ] = None,
    user: Annotated[str, typer.Option("--user", "-u", help="app (all privileges) or cdc (capture).")] = "app",
    home: Home = None,
    port: PortOptions = None,
    port_offset: PortOffset = None,
) -> None:
    """Run SQL on a MySQL of the stack: interactively, piped in, or by --execute.

    Example: tailorbird stack mysql shop -e "SHOW TABLES"
    """
    name = server.removeprefix("mysql-")
    if name not in ("shop", "crm"):
        raise UsageError(f"no MySQL {server!r} in the stack", "choose among shop, crm")
    logins = {login.user: login for login in (LOAD_LOGIN, CAPTURE_LOGIN)}
    if user not in logins:
        raise UsageError(f"no user {user!r} in the stack", f"choose among {', '.join(logins)}")
    from tailorbird.devtools.stack.mysql_client import MySqlClient, opened

    settings = stack_of(home, port, port_offset).settings
    number = settings.ports.mysql_shop if name == "shop" else settings.ports.mysql_crm
    talks = execute is None and sys.stdin.isatty()
    with opened(settings.bind, number, logins[user], database, name) as connection:
        client = MySqlClient(connection, sys.stdout, plain=not sys.stdout.isatty())
        if talks:
            import readline  # noqa: F401  # gives input() its history and arrows

            client.converse(input, name, lambda text: print(text, file=sys.stderr))
        else:
            client.batch(sys.stdin if execute is None else [execute])


@app.command()
def down(
    home: Home = None,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete all data of this stack.")] = False,
) -> None:
    """Stop every server of the data folder.

    Example: tailorbird stack down --purge
    """
    with reporting() as progress:
        stack_of(home, None, None).down(purge=purge, progress=progress)


@app.command()
def status(
    home: Home = None, port: PortOptions = None, port_offset: PortOffset = None, as_json: AsJson = False
) -> None:
    """Show the servers with ports and memory; exit code 1 unless all are ready.

    Example: tailorbird stack status --json
    """
    stack = stack_of(home, port, port_offset)
    found = stack.status()
    if as_json:
        services = [dataclasses.asdict(item) for item in found]
        total = round(sum(item.rss_mib for item in found), 1)
        print(json.dumps({"services": services, "addresses": stack.addresses(), "rss_mib": total}))
    else:
        _print_status(found)
    raise typer.Exit(0 if all(item.state == "ready" for item in found) else 1)


@app.command()
def logs(
    service: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(ALL_SERVICES)}; without it, a few lines of each.")
    ] = None,
    home: Home = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
) -> None:
    """Print the end of a server's log.

    Example: tailorbird stack logs hbase --follow
    """
    stack = stack_of(home, None, None)
    if service is None:
        for name in SERVICES:
            print(f"==> {name}\n{stack.log_tail(name, 5)}\n")
        return
    name = service_name(service)
    if follow:
        files = [str(path) for path in log_files(stack.settings, name)]
        os.execvp("tail", ["tail", "-n", str(lines), "-q", "-F", *files])
    print(stack.log_tail(name, lines))


@app.command()
def run(
    service: Annotated[str, typer.Argument(help=f"One of {', '.join(ALL_SERVICES)}.")],
    home: Home = None,
    port: PortOptions = None,
    port_offset: PortOffset = None,
) -> None:
    """Run one server in the foreground, as a container does.

    Example: tailorbird stack run hbase
    """
    stack_of(home, port, port_offset).run(service_name(service))


def _print_logins(settings: StackSettings) -> None:
    table = Table("MySQL", "host", "port", "user", "password", "for", box=None)
    for name, number in (("shop", settings.ports.mysql_shop), ("crm", settings.ports.mysql_crm)):
        for login, use in ((LOAD_LOGIN, f"all: tailorbird stack mysql {name}"), (CAPTURE_LOGIN, "capture")):
            table.add_row(name, settings.bind, str(number), login.user, login.password, use)
    Console().print(table)


def _print_status(found: list[ServiceStatus]) -> None:
    table = Table("service", "state", "ports", "pid", "RSS MiB", "up s", box=None)
    for item in found:
        state = item.state + (" (older settings)" if item.stale else "")
        ports = " ".join(str(number) for number in item.ports.values())
        numbers = (str(item.pid), f"{item.rss_mib:.0f}", f"{item.seconds:.0f}") if item.pid else ("", "", "")
        table.add_row(item.name, state, ports, *numbers)
    table.add_row("total", "", "", "", f"{sum(item.rss_mib for item in found):.0f}", "")
    console = Console()
    console.print(table)
    for item in found:
        if item.problem:
            print(f"{item.name}: {item.problem}", file=sys.stderr)
