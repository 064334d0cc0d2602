"""Authentication of operators at the REST API: tokens of the fleet, and ID tokens of an OpenID Connect issuer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from cdc.oidc.claims import OidcRefused, OidcUser, Role
from ingest.fleet.tokens import Guesses
from ingest.gateway.commands import FleetCommands, FleetOperator

if TYPE_CHECKING:
    from cdc.oidc.http_oidc import OidcIssuer


class Guard:
    """Authenticates operators and checks their roles."""

    def __init__(
        self, commands: FleetCommands, guesses: Guesses, clock: Callable[[], float], oidc: OidcIssuer | None
    ) -> None:
        self._commands, self._guesses, self._clock, self._oidc = commands, guesses, clock, oidc

    async def user(self, shown: str) -> OidcUser | str | None:
        """Return the user of an ID token, or why the token is refused. None if no issuer is configured, or `shown` does
        not look like an ID token.

        The user's name begins with `oidc:`, which no name of a fleet's token does. Raises Retriable while the issuer is
        unavailable."""
        if self._oidc is None or shown.count(".") != 2:
            return None
        try:
            user = await self._oidc.in_thread(self._oidc.verified, shown)
        except OidcRefused as error:
            return error.message
        return replace(user, name=f"oidc:{user.name}")

    def operator(
        self, address: str, what: str, shown: str, role: Role, user: OidcUser | str | None = None
    ) -> FleetOperator:
        """Return the operator to whom a token belongs. Raises HTTPException 401, 403 or 429, and audits each refusal.

        Wrong tokens do not lock out valid ones: a token cannot be guessed, so the limit only protects the audit log.
        While an address is refused, its wrong tokens are not audited one by one.
        """
        found = self._commands.token(shown) if user is None else user
        if isinstance(found, str):
            wait = self._guesses.shut(address, self._clock())
            if wait > 0:
                raise HTTPException(429, "too many wrong tokens from this address", {"Retry-After": str(int(wait) + 1)})
            self._guesses.failed(address, self._clock())
            self._commands.refused(FleetOperator("", address), what, found)
            if self._guesses.shut(address, self._clock()) > 0:
                self._commands.refused(FleetOperator("", address), what, "too many wrong tokens: refused for a while")
            raise HTTPException(401, found, {"WWW-Authenticate": "Bearer"})
        who = FleetOperator(found.name, address)
        if not found.may(role):
            self._commands.refused(who, what, f"role {found.role} is not sufficient, {role} is required")
            raise HTTPException(403, f"role {found.role} is not sufficient, {role} is required")
        return who


def _asks(role: Role) -> Any:
    async def operator(
        request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
    ) -> FleetOperator:
        guard: Guard = request.app.state.guard
        address = request.client.host if request.client else ""
        what = f"{request.method} {request.url.path}"[:200]
        text = shown.credentials if shown else ""
        return guard.operator(address, what, text, role, await guard.user(text))

    return Depends(operator)


_BEARER = HTTPBearer(auto_error=False)
Viewer = Annotated[FleetOperator, _asks("view")]
Driver = Annotated[FleetOperator, _asks("operate")]
Administrator = Annotated[FleetOperator, _asks("admin")]
