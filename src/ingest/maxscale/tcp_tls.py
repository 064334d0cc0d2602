"""TLS configuration of the server's socket."""

from __future__ import annotations

from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

from cdc.model.errors import UsageError

__all__ = ["SSLContext", "tls_context"]


def tls_context(certificate: Path, key: Path) -> SSLContext:
    """Return the TLS context of a server. Raises UsageError if the PEM files are unreadable or do not match."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, SSLError) as error:
        raise UsageError(f"{certificate}, {key}: {error}", "name PEM files that belong together") from error
    return context
