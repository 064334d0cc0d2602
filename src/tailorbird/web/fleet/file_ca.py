"""The certificate authority of a fleet, in a folder: a key that signs certificates (ECDSA on P-256, PEM files).

The key is encrypted with a passphrase, or on a device that a command asks (`CaKey`).

A certificate names its holder by a URI, `tailorbird://TENANT/agents/NAME`. A gateway's also has the host names that
agents dial. There are two ways to issue one. The authority creates the key, which its owner carries to the host. Or
the host creates the key and sends a request (CSR). Signed certificates are kept in `issued`, by serial number."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cdc.model.errors import UsageError
from ingest.fleet.certificate import CertificateContent, certified
from ingest.fleet.identity import FleetIdentity
from tailorbird.web.fleet.proc_ca_key import KEY, NO_PASSPHRASE, CaKey, CommandKey, load_key, private_pem

_BEFORE = datetime.timedelta(minutes=5)  # clocks differ
_AUTHORITY_DAYS = 3650


def init(folder: Path, tenant: str, access: CaKey = NO_PASSPHRASE, public: Path | None = None) -> None:
    """Create an authority. Raises UsageError if there is one, because a new one would invalidate all certificates.

    `public` is the PEM file of the public key if a command of `access` signs."""
    if any((folder / name).exists() for name in (KEY, "ca.pem")):
        raise UsageError(f"{folder} has an authority already", "issue certificates with it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1()) if public is None else CommandKey(access.command, _public(public))
    name = _name(f"tailorbird fleet of {tenant}")
    certificate = (
        _builder(name, name, key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    if public is None:
        _write(folder / KEY, access.encrypted(key), 0o600)
    _write(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def issue(
    authority: Path,
    who: FleetIdentity,
    into: Path,
    *,
    hosts: Sequence[str] = (),
    days: int = 365,
    access: CaKey = NO_PASSPHRASE,
) -> str:
    """Create the key and certificate of an agent or gateway in the folder `into`. Return the serial number.

    Writes `ca.pem`, `cert.pem` and `key.pem`. `hosts` are the host names of a gateway, `days` is the validity.
    Raises UsageError without an authority, or if the folder has a key already."""
    if (into / "key.pem").exists():
        raise UsageError(f"{into / 'key.pem'} already exists", "choose another folder: --into")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(authority, who, key.public_key(), hosts, days, access)
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(into / "key.pem", private_pem(key), 0o600)
    return _handed(authority, certificate, into)


def request(folder: Path, name: str) -> Path:
    """Write a certificate request for the key in a folder, and return its path. The key is created if it is missing."""
    file = folder / "key.pem"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(file, private_pem(ec.generate_private_key(ec.SECP256R1())), 0o600)
    key = load_key(file, "restore the original one, or start with an empty folder")
    asked = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    _write(folder / "request.pem", asked.public_bytes(serialization.Encoding.PEM), 0o644)
    return folder / "request.pem"


def sign(
    authority: Path,
    who: FleetIdentity,
    asked: Path,
    into: Path,
    *,
    hosts: Sequence[str] = (),
    days: int = 365,
    access: CaKey = NO_PASSPHRASE,
) -> str:
    """Sign a request: write `ca.pem` and `cert.pem` into the folder `into`. Return the serial number.

    The key stays on its host. `who` and `hosts` name the holder; names in the request are ignored. Raises UsageError if
    the request cannot be read or is invalid."""
    try:
        found = x509.load_pem_x509_csr(asked.read_bytes())
    except OSError as error:
        raise UsageError(f"{asked}: {error.strerror}", "create it: tailorbird fleet ca request") from error
    except ValueError as error:
        raise UsageError(
            f"{asked} is not a certificate request: {error}", "create it: tailorbird fleet ca request"
        ) from error
    key = found.public_key()
    if not found.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise UsageError(
            f"{asked} is not a request of `tailorbird fleet ca request`", "create it: tailorbird fleet ca request"
        )
    certificate = _signed(authority, who, key, hosts, days, access)
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _handed(authority, certificate, into)


def issued(authority: Path) -> Iterator[CertificateContent]:
    """Yield the certificates that an authority has signed."""
    for file in sorted((authority / "issued").glob("*.pem"), key=lambda file: file.stat().st_mtime):
        yield certified(file.read_bytes())


def _handed(authority: Path, certificate: x509.Certificate, into: Path) -> str:
    content, number = certificate.public_bytes(serialization.Encoding.PEM), f"{certificate.serial_number:x}"
    (authority / "issued").mkdir(exist_ok=True, mode=0o700)
    _write(authority / "issued" / f"{number}.pem", content, 0o644)
    _write(into / "cert.pem", content, 0o644)
    _write(into / "ca.pem", (authority / "ca.pem").read_bytes(), 0o644)
    return number


def _signed(
    authority: Path, who: FleetIdentity, key: ec.EllipticCurvePublicKey, hosts: Sequence[str], days: int, access: CaKey
) -> x509.Certificate:
    issuer = _authority(authority)
    signer = access.signer(authority, issuer)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(who.uri), *map(_host, hosts)]
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if who.role == "gateways" else ExtendedKeyUsageOID.CLIENT_AUTH
    return (
        _builder(_name(who.name), issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _authority(folder: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except OSError as error:
        raise UsageError(f"{folder} contains no authority: {error.strerror}", "tailorbird fleet ca init") from error
    except ValueError as error:
        raise UsageError(f"{folder} contains no authority: {error}", "restore ca.pem and ca-key.pem") from error


def _public(file: Path) -> ec.EllipticCurvePublicKey:
    remedy = "the public key (PEM, ECDSA on P-256) of the key that the command signs with"
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", remedy) from error
    except ValueError as error:
        raise UsageError(f"{file} is not a public key", remedy) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"{file} is not a key on P-256", remedy)
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer, subject_name=subject, public_key=key, serial_number=x509.random_serial_number(),
        not_valid_before=now - _BEFORE, not_valid_after=now + datetime.timedelta(days=days),
    )  # fmt: skip


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write(file: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
        stream.write(content)
