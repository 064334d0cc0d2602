"""Read a certificate: its holder, its serial number and when it expires."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography import x509

from cdc.model.errors import UsageError
from ingest.fleet.identity import FleetIdentity, identity_of

_SERIAL = re.compile(r"[1-9a-f][0-9a-f]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateContent:
    """Holder, serial number and end of validity of a certificate.

    `who` is None if the certificate is not that of a fleet's agent or gateway. `serial` is in hexadecimal, `ends` in
    seconds since 1970.
    """

    who: FleetIdentity | None
    serial: str
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedCertificate:
    """A certificate that was revoked: by whom, and when (milliseconds since 1970)."""

    serial: str
    by: str = ""
    at_ms: int = 0


def certified(pem: bytes) -> CertificateContent:
    """Read a PEM certificate. Raises ValueError if it is not one."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        who = None
    else:
        who = identity_of(names.get_values_for_type(x509.UniformResourceIdentifier))
    ends = certificate.not_valid_after_utc.timestamp()
    return CertificateContent(who=who, serial=f"{certificate.serial_number:x}", ends=ends)


def serial_of(text: str) -> str:
    """Normalize a serial number that a user has entered. Raises UsageError if it is not one."""
    plain = text.lower().replace(":", "").lstrip("0")
    if not _SERIAL.fullmatch(plain):
        raise UsageError(
            f"{text[:80]!r} is not a serial number", "hex digits, as `tailorbird fleet ca list` shows them"
        )
    return plain
