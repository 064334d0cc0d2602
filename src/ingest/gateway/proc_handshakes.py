"""Hands that were not shaken: gRPC ends a connection whose certificate it refuses before any code of ours sees it, and
says so on the process's standard error alone. There it is read, passed on, and told.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# … Handshake failed with error SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: …
_FAILED = re.compile(rb"Handshake failed with .*OPENSSL_internal:(.+)$")
_STDERR = 2


@contextmanager
def handshakes(failed: Callable[[str], None]) -> Iterator[None]:
    """While it is open, `failed` is called, in a thread, with why TLS refused a connection; it must not raise."""
    kept, (reads, writes) = os.dup(_STDERR), os.pipe()
    os.dup2(writes, _STDERR)
    os.close(writes)
    thread = threading.Thread(target=_pass_on, args=(reads, kept, failed), name="handshakes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)  # ends the pipe: the thread reads what is left
        thread.join(5.0)
        os.close(kept)


def _pass_on(reads: int, kept: int, failed: Callable[[str], None]) -> None:
    with os.fdopen(reads, "rb") as lines:
        for line in lines:
            with suppress(
                OSError
            ):  # nobody reads what we say; if this ended, whoever says something would wait for ever
                os.write(kept, line)
            if found := _FAILED.search(line.rstrip()):
                failed(found[1].decode(errors="replace")[:200])
