"""The fleet's authority: who it signs for, what it keeps, and keys that never leave their hosts."""

from __future__ import annotations

import shutil
import stat
import subprocess
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from ingest.fleet.certificate import certified
from ingest.fleet.identity import FleetIdentity
from ingest.gateway_client.grpc_stream import Credentials
from tailorbird.cli.app import app
from tailorbird.web.fleet import proc_ca_key
from tailorbird.web.fleet.file_ca import init, issue, issued, request, sign
from tailorbird.web.fleet.proc_ca_key import CaKey, change_passphrase

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


SECRET = "correct horse battery"


def test_an_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    """The file alone issues nothing; a changed passphrase replaces the former one."""
    ca = tmp_path / "ca"
    init(ca, "acme", CaKey(passphrase=SECRET))
    assert b"ENCRYPTED" in (ca / "ca-key.pem").read_bytes()
    with pytest.raises(UsageError, match=r"ca-key\.pem is encrypted.*--passphrase-file"):
        issue(ca, PARIS, tmp_path / "none")
    with pytest.raises(UsageError, match="the passphrase is wrong"):
        issue(ca, PARIS, tmp_path / "none", access=CaKey(passphrase="another one"))
    assert not (tmp_path / "none").exists()
    issue(ca, PARIS, tmp_path / "paris", access=CaKey(passphrase=SECRET))
    Credentials.of(tmp_path / "paris").channel()
    change_passphrase(ca, SECRET, "a new long one")
    with pytest.raises(UsageError, match="the passphrase is wrong"):
        issue(ca, PARIS, tmp_path / "none", access=CaKey(passphrase=SECRET))
    issue(ca, PARIS, tmp_path / "other", access=CaKey(passphrase="a new long one"))
    assert SECRET not in repr(CaKey(passphrase=SECRET))


def test_files_of_an_authority_are_private(tmp_path: Path) -> None:
    """A key that other users can read is refused, as ssh does."""
    init(tmp_path / "ca", "acme", CaKey(passphrase=SECRET))
    issue(tmp_path / "ca", PARIS, tmp_path / "paris", access=CaKey(passphrase=SECRET))
    change_passphrase(tmp_path / "ca", SECRET, SECRET)
    for path in tmp_path.rglob("*"):
        if path.is_dir() or path.name.endswith("key.pem"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    (tmp_path / "ca" / "ca-key.pem").chmod(0o640)
    with pytest.raises(UsageError, match=r"accessible to other users.*chmod 600"):
        issue(tmp_path / "ca", PARIS, tmp_path / "other", access=CaKey(passphrase=SECRET))


def test_a_command_signs_with_a_key_that_this_process_never_sees(tmp_path: Path) -> None:
    """As PKCS#11 does: openssl stands for the device. Another key's signatures are refused."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    for name in ("device", "thief"):
        key = str(tmp_path / f"{name}.pem")
        make = [openssl, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key]
        subprocess.run(make, check=True, capture_output=True)
    public = tmp_path / "public.pem"
    export = [openssl, "ec", "-in", str(tmp_path / "device.pem"), "-pubout", "-out", str(public)]
    subprocess.run(export, check=True, capture_output=True)
    device, thief = (
        CaKey(command=f"{openssl} dgst -sha256 -sign '{tmp_path}/{name}.pem'") for name in ("device", "thief")
    )
    init(tmp_path / "ca", "acme", device, public)
    assert not (tmp_path / "ca" / "ca-key.pem").exists()
    number = issue(tmp_path / "ca", PARIS, tmp_path / "paris", access=device)
    assert certified((tmp_path / "paris" / "cert.pem").read_bytes()).serial == number
    authority, certificate = tmp_path / "ca" / "ca.pem", tmp_path / "paris" / "cert.pem"
    verified = subprocess.run([openssl, "verify", "-CAfile", str(authority), str(certificate)], capture_output=True)
    assert verified.returncode == 0, verified.stdout
    with pytest.raises(UsageError, match="did not sign with the key of the authority"):
        issue(tmp_path / "ca", PARIS, tmp_path / "other", access=thief)
    with pytest.raises(UsageError, match="ended with 3: no card"):
        issue(tmp_path / "ca", PARIS, tmp_path / "other", access=CaKey(command="sh -c 'echo no card >&2; exit 3'"))
    with pytest.raises(UsageError, match="the command that signs"):
        issue(tmp_path / "ca", PARIS, tmp_path / "other", access=CaKey(command="/nowhere/pkcs11"))
    with pytest.raises(UsageError, match="has an authority already"):
        init(tmp_path / "ca", "acme")


def test_a_command_that_does_not_answer_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments may contain the device's PIN."""
    init(tmp_path / "ca", "acme")
    monkeypatch.setattr(proc_ca_key, "_SECONDS", 0.2)
    device = CaKey(command="sh -c 'exec sleep 30' --pin 123456")
    with pytest.raises(UsageError, match=r"no signature within 0\.2 s") as caught:
        issue(tmp_path / "ca", PARIS, tmp_path / "paris", access=device)
    assert "123456" not in "".join(traceback.format_exception(caught.value))
    assert "123456" not in repr(device)
    with pytest.raises(UsageError, match="the command that signs: No such file"):
        issue(tmp_path / "ca", PARIS, tmp_path / "paris", access=CaKey(command="PIN=123456 sign"))


def said(*words: str) -> str:
    """Run a command without a terminal; return its error, or an empty text if it has none."""
    result = CliRunner().invoke(app, ["fleet", "ca", *words])
    return "" if result.exit_code == 0 else f"{result.exception} {result.output}"


def test_commands_take_the_passphrase_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one and without a terminal, `init` creates no plain key unless that is asked for."""
    monkeypatch.delenv("TAILORBIRD_CA_PASSPHRASE", raising=False)
    ca, file = ("--authority", str(tmp_path / "ca")), tmp_path / "secret"
    assert "--no-passphrase" in said("init", *ca)
    file.write_text(f"{SECRET}\n")
    file.chmod(0o644)
    assert "accessible to other users" in said("init", *ca, "--passphrase-file", str(file))
    file.chmod(0o600)
    assert not said("init", *ca, "--passphrase-file", str(file))
    issued_to = ("issue", "agent", "paris", "--into", str(tmp_path / "paris"), *ca)
    assert "there is no passphrase" in said(*issued_to)
    monkeypatch.setenv("TAILORBIRD_CA_PASSPHRASE", SECRET)
    assert not said(*issued_to)
    monkeypatch.setenv("TAILORBIRD_CA_PASSPHRASE", "short")
    assert "use at least 12" in said("init", "--authority", str(tmp_path / "new"))
    assert not said("init", "--authority", str(tmp_path / "new"), "--no-passphrase")
    issue(tmp_path / "new", PARIS, tmp_path / "plain")
