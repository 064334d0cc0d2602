"""Decide which modes of a file with a secret are too open."""

from __future__ import annotations


def exposes(mode: int, *, owner: int, user: int) -> bool:
    """Return whether the mode of a file admits others than its owner. `owner` and `user` are the ids of the file's
    owner and of this process's user.

    The group of a file that belongs to root may read it: so Kubernetes and systemd mount secrets for another user."""
    return bool(mode & (0o037 if owner == 0 and user != 0 else 0o077))
