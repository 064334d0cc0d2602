"""Logins, as probes take them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who logs in at a server."""

    user: str
    password: str
