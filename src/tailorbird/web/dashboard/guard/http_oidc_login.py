"""Log users in at an OpenID Connect issuer: authorization code flow with PKCE, state and nonce.

    GET /login/oidc      → the issuer's login page; a sealed cookie keeps the secrets of this login
    GET /login/callback  ← the issuer, with a code that is exchanged for an ID token

A cookie is valid for ten minutes, in one browser, for one login. Nothing is stored for logins that are not completed.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

import orjson
from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cdc.oidc.claims import OidcRefused, OidcUser

if TYPE_CHECKING:
    from cdc.oidc.http_oidc import OidcIssuer

BEGIN, CALLBACK = "/login/oidc", "/login/callback"
_SECONDS, _REMEMBERED = 600, 100_000


class OidcLogin:
    """Logins at one issuer. `url` is the address of the pages as browsers see it, without a path."""

    def __init__(self, issuer: OidcIssuer, url: str) -> None:
        self._issuer, self._redirect = issuer, f"{url}{CALLBACK}"
        self.secure = url.startswith("https://")
        self._cookie = "__Host-tailorbird-oidc" if self.secure else "tailorbird-oidc"
        self._box = Fernet(Fernet.generate_key())
        self._used = OrderedDict[str, None]()  # states of completed logins

    async def begin(self, to: str) -> Response:
        """Redirect to the issuer's login page. `to` is the path to open afterwards. Raises Retriable without it."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        url = await self._issuer.in_thread(self._issuer.login_url, self._redirect, state, nonce, verifier)
        sealed = self._box.encrypt(orjson.dumps([state, nonce, verifier, to[:2000]])).decode()
        answer = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        # lax: the issuer's page, of another site, leads back here
        answer.set_cookie(
            self._cookie, sealed, max_age=_SECONDS, httponly=True, samesite="lax", secure=self.secure
        )  # fmt: skip
        return answer

    async def finish(self, request: Request) -> tuple[OidcUser, str, str]:
        """Return the user, the ID token, and the path to open. Raises OidcRefused, or Retriable without the issuer."""
        try:
            sealed = request.cookies.get(self._cookie, "")
            state, nonce, verifier, to = orjson.loads(self._box.decrypt(sealed, ttl=_SECONDS))
        except InvalidToken:
            raise OidcRefused("this browser did not begin the login within the last ten minutes") from None
        if not hmac.compare_digest(self._one(request, "state").encode(), state.encode()):
            raise OidcRefused("the answer belongs to another login")
        if state in self._used:
            raise OidcRefused("the login was completed before")
        self._used[state] = None
        while len(self._used) > _REMEMBERED:
            self._used.popitem(last=False)
        if "iss" in request.query_params and self._one(request, "iss") != self._issuer.settings.issuer:
            raise OidcRefused("the answer is from another issuer")
        if "error" in request.query_params:
            raise OidcRefused(f"the issuer answered: {self._one(request, 'error')[:100]}")
        token = await self._issuer.in_thread(
            self._issuer.exchange, self._one(request, "code"), verifier, self._redirect
        )
        return await self._issuer.in_thread(self._issuer.verified, token, nonce), token, to

    def forget(self, answer: Response) -> None:
        """Delete the cookie of a login that has ended."""
        answer.delete_cookie(self._cookie, secure=self.secure, httponly=True, samesite="lax")

    def _one(self, request: Request, name: str) -> str:
        values = request.query_params.getlist(name)
        if len(values) != 1 or not values[0]:
            raise OidcRefused(f"the answer has {len(values)} values of {name}")
        return values[0]
