"""`tailorbird ddl`: apply DDL statements to column definitions; one JSON line in, one out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from ingest.ddl.catalog import Catalog
    from ingest.ddl.dialect import Dialect


def ddl(
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Argument(metavar="[FILE]", help="JSON lines to read instead of standard input."),
    ] = None,
) -> None:
    r"""Show what DDL statements do to the columns of tables, without a server.

    Reads JSON lines. {"reset": true, "dialect": "mysql|mariadb", "db": "d", "charset": "utf8mb4"} starts with one empty
    database and has no answer. An optional "version" (80036 is 8.0.36, 101106 is 10.11.6) selects the server version;
    the default is the newest. The answer to {"id": 7, "sql": "…"} is {"id": 7, "tables": {"d.t": \[\[name, type,
    nullable, charset], …]}, "gone": \["d.u"]}: created or changed tables, and dropped tables or old names. For a
    statement that cannot be parsed, the answer is {"id": 7, "error": "…"}, and its tables are unknown from then on. An
    invalid line is an error too. An optional "sql_mode" ("ANSI_QUOTES,REAL_AS_FLOAT") sets the mode of the session.

    Example: tailorbird ddl < statements.jsonl
    """
    for answer in answers(file if file is not None else sys.stdin.buffer):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def answers(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each input line, in order; resets have none. Raises UsageError for an invalid reset."""
    from ingest.ddl.statements import apply

    catalog, dialect, database = _start({"dialect": "mysql", "db": "test"})
    for line in lines:
        if not line.strip():
            continue
        try:
            request = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            yield {"id": None, "error": "the line is not JSON"}
            continue
        if not isinstance(request, dict):
            yield {"id": None, "error": "the line is not a JSON object"}
            continue
        if request.get("reset"):
            catalog, dialect, database = _start(request)
            continue
        if not isinstance(request.get("sql"), str):
            yield {"id": request.get("id"), "error": "the line has no text in `sql`"}
            continue
        mode = request.get("sql_mode")
        spoken = dialect.in_mode(mode) if isinstance(mode, str) else dialect
        applied = apply(catalog, request["sql"], database=database, dialect=spoken)
        catalog, database = applied.catalog, applied.database
        if applied.error is not None:
            yield {"id": request.get("id"), "error": applied.error}
            continue
        yield {
            "id": request.get("id"),
            "tables": {
                ".".join(name): [[c.name, c.column_type, c.nullable, c.charset] for c in table.columns]
                for name, table in applied.changed.items()
            },
            "gone": [".".join(name) for name in applied.gone],
        }


def _start(request: dict[str, Any]) -> tuple[Catalog, Dialect, str]:
    from ingest.ddl.catalog import Catalog
    from ingest.ddl.charsets import charset_named
    from ingest.ddl.dialect import dialect_of
    from ingest.ddl.errors import DdlNotUnderstood

    version = request.get("version")
    if version is not None and not isinstance(version, int):
        raise UsageError(f"version {version!r} is not a number", "write 8.0.36 as 80036")
    dialect = dialect_of(str(request.get("dialect", "mysql")), version)
    database = str(request.get("db", "test"))
    try:
        charset = charset_named(str(request.get("charset") or dialect.default_charset), dialect)
    except DdlNotUnderstood as error:
        raise UsageError(error.message, "use a character set of the server") from error
    return Catalog(default_charset=dialect.default_charset, databases={database: charset}), dialect, database
