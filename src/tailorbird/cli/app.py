"""The `tailorbird` command. Each sub-command is defined in its own `cli_*.py` file and registered here."""

from __future__ import annotations

import typer

from tailorbird.cli import (
    cli_acls,
    cli_dashboard,
    cli_dead_letters,
    cli_demo,
    cli_doctor,
    cli_ledger,
    cli_mcp,
    cli_password,
    cli_run,
    cli_stack,
    cli_status,
    cli_validate,
    cli_wait,
)
from tailorbird.cli.api import cli_api_serve
from tailorbird.cli.api.cli_remote import RemoteGroup, remote_options
from tailorbird.cli.capture import cli_binlog, cli_capture, cli_ddl, cli_poll, cli_rewind, cli_schema, cli_snapshot
from tailorbird.cli.change import cli_apply, cli_plan, cli_upgrade, cli_versions_here
from tailorbird.cli.fleet import cli_agent, cli_fleet, cli_gateway
from tailorbird.cli.index import cli_index
from tailorbird.cli.join import cli_explain, cli_join, cli_state, cli_submit
from tailorbird.cli.serve import cli_export, cli_maxscale_users, cli_notify, cli_serve, cli_tail
from tailorbird.cli.topology import cli_init, cli_json_schema
from tailorbird.cli.verify import cli_checks, cli_explain_row, cli_verify

app = typer.Typer(
    name="tailorbird",
    cls=RemoteGroup,
    callback=remote_options,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Stitch tables of many live databases into one searchable, always-fresh table.\n\n"
    "Example: tailorbird demo --for 60s",
)

app.add_typer(cli_stack.app, name="stack")
app.add_typer(cli_binlog.app, name="binlog")
app.add_typer(cli_schema.app, name="schema")
app.add_typer(cli_poll.app, name="poll")
app.add_typer(cli_state.app, name="state")
app.add_typer(cli_dead_letters.app, name="dead-letters")
app.add_typer(cli_fleet.app, name="fleet")
app.add_typer(cli_agent.app, name="agent")
app.add_typer(cli_serve.app, name="serve")
app.add_typer(cli_maxscale_users.app, name="maxscale-users")
app.command("tail")(cli_tail.tail)
app.command("export")(cli_export.export)
app.command("gateway")(cli_gateway.gateway)
app.command("acls")(cli_acls.acls)
app.command("api")(cli_api_serve.api)
app.command("apply")(cli_apply.apply)
app.command("plan")(cli_plan.plan)
app.command("upgrade")(cli_upgrade.upgrade)
app.command("versions")(cli_versions_here.versions)
app.command("capture")(cli_capture.capture)
app.command("dashboard")(cli_dashboard.dashboard)
app.add_typer(cli_index.app, name="index")
app.command("explain")(cli_explain_row.explain)
app.command("explain-plan")(cli_explain.explain_plan)
app.command("join")(cli_join.join)
app.command("submit")(cli_submit.submit)
app.command("validate")(cli_validate.validate)
app.command("status")(cli_status.status)
app.command("wait")(cli_wait.wait)
app.command("run")(cli_run.run)
app.command("rewind")(cli_rewind.rewind)
app.command("snapshot")(cli_snapshot.snapshot)
app.command("demo")(cli_demo.demo)
app.command("ddl")(cli_ddl.ddl)
app.command("doctor")(cli_doctor.doctor)
app.command("init")(cli_init.init)
app.command("json-schema")(cli_json_schema.json_schema)
app.command("ledger")(cli_ledger.ledger)
app.command("mcp")(cli_mcp.mcp)
app.command("password")(cli_password.password)
app.command("checks")(cli_checks.checks)
app.command("notify")(cli_notify.notify)
app.command("verify")(cli_verify.verify)
