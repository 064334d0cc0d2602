"""Read failed TLS handshakes from the standard error of the own process, where gRPC's C library reports them.

gRPC closes a connection with a refused certificate before any Python code sees it.
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
    """Call `failed` with the reason of each failed TLS handshake while the block runs.

    `failed` runs in another thread and must not raise.
    """
    kept, (reads, writes) = os.dup(_STDERR), os.pipe()
    os.dup2(writes, _STDERR)
    os.close(writes)
    thread = threading.Thread(target=_pass_on, args=(reads, kept, failed), name="handshakes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)  # restores standard error and so closes the pipe; the thread reads the rest
        thread.join(5.0)
        os.close(kept)


def _pass_on(reads: int, kept: int, failed: Callable[[str], None]) -> None:
    with os.fdopen(reads, "rb") as lines:
        for line in lines:
            with suppress(OSError):  # if this thread ended, writers to standard error would block forever
                os.write(kept, line)
            if found := _FAILED.search(line.rstrip()):
                failed(found[1].decode(errors="replace")[:200])
