"""zstd: of Python's own library from 3.14 on, before that its backport, which a database's host has room for."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
