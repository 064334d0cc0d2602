"""`tailorbird fleet ca`: issue, list and revoke the fleet's certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.fleet.cli_api import API, CA, Api, Ca, Json, TokenFile, ask, report, when
from tailorbird.cli.fleet.cli_ca_key import SIGN, key_access, new_passphrase, typed_passphrase

ca = typer.Typer(
    no_args_is_help=True,
    help="Manage the certificates of agents and gateways.\n\nExample: tailorbird fleet ca init --tenant acme",
)
_AUTHORITY = Annotated[Path, typer.Option("--authority", help="Folder of the certificate authority and its key.")]
_TENANT = Annotated[str, typer.Option("--tenant", help="The fleet's tenant: lower-case letters and digits.")]
_ROLE = Annotated[Literal["agent", "gateway"], typer.Argument(help="The role of the certificate.")]
_NAME = Annotated[str, typer.Argument(help="The name: lower-case letters, digits, dots, dashes.")]
_PASSPHRASE = Annotated[
    Path | None, typer.Option("--passphrase-file", help="File with the passphrase of the authority's key.")
]
_COMMAND = Annotated[
    str,
    typer.Option("--sign-command", envvar=SIGN, help="Command that signs with a key on a device (docs/fleet.md)."),
]
_FOLDER = Path("fleet-ca")


@ca.command("init")
def init(
    authority: _AUTHORITY = _FOLDER,
    tenant: _TENANT = "main",
    passphrase_file: _PASSPHRASE = None,
    no_passphrase: Annotated[bool, typer.Option("--no-passphrase", help="Do not encrypt the key.")] = False,
    sign_command: _COMMAND = "",
    public_key: Annotated[Path | None, typer.Option("--public-key", help="Public key (PEM) of --sign-command.")] = None,
) -> None:
    """Create the certificate authority of a fleet.

    The passphrase of its key is asked for, read from --passphrase-file, or from TAILORBIRD_CA_PASSPHRASE.

    Example: tailorbird fleet ca init --tenant acme
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import init as make
    from tailorbird.web.fleet.proc_ca_key import CaKey

    identity(tenant, "agents", "any")  # rejects an invalid tenant name
    if bool(sign_command) != (public_key is not None):
        raise UsageError("a command that signs needs its public key", "--sign-command COMMAND --public-key FILE")
    if sign_command:
        make(authority, tenant, CaKey(command=sign_command), public_key)
        typer.echo(f"{authority}: anyone who can use the command can issue agents and gateways")
        return
    passphrase = "" if no_passphrase else new_passphrase(passphrase_file)
    make(authority, tenant, CaKey(passphrase=passphrase))
    who = "and its passphrase" if passphrase else "it"
    typer.echo(f"{authority}: store ca-key.pem offline; anyone who has {who} can issue agents and gateways")


@ca.command("passphrase")
def passphrase(authority: _AUTHORITY = _FOLDER, passphrase_file: _PASSPHRASE = None) -> None:
    """Set or change the passphrase of the authority's key.

    The former one is read like that of `issue`, the new one from the terminal or from standard input.

    Example: tailorbird fleet ca passphrase
    """
    from tailorbird.web.fleet.proc_ca_key import change_passphrase

    former = key_access(authority, passphrase_file, "").passphrase
    change_passphrase(authority, former, typed_passphrase())
    typer.echo(f"{authority}: ca-key.pem has a new passphrase; delete older copies")


@ca.command("issue")
def issue(
    role: _ROLE,
    name: _NAME,
    into: Annotated[Path | None, typer.Option("--into", help="Folder to write to. Default: the name.")] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Gateways: a host name that agents dial. May be repeated.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="Validity in days.")] = 365,
    request: Annotated[
        Path | None, typer.Option("--request", help="Sign this request instead of creating a key.")
    ] = None,
    authority: _AUTHORITY = _FOLDER,
    tenant: _TENANT = "main",
    passphrase_file: _PASSPHRASE = None,
    sign_command: _COMMAND = "",
) -> None:
    """Issue the certificate and key of an agent or a gateway.

    With --request, only the certificate is written; it may renew an older one.

    Example: tailorbird fleet ca issue gateway gw1 --host gw1.example.org --tenant acme
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import issue as make
    from tailorbird.web.fleet.file_ca import sign

    if role == "gateway" and not host:
        raise UsageError("a gateway's certificate needs the host names that agents dial", "add --host NAME")
    folder, who = into or Path(name), identity(tenant, f"{role}s", name)
    access = key_access(authority, passphrase_file, sign_command)
    if request is None:
        number = make(authority, who, folder, hosts=host or (), days=days, access=access)
        typer.echo(f"{folder}: ca.pem, cert.pem, key.pem of {role} {name}, certificate {number}")
    else:
        number = sign(authority, who, request, folder, hosts=host or (), days=days, access=access)
        typer.echo(f"{folder}: ca.pem, cert.pem of {role} {name}, certificate {number}")


@ca.command("request")
def ask_for(
    name: _NAME,
    into: Annotated[Path | None, typer.Option("--into", help="Folder of the key. Default: the name.")] = None,
) -> None:
    """Create a key and a certificate request on the host that uses them.

    Copy request.pem to the authority (`fleet ca issue … --request`), and cert.pem and ca.pem back. The key never leaves
    the host.

    Example: tailorbird fleet ca request paris
    """
    from ingest.fleet.identity import identity
    from tailorbird.web.fleet.file_ca import request

    identity("any", "agents", name)
    typer.echo(f"{request(into or Path(name), name)}: sign it with `tailorbird fleet ca issue … --request`")


@ca.command("list")
def list_issued(authority: _AUTHORITY = _FOLDER, as_json: Json = False) -> None:
    """List the certificates that the authority has signed.

    Example: tailorbird fleet ca list
    """
    from tailorbird.web.fleet.file_ca import issued

    for one in issued(authority):
        who = one.who.uri if one.who else "unknown"
        reported = {"serial": one.serial, "who": who, "ends_ms": int(one.ends * 1000)}
        report(reported, as_json, f"{one.serial}: {who}, until {when(one.ends * 1000)}")


@ca.command("revoke")
def revoke(
    role: Annotated[Literal["agent"], typer.Argument(help="The role of the certificate.")],
    name: Annotated[str, typer.Argument(help="The name; all of its certificates are revoked.")],
    serial: Annotated[
        list[str] | None, typer.Option("--serial", help="Only this serial number; needs no authority. May be repeated.")
    ] = None,
    authority: _AUTHORITY = _FOLDER,
    api: Api = API,
    ca_file: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Revoke an agent's certificates permanently; open streams end within seconds.

    A certificate issued later for the same name is valid. Agents do not check gateways' certificates for revocation, so
    issue these for few --days.

    Example: tailorbird fleet ca revoke agent paris
    """
    from tailorbird.web.fleet.file_ca import issued

    numbers = list(serial or ())
    if not numbers:
        numbers = [
            one.serial for one in issued(authority) if one.who and (one.who.role, one.who.name) == (f"{role}s", name)
        ]
    if not numbers:
        raise UsageError(
            f"{authority} has issued no certificate for {role} {name}", "give --authority FOLDER or --serial NUMBER"
        )
    one = ask(api, ca_file, token_file)
    for number in numbers:
        found: dict[str, Any] = one.ask("PUT", f"revoked-certificates/{_in_path(number)}")
        report(found, as_json, f"{found['serial']}: revoked")


def _in_path(text: str) -> str:
    from tailorbird.web.fleet.http_fleet import name_in_path

    return name_in_path(text)
