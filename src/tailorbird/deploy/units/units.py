"""Write the text of systemd's unit files. One template fits all processes; `deploy/systemd` contains the results."""

from __future__ import annotations

from dataclasses import dataclass

ETC = "/etc/tailorbird"
COMMAND = "/usr/local/bin/tailorbird"
USER = "tailorbird"

SYSUSERS = f"""\
# The user of Tailorbird's processes: `systemd-sysusers` creates it
u {USER} - "Tailorbird" /var/lib/tailorbird
"""

# What no process needs. The JVM of a join compiles at run time, so memory may be writable and executable.
_HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit. `arguments` follow the command. `credentials` are the files that only root can read, by the name that
    the process sees in its credentials folder (`%d`). `stop` is the seconds of a clean shutdown."""

    name: str
    description: str
    arguments: str
    environment: tuple[str, ...] = (f"{ETC}/tailorbird.env",)
    credentials: tuple[tuple[str, str], ...] = ()
    stop: int = 60


_TLS = ("ca.pem", "cert.pem", "key.pem")

AGENT = Unit(
    name="tailorbird-agent@.service",
    description="Tailorbird agent %i",
    arguments=f"agent run $TAILORBIRD_AGENT_OPTIONS --identity %d --policy {ETC}/agents/%i/policy.yml",
    environment=(f"{ETC}/agents/%i/agent.env",),
    credentials=tuple((name, f"{ETC}/agents/%i/{name}") for name in _TLS),
)
_TOPOLOGY = "${TAILORBIRD_TOPOLOGY}"
UNITS = (
    AGENT,
    Unit(
        name="tailorbird-gateway.service",
        description="Tailorbird gateway",
        arguments=f"gateway {_TOPOLOGY} --identity %d $TAILORBIRD_GATEWAY_OPTIONS",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/gateway.env"),
        credentials=tuple((name, f"{ETC}/gateway/{name}") for name in _TLS),
    ),
    Unit(
        name="tailorbird-capture@.service",
        description="Tailorbird capture of source %i",
        arguments=f"capture {_TOPOLOGY} --source %i",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/capture-%i.env"),
    ),
    Unit(
        name="tailorbird-join@.service",
        description="Tailorbird join of table %i",
        arguments=f"join {_TOPOLOGY} --table %i",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/join-%i.env"),
        stop=120,
    ),
    Unit(
        name="tailorbird-index@.service",
        description="Tailorbird indexer of index %i",
        arguments=f"index run {_TOPOLOGY} --index %i",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/index-%i.env"),
    ),
    Unit(
        name="tailorbird-dashboard.service",
        description="Tailorbird dashboards",
        arguments=f"dashboard {_TOPOLOGY} $TAILORBIRD_DASHBOARD_OPTIONS",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/dashboard.env"),
    ),
    Unit(
        name="tailorbird-api.service",
        description="Tailorbird REST API",
        arguments=f"api {_TOPOLOGY} $TAILORBIRD_API_OPTIONS",
        environment=(f"{ETC}/tailorbird.env", f"-{ETC}/api.env"),
    ),
)


def unit_text(unit: Unit, command: str = COMMAND) -> str:
    """Return the text of a unit file; `command` is the absolute path of `tailorbird`."""
    files = "".join(f"EnvironmentFile={file}\n" for file in unit.environment)
    secrets = "".join(f"LoadCredential={name}:{file}\n" for name, file in unit.credentials)
    return f"""\
# Written by Tailorbird; change it with `systemctl edit {unit.name}`
[Unit]
Description={unit.description}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command} {unit.arguments}
Restart=on-failure
RestartSec=5
# exit code 2: the configuration is wrong, and a restart does not help
RestartPreventExitStatus=2
TimeoutStopSec={unit.stop}
User={USER}
Group={USER}
StateDirectory=tailorbird
StateDirectoryMode=0700
CacheDirectory=tailorbird
WorkingDirectory=%S/tailorbird
Environment=TAILORBIRD_HOME=%S/tailorbird XDG_CACHE_HOME=%C/tailorbird PYTHONUNBUFFERED=1
{files}{secrets}
{_HARDENING}
[Install]
WantedBy=multi-user.target
"""


def agent_environment(gateways: tuple[str, ...], metrics_port: int) -> str:
    """Return the text of an agent's environment file."""
    options = " ".join(f"--gateway {gateway}" for gateway in gateways)
    return f"TAILORBIRD_AGENT_OPTIONS={options}\nTAILORBIRD_METRICS_PORT={metrics_port}\n"
