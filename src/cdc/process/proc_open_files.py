"""Allow this process as many open files as the operating system permits; the default of 1,024 is often less."""

from __future__ import annotations

import contextlib
import resource

_WANTED = 65_536


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard limit, at most to 65,536. Each connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
