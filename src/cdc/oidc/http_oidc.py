"""Client of an OpenID Connect issuer: its keys, its login page, and ID tokens. It needs joserfc, which not every
process has.

It follows no redirects, and reads at most a mebibyte of an answer."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from asyncio import get_running_loop
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from cdc.grammar.exposed import exposes
from cdc.model.errors import Retriable, UsageError
from cdc.oidc.claims import ALGORITHMS, LONGEST, OidcRefused, OidcSettings, OidcUser, user_of
from cdc.oidc.proc_fetched import Fetched
from cdc.oidc.reader_oidc import read_oidc

_TIMEOUT, _LONGEST_ANSWER = 10.0, 1024 * 1024
_AGAIN, _FRESH = 30.0, 3600.0  # seconds between two requests for keys: for an unknown one, and for revoked ones
_METADATA_AGAIN = 5.0  # seconds after a failed request for metadata
_AT_ONCE = 4  # calls of coroutines; further ones wait without a thread
T = TypeVar("T")


def load_oidc(file: Path) -> OidcSettings:
    """Return the settings in a file. Raises UsageError or TopologyError (exit 2) if it is not valid or not private."""
    try:
        text = _private(file)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "--oidc FILE as in docs/security.md") from error
    return read_oidc(
        text, file=str(file), environ=os.environ, content=lambda path: _private(file.parent.joinpath(path)).rstrip()
    )


def _private(file: Path) -> str:
    status = file.stat()
    if exposes(status.st_mode, owner=status.st_uid, user=os.geteuid()):
        raise UsageError(f"{file} is accessible to other users", f"chmod 600 {file}")
    return file.read_text(encoding="utf-8")


class OidcIssuer:
    """An issuer. Thread-safe. Methods raise Retriable while the issuer is unavailable, and UsageError if its metadata
    do not fit the settings."""

    def __init__(self, settings: OidcSettings, now: Callable[[], float] = time.time) -> None:
        self.settings, self._now = settings, now
        what = settings.issuer
        self._metadata = Fetched(f"{what}: metadata", self._fetch_metadata, now, again=_METADATA_AGAIN)
        self._keys = Fetched(f"{what}: keys", self._fetch_keys, now, again=_AGAIN, fresh=_FRESH)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="oidc")
        try:
            context = ssl.create_default_context(cafile=settings.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{settings.ca}: {error}", "`ca:` with a file of certificates (PEM)") from error
        self._open = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context)).open

    async def in_thread(self, call: Callable[..., T], *values: Any) -> T:
        """Return what a method returns, without blocking the event loop. The issuer has a few threads of its own, so a
        slow one does not occupy those of other work."""
        return await get_running_loop().run_in_executor(self._threads, call, *values)

    def login_url(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        """Return the address of the login page. `verifier` is the secret of PKCE, of which only the hash is sent."""
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code", "client_id": self.settings.client_id, "redirect_uri": redirect,
            "scope": "openid profile email", "state": state, "nonce": nonce, "code_challenge_method": "S256",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        }  # fmt: skip
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urllib.parse.urlencode(query)}"

    def exchange(self, code: str, verifier: str, redirect: str) -> str:
        """Return the ID token for a code that the browser brought. Raises OidcRefused for an invalid code."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier,
            "client_id": self.settings.client_id,
        }  # fmt: skip
        request = urllib.request.Request(self._endpoint("token_endpoint"), urllib.parse.urlencode(form).encode())
        if self.settings.client_secret:
            names = (self.settings.client_id, self.settings.client_secret)
            pair = ":".join(urllib.parse.quote(one, safe="") for one in names)
            request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        found = self._json(request).get("id_token")
        if not isinstance(found, str):
            raise OidcRefused("the issuer returned no ID token")
        return found

    def verified(self, token: str, nonce: str | None = None) -> OidcUser:
        """Return the user of an ID token. Raises OidcRefused if it is not valid. `nonce` is that of the login."""
        if len(token) > LONGEST:
            raise OidcRefused("the token is too long")
        try:
            try:
                found = jwt.decode(token, self._keys.value(), algorithms=list(ALGORITHMS))
            except (JoseError, ValueError):  # perhaps of a newer key
                newer = self._keys.newer()
                if newer is None:
                    raise
                found = jwt.decode(token, newer, algorithms=list(ALGORITHMS))
        except (JoseError, ValueError, TypeError) as error:
            raise OidcRefused(f"the token is not signed by the issuer ({type(error).__name__})") from error
        if str(found.header.get("typ", "JWT")).upper() != "JWT":
            raise OidcRefused("the token is not an ID token")
        return user_of(found.claims, self.settings, self._now(), nonce)

    def _fetch_keys(self) -> KeySet:
        found = self._json(urllib.request.Request(self._endpoint("jwks_uri")))
        listed = found.get("keys")
        keys = [key for one in listed if (key := _usable(one)) is not None] if isinstance(listed, list) else []
        if not keys:
            raise Retriable(f"{self.settings.issuer}: none of its keys can be used")
        return KeySet(keys)

    def _fetch_metadata(self) -> Mapping[str, Any]:
        url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        found: Mapping[str, Any] = self._json(urllib.request.Request(url))
        if found.get("issuer") != self.settings.issuer:
            self._wrong(f"it names itself {str(found.get('issuer'))[:200]!r}")
        if "S256" not in found.get("code_challenge_methods_supported", ["S256"]):
            self._wrong("it does not support PKCE with S256")
        return found

    def _endpoint(self, name: str) -> str:
        endpoint = self._metadata.value().get(name)
        secure = ("https://",) if self.settings.issuer.startswith("https://") else ("https://", "http://")
        if not isinstance(endpoint, str) or not endpoint.startswith(secure):
            self._wrong(f"its {name} is not an https URL")
        return endpoint

    def _wrong(self, why: str) -> NoReturn:
        raise UsageError(f"{self.settings.issuer}: {why}", "correct `issuer:`, or the issuer's own settings")

    def _json(self, request: urllib.request.Request) -> Any:
        try:
            with self._open(request, timeout=_TIMEOUT) as answer:
                content = answer.read(_LONGEST_ANSWER + 1)
            found = json.loads(content) if len(content) <= _LONGEST_ANSWER else None
        except urllib.error.HTTPError as error:
            if error.code in (400, 401, 403) and request.data is not None:
                raise OidcRefused(f"the issuer refused the login (HTTP {error.code})") from error
            raise Retriable(f"{self.settings.issuer}: HTTP {error.code}", "is the issuer available?") from error
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise Retriable(f"{self.settings.issuer}: {why}", "is the issuer available?") from error
        if not isinstance(found, dict):
            raise Retriable(f"{self.settings.issuer}: the answer is not a JSON object of at most 1 MiB")
        return found


def _usable(key: Any) -> Key | None:
    """Return a public key; None for one of an unknown kind, which clients should ignore (RFC 7517)."""
    if not isinstance(key, dict) or key.get("kty") == "oct":
        return None
    try:
        found = JWKRegistry.import_key(key)
        found.ensure_kid()
    except (JoseError, KeyError, TypeError, ValueError, AttributeError, UnsupportedAlgorithm):
        return None
    return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Answers a redirect as an error, so that no secret goes to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None
