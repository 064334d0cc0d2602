"""Operators' tokens: roles, expiry, and the limit on failed attempts."""

from __future__ import annotations

import pytest

from cdc.oidc.claims import ROLES, Role
from ingest.fleet.tokens import Guesses, Token, checked, hashed, written

SECRET = "s" * 43
GOOD = Token(id="0" * 16, name="ops", role="operate", sha256=hashed(SECRET), issued_ms=0, expires_ms=1000)
SHOWN = written(GOOD.id, SECRET)


@pytest.mark.parametrize(
    ("text", "now", "why"),
    [
        (SHOWN, 1000, "has expired"),
        (written(GOOD.id, "t" * 43), 0, "no such token"),
        (written("1" * 16, SECRET), 0, "no such token"),
        (SHOWN + "x", 0, "no such token"),
        ("", 0, "no such token"),
        (GOOD.sha256, 0, "no such token"),
    ],
)
def test_invalid_tokens(text: str, now: int, why: str) -> None:
    """Wrong, of another id, expired, empty, or the stored hash."""
    reported = checked(text, {GOOD.id: GOOD}, now)
    assert isinstance(reported, str)
    assert why in reported


def test_a_valid_token() -> None:
    """It is valid until it expires or is revoked. Its stored form is not a token."""
    assert checked(SHOWN, {GOOD.id: GOOD}, 999) == GOOD
    gone = Token(**{**GOOD.shown(), "sha256": GOOD.sha256, "revoked": True})
    assert checked(SHOWN, {GOOD.id: gone}, 0) == f"token {GOOD.id} was revoked"
    assert SECRET not in repr(GOOD)


@pytest.mark.parametrize("role", ROLES)
def test_roles_cover_those_below(role: Role) -> None:
    """Operators may also view, and administrators may do everything."""
    token = Token(**{**GOOD.shown(), "sha256": "", "role": role})
    assert [token.may(other) for other in ROLES] == [ROLES.index(role) >= n for n in range(len(ROLES))]


def test_failed_attempts_are_counted_by_address() -> None:
    """After ten within a minute the address is refused until the minute ends. Other addresses are not."""
    guesses = Guesses(most=10, window=60.0)
    for _ in range(10):
        assert guesses.shut("1.2.3.4", 5.0) == 0
        guesses.failed("1.2.3.4", 5.0)
    assert guesses.shut("1.2.3.4", 6.0) == pytest.approx(59.0)
    assert guesses.shut("5.6.7.8", 6.0) == 0
    assert guesses.shut("1.2.3.4", 65.1) == 0
    guesses.failed("1.2.3.4", 65.1)
    assert guesses.shut("1.2.3.4", 65.2) == 0


def test_failed_attempts_use_limited_memory() -> None:
    """Memory is limited for any number of addresses."""
    guesses = Guesses(most=1, addresses=100)
    for n in range(1000):
        guesses.failed(str(n), 0.0)
    assert len(guesses._failed) == 100
    assert guesses.shut("999", 1.0) > 0
