"""zstd from Python's own library (3.14 and later) or its backport, which a database host can install."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
