"""`tailorbird fleet ca`: the fleet's certificates, which say who is who, and which of them count no more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.fleet.cli_api import API, CA, Api, Ca, Json, TokenFile, ask, report, when

ca = typer.Typer(
    no_args_is_help=True,
    help="The fleet's certificates, which say who is who.\n\nExample: tailorbird fleet ca init --tenant acme",
)
_AUTHORITY = Annotated[Path, typer.Option("--authority", help="Folder of the authority; its key never leaves it.")]
_TENANT = Annotated[str, typer.Option("--tenant", help="Whose fleet it is: small letters and digits.")]
_ROLE = Annotated[Literal["agent", "gateway"], typer.Argument(help="What it is for.")]
_NAME = Annotated[str, typer.Argument(help="Its name: small letters, digits, dots, dashes.")]
_FOLDER = Path("fleet-ca")


@ca.command("init")
def init(authority: _AUTHORITY = _FOLDER, tenant: _TENANT = "main") -> None:
    """Create the authority that signs all certificates of a fleet.

    Example: tailorbird fleet ca init --tenant acme
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import init as make

    identity(tenant, "agents", "any")  # refuses what is no tenant's name
    make(authority, tenant)
    typer.echo(f"{authority}: keep ca-key.pem safe; whoever has it can make agents and gateways")


@ca.command("issue")
def issue(
    role: _ROLE,
    name: _NAME,
    into: Annotated[Path | None, typer.Option("--into", help="Folder to write to; by default its name.")] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Of a gateway: a host that agents dial; again for more.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long it is valid.")] = 365,
    request: Annotated[
        Path | None, typer.Option("--request", help="For the key of this request, which never leaves its host.")
    ] = None,
    authority: _AUTHORITY = _FOLDER,
    tenant: _TENANT = "main",
) -> None:
    """Issue the certificate and key of an agent or a gateway.

    With --request, only the certificate is written; it may renew an older one.

    Example: tailorbird fleet ca issue gateway gw1 --host gw1.example.org --tenant acme
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import issue as make
    from tailorbird.web.fleet.file_ca import sign

    if role == "gateway" and not host:
        raise UsageError("a gateway's certificate names the hosts that agents dial", "--host NAME, again for more")
    folder, who = into or Path(name), identity(tenant, f"{role}s", name)
    if request is None:
        number = make(authority, who, folder, hosts=host or (), days=days)
        typer.echo(f"{folder}: ca.pem, cert.pem, key.pem of {role} {name}, certificate {number}")
    else:
        number = sign(authority, who, request, folder, hosts=host or (), days=days)
        typer.echo(f"{folder}: ca.pem, cert.pem of {role} {name}, certificate {number}")


@ca.command("request")
def ask_for(
    name: _NAME,
    into: Annotated[Path | None, typer.Option("--into", help="Folder of the key; by default the name.")] = None,
) -> None:
    """Request a certificate on the host that uses it; the key never leaves the host.

    Carry request.pem to the authority (`fleet ca issue … --request`), and cert.pem and ca.pem back.

    Example: tailorbird fleet ca request paris
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import request

    identity("any", "agents", name)
    typer.echo(f"{request(into or Path(name), name)}: to be signed by `tailorbird fleet ca issue … --request`")


@ca.command("list")
def list_issued(authority: _AUTHORITY = _FOLDER, as_json: Json = False) -> None:
    """List the certificates that the authority has signed.

    Example: tailorbird fleet ca list
    """
    from tailorbird.web.fleet.file_ca import issued

    for one in issued(authority):
        who = one.who.uri if one.who else "nobody"
        reported = {"serial": one.serial, "who": who, "ends_ms": int(one.ends * 1000)}
        report(reported, as_json, f"{one.serial}: {who}, until {when(one.ends * 1000)}")


@ca.command("revoke")
def revoke(
    role: Annotated[Literal["agent"], typer.Argument(help="What it was for.")],
    name: Annotated[str, typer.Argument(help="Its name, of which all certificates are revoked.")],
    serial: Annotated[
        list[str] | None, typer.Option("--serial", help="Only this number, needs no authority; again for more.")
    ] = None,
    authority: _AUTHORITY = _FOLDER,
    api: Api = API,
    ca_file: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Revoke an agent's certificates for good; open streams are cut within seconds.

    A certificate that is issued afterwards under the same name counts. Gateways' certificates are not looked up by
    agents: give them few --days.

    Example: tailorbird fleet ca revoke agent paris
    """
    from tailorbird.web.fleet.file_ca import issued

    numbers = list(serial or ())
    if not numbers:
        numbers = [
            one.serial for one in issued(authority) if one.who and (one.who.role, one.who.name) == (f"{role}s", name)
        ]
    if not numbers:
        raise UsageError(f"{authority} has issued nothing for {role} {name}", "--authority FOLDER, or --serial NUMBER")
    one = ask(api, ca_file, token_file)
    for number in numbers:
        found: dict[str, Any] = one.ask("PUT", f"revoked-certificates/{_in_path(number)}")
        report(found, as_json, f"{found['serial']}: revoked")


def _in_path(text: str) -> str:
    from tailorbird.web.fleet.http_fleet import name_in_path

    return name_in_path(text)
