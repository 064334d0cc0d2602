"""HTTP redirects, where a request has a secret."""

from __future__ import annotations

import urllib.request
from email.message import Message
from typing import IO


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an HTTPError: it could name another host, to which nothing may be sent."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Refuse to follow a redirect."""
        return None
