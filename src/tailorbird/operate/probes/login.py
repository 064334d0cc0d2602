"""The user name and password that a probe uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """User name and password for a server."""

    user: str
    password: str
