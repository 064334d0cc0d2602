"""Authentication of operators at the REST API: tokens of the fleet, and ID tokens of an OpenID Connect issuer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from cdc.oidc.claims import ROLES, OidcRefused, OidcUser, Role
from ingest.fleet.tokens import Guesses, Token
from ingest.gateway.commands import FleetOperator

if TYPE_CHECKING:
    from cdc.oidc.http_oidc import OidcIssuer


class OperatorTokens(Protocol):
    """The tokens of operators, and the audit of refused ones."""

    def token(self, shown: str) -> Token | str:
        """Return the token to which a text belongs, or why the text is refused."""

    def refused(self, who: FleetOperator, what: str, why: str) -> None:
        """Write to the audit log that the request `what` was refused, and `why`."""


class Guard:
    """Authenticates operators and checks their roles."""

    def __init__(
        self, commands: OperatorTokens, guesses: Guesses, clock: Callable[[], float], oidc: OidcIssuer | None
    ) -> None:
        self._commands, self._guesses, self._clock, self._oidc = commands, guesses, clock, oidc

    def knows(self, shown: str) -> bool:
        """Return whether a text is a valid token of the fleet."""
        return not isinstance(self._commands.token(shown), str)

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
        return replace(who, role=next(one for one in ROLES if one == found.role))


def _guard_of(request: Request) -> Guard:
    guard: Guard = request.app.state.guard
    return guard


def asks(role: Role, guard_of: Callable[[Request], Guard] = _guard_of) -> Any:
    """Return the dependency of a request that needs a role. `guard_of` returns the guard of a request."""

    async def operator(
        request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
    ) -> FleetOperator:
        guard = guard_of(request)
        address = request.client.host if request.client else ""
        what = f"{request.method} {request.url.path}"[:200]
        text = shown.credentials if shown else ""
        return guard.operator(address, what, text, role, await guard.user(text))

    return Depends(operator)


_BEARER = HTTPBearer(auto_error=False)
Viewer = Annotated[FleetOperator, asks("view")]
Driver = Annotated[FleetOperator, asks("operate")]
Administrator = Annotated[FleetOperator, asks("admin")]
