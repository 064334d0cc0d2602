"""An OpenID Connect issuer on loopback with keys of its own. It logs its only user in at once, and can lie."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey

from cdc.oidc.claims import OidcSettings

CLIENT, SECRET = "tailorbird", "client:secret"


class Issuer:
    """`claims` replace those of the next ID tokens; `metadata` those of the discovery document.

    `redeemed` has the forms of the token endpoint."""

    def __init__(self, url: str) -> None:
        self.url, self.claims, self.metadata = url, dict[str, Any](), dict[str, Any]()
        self.redeemed = list[dict[str, str]]()
        self.key = ECKey.generate_key("P-256", {"kid": "first", "use": "sig"})
        self.published = [self.key]
        self.asked_for_keys = 0
        self._codes = dict[str, dict[str, str]]()

    def settings(self, **more: Any) -> OidcSettings:
        roles: dict[Any, frozenset[str]] = {"view": frozenset({"staff"}), "admin": frozenset({"owners"})}
        given = {"issuer": self.url, "client_id": CLIENT, "client_secret": SECRET, "roles": roles}
        return OidcSettings(**given | more)

    def token(self, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed ID token of the user; None removes a claim."""
        now = int(time.time())
        found: dict[str, Any] = {
            "iss": self.url, "aud": CLIENT, "sub": "anna", "groups": ["staff"], "iat": now, "exp": now + 300,
            **self.claims, **claims,
        }  # fmt: skip
        plain = {name: value for name, value in found.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": "first", **(header or {})}, plain, key or self.key)

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Return the status and content of a GET; a text is the address of a redirect."""
        if path.endswith("/.well-known/openid-configuration"):
            endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            found = {name: f"{self.url}/{path}" for name, path in endpoints.items()}
            return 200, {"issuer": self.url, **found, **self.metadata}
        if path.endswith("/keys"):
            self.asked_for_keys += 1
            return 200, {"keys": [key.as_dict(private=False) for key in self.published]}
        if path.endswith("/authorize"):
            assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
            code = secrets.token_urlsafe(16)
            self._codes[code] = query
            back = urllib.parse.urlencode({"code": code, "state": query["state"], "iss": self.url})
            return 303, f"{query['redirect_uri']}?{back}"
        return 404, {}

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        """Answer the token endpoint: a code is valid once, with the verifier and the client of its login."""
        self.redeemed.append(form)
        pair = ":".join(urllib.parse.quote(one, safe="") for one in (CLIENT, SECRET))
        known = authorization == f"Basic {base64.b64encode(pair.encode()).decode()}"
        if form["grant_type"] == "client_credentials":
            plain = f"{CLIENT}:{SECRET}"  # Kafka's clients do not encode it
            if authorization != f"Basic {base64.b64encode(plain.encode()).decode()}":
                return 401, {"error": "invalid_client"}
            token = self.token(**{"sub": CLIENT, "scope": form.get("scope"), **self.claims})
            return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}
        begun = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            begun is None
            or begun["code_challenge"] != base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            or begun["redirect_uri"] != form["redirect_uri"]
            or not known
        ):
            return 400, {"error": "invalid_grant"}
        return 200, {"id_token": self.token(**{"nonce": begun["nonce"], **self.claims}), "token_type": "Bearer"}


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Serve an issuer on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            self._send(*issuer.answer(parts.path, dict(urllib.parse.parse_qsl(parts.query))))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = dict(urllib.parse.parse_qsl(body))
            self._send(*issuer.redeem(form, self.headers.get("Authorization", "")))

        def _send(self, status: int, content: Any) -> None:
            self.send_response(status)
            if isinstance(content, str):
                self.send_header("Location", content)
            else:
                self.send_header("Content-Type", "application/json")
            body = b"" if isinstance(content, str) else json.dumps(content).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}/realm")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def written(issuer: Issuer, file: Path, **more: str) -> Path:
    """Write the settings of an issuer to a file."""
    lines = {"issuer": issuer.url, "client_id": CLIENT, "client_secret": SECRET, **more}
    text = "".join(f"{name}: '{value}'\n" for name, value in lines.items())
    file.write_text(f"{text}roles: {{view: [staff], admin: [owners]}}\n")
    file.chmod(0o600)
    return file
