"""What gRPC says on standard error alone is told, and passed on."""

from __future__ import annotations

import subprocess
import sys

SAYS = """
import os, sys
from ingest.gateway.proc_handshakes import handshakes
told = []
with handshakes(told.append):
    os.write(2, b"I1 x.cc:1] Handshake failed with error SSL_ERROR_SSL: error:1: ")
    os.write(2, b"SSL routines:OPENSSL_internal:EXPIRED: old\\n")
    os.write(2, b"something else \\xff\\n")
    print("from Python", file=sys.stderr)
os.write(2, b"behind\\n")
print(told)
"""


def test_a_handshake_that_failed_is_reported() -> None:
    """Once; all lines are still there, in order, and later ones go where they went before."""
    done = subprocess.run([sys.executable, "-c", SAYS.replace("\\\\", "\\")], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "['EXPIRED: old']"
    lines = done.stderr.splitlines()
    assert lines[1:] == [b"something else \xff", b"from Python", b"behind"]
    assert lines[0].endswith(b"EXPIRED: old")
