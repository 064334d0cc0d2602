"""`tailorbird fleet token`: issue, list and revoke operators' tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from tailorbird.cli.fleet.cli_api import API, CA, Api, Ca, Json, TokenFile, ask, report, when

token = typer.Typer(
    no_args_is_help=True,
    help="Manage tokens of operators.\n\nExample: tailorbird fleet token issue anna --role operate",
)


@token.command("issue")
def issue_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The owner's name; audited.")],
    role: Annotated[
        Literal["view", "operate", "admin", "agent"],
        typer.Option("--role", help="Rights of the token; agent: acts as agent NAME."),
    ] = "view",
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Validity in days.")] = 90,
    topology: Annotated[
        str | None,
        typer.Option("--topology", help="Write it directly to Kafka, for the first token."),
    ] = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Issue a token and print it once; the gateway stores only its SHA-256.

    With --role agent, the token replaces a certificate at a gateway's --listen-tokens: save it as `token` next to
    ca.pem.

    Example: tailorbird fleet token issue anna --role admin --topology topologies/shop.yml
    """
    body = {"name": name, "role": role, "days": days}
    found = written(topology, name, role, days) if topology else ask(api, ca, token_file).ask("POST", "tokens", body)
    if as_json:
        report(found, True, "")
        return
    typer.echo(f"{found['id']}: {name} may {role} until {when(found['expires_ms'])}", err=True)
    typer.echo(found["token"])


def written(file: str, name: str, role: str, days: int) -> dict[str, Any]:
    """Write a new token directly to Kafka, without a token of its own: write access to Kafka grants all rights."""
    from cdc.process.file_topology import load_topology
    from cdc.process.kafka_grants import granted
    from tailorbird.web.fleet.kafka_fleet import by_kafka

    with by_kafka(granted(load_topology(file, "operator"), "operator")) as (_, commands, who):
        return commands.issue(who, name, role, days)


@token.command("list")
def list_tokens(api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List issued tokens, without their hashes.

    Example: tailorbird fleet token list
    """
    for one in ask(api, ca, token_file).ask("GET", "tokens"):
        state = "revoked" if one["revoked"] else f"until {when(one['expires_ms'])}"
        report(one, as_json, f"{one['id']}: {one['name']} may {one['role']}, {state}")


@token.command("revoke")
def revoke_token(
    number: Annotated[str, typer.Argument(metavar="ID", help="Id from `fleet token list`.")],
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Revoke a token.

    Example: tailorbird fleet token revoke 0123456789abcdef
    """
    found = ask(api, ca, token_file).ask("DELETE", f"tokens/{number}")
    report(found, as_json, f"{found['id']}: revoked")
