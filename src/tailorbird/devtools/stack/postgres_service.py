"""The PostgreSQL server of the local stack, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.model.artefacts import bundle_folder
from tailorbird.devtools.stack.service_spec import Preparation, ServiceSpec, Tools, log_files, temporary
from tailorbird.devtools.stack.settings import StackSettings

# Settings that capture needs, and durability: a server that lost an acknowledged commit would look like data loss of
# Tailorbird.
POSTGRES_FLAGS: Final[Mapping[str, str]] = {
    "wal_level": "logical",
    "max_replication_slots": "64",
    "max_wal_senders": "64",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "fsync": "on",
    "timezone": "UTC",
}
# initdb, then the users: single-user mode reads one statement per line.
_INITIALISE: Final = (
    '"$0/initdb" -D "$1" -U postgres -E UTF8 --no-locale --auth-local=trust --auth-host=scram-sha-256 --no-sync '
    '&& "$0/postgres" --single -D "$1" postgres < "$2" > "$1/users.out"'
)


def postgres(settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    """Return the definition of the PostgreSQL server."""
    folder = settings.home / "data" / "postgres"
    users = settings.home / "conf" / "postgres" / "users.sql"
    commands = bundle_folder(settings.cache, "postgres") / "bin"
    scratch = temporary(settings, "postgres")
    log, out = log_files(settings, "postgres")
    work = folder.with_name("postgres.new")
    rights = tools.unprivileged
    return ServiceSpec(
        name="postgres",
        argv=(
            *(*rights, str(commands / "postgres"), "-D", str(folder), "-p", str(settings.ports.postgres)),
            *("-h", settings.bind, "-c", "unix_socket_directories=", "-c", f"external_pid_file={scratch / 'pid'}"),
            *(word for flag, value in POSTGRES_FLAGS.items() for word in ("-c", f"{flag}={value}")),
        ),
        environ={"TMPDIR": str(scratch)},
        files={users: templates["postgres/users.sql"]},
        log=log,
        out=out,
        ports=settings.ports.of("postgres"),
        folders=(scratch,),
        preparation=Preparation(
            argv=(*rights, "/bin/sh", "-c", _INITIALISE, str(commands), str(work), str(users)),
            work=work,
            result=folder,
        ),
    )
