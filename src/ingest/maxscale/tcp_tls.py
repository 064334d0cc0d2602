"""The TLS side of what is listened at."""

from __future__ import annotations

from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

from cdc.model.errors import UsageError

__all__ = ["SSLContext", "tls_context"]


def tls_context(certificate: Path, key: Path) -> SSLContext:
    """Of a server that shows a certificate; UsageError where the PEM files cannot be read, or do not fit."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, SSLError) as error:
        raise UsageError(f"{certificate}, {key}: {error}", "name PEM files that belong together") from error
    return context
