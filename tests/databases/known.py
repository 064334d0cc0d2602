"""Statements that the generators omit for now: known faults that are being fixed, with the reason. The list shrinks."""

from __future__ import annotations

import os

_MYSQL: dict[str, str] = {}
_POSTGRES: dict[str, str] = {}
_POSTGRES_15 = {"generated": "servers before 18 publish no stored generated columns"}


def avoided(server: str) -> frozenset[str]:
    """Return what the generator of a server omits; TAILORBIRD_TESTS_AVOID overrides it, separated by commas."""
    wanted = os.environ.get("TAILORBIRD_TESTS_AVOID")
    if wanted is not None:
        return frozenset(wanted.split(","))
    if server == "postgresql-15":
        return frozenset(_POSTGRES_15)
    return frozenset(_POSTGRES if server.startswith("postgresql") else _MYSQL)
