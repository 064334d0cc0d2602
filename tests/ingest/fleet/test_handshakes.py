"""Failed handshakes, which gRPC reports only on standard error, are reported and passed on."""

from __future__ import annotations

import subprocess
import sys

SAYS = """
import os, sys
from ingest.gateway.proc_handshakes import handshakes
reported = []
with handshakes(reported.append):
    os.write(2, b"I1 x.cc:1] Handshake failed with error SSL_ERROR_SSL: error:1: ")
    os.write(2, b"SSL routines:OPENSSL_internal:EXPIRED: old\\n")
    os.write(2, b"something else \\xff\\n")
    print("from Python", file=sys.stderr)
os.write(2, b"after\\n")
print(reported)
"""


def test_a_handshake_that_failed_is_reported() -> None:
    """It is reported once. All lines are passed on in order, and later ones reach standard error."""
    done = subprocess.run([sys.executable, "-c", SAYS.replace("\\\\", "\\")], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "['EXPIRED: old']"
    lines = done.stderr.splitlines()
    assert lines[1:] == [b"something else \xff", b"from Python", b"after"]
    assert lines[0].endswith(b"EXPIRED: old")
