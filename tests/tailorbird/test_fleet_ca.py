"""The fleet's authority: who it signs for, what it keeps, and keys that never leave their hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from ingest.fleet.certificate import certified
from ingest.fleet.identity import FleetIdentity
from ingest.gateway_client.grpc_stream import Credentials
from tailorbird.web.fleet.file_ca import init, issue, issued, request, sign

PARIS = FleetIdentity("acme", "agents", "paris")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    init(tmp_path / "ca", "acme")
    return tmp_path / "ca"


def test_what_is_issued_is_kept_by_number(authority: Path, tmp_path: Path) -> None:
    """So that it can be revoked."""
    number = issue(authority, PARIS, tmp_path / "paris")
    shown = certified((tmp_path / "paris" / "cert.pem").read_bytes())
    assert (shown.who, shown.serial) == (PARIS, number)
    assert [one.serial for one in issued(authority)] == [number]
    assert (tmp_path / "paris" / "key.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="already exists"):
        issue(authority, PARIS, tmp_path / "paris")


def test_a_key_stays_on_its_host_and_is_renewed(authority: Path, tmp_path: Path) -> None:
    """The signer, not the request, determines the name; the same key can get another certificate later."""
    host = tmp_path / "host"
    asked = request(host, "someone-else")
    key = (host / "key.pem").read_bytes()
    first = sign(authority, PARIS, asked, tmp_path / "signed")
    assert not (tmp_path / "signed" / "key.pem").exists()
    assert certified((tmp_path / "signed" / "cert.pem").read_bytes()).who == PARIS
    second = sign(authority, PARIS, request(host, "paris"), host)
    assert (host / "key.pem").read_bytes() == key
    assert first != second
    assert {one.serial for one in issued(authority)} == {first, second}
    Credentials.of(host).channel()


def test_what_is_no_request_is_refused(authority: Path, tmp_path: Path) -> None:
    """One line that says which file."""
    with pytest.raises(UsageError, match=r"none\.pem"):
        sign(authority, PARIS, tmp_path / "none.pem", tmp_path / "into")
    for content in (b"", (authority / "ca.pem").read_bytes()):
        (tmp_path / "bad.pem").write_bytes(content)
        with pytest.raises(UsageError, match=r"bad\.pem is not a certificate request"):
            sign(authority, PARIS, tmp_path / "bad.pem", tmp_path / "into")
    (authority / "ca-key.pem").write_text("no key")
    with pytest.raises(UsageError, match=r"ca-key\.pem is not a key"):
        issue(authority, PARIS, tmp_path / "paris")
