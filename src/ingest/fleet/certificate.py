"""What a certificate says of its holder: who it is, under which number, until when; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography import x509

from cdc.model.errors import UsageError
from ingest.fleet.identity import FleetIdentity, identity_of

_SERIAL = re.compile(r"[1-9a-f][0-9a-f]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """`who` is None where it is nobody of a fleet's; `serial` in hex, `ends` in seconds since 1970."""

    who: FleetIdentity | None
    serial: str
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """A certificate that counts no more, whatever it says itself; `by` whom, since when (milliseconds since 1970)."""

    serial: str
    by: str = ""
    at_ms: int = 0


def certified(pem: bytes) -> Certified:
    """What a certificate in PEM says; ValueError where it is none."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        who = None
    else:
        who = identity_of(names.get_values_for_type(x509.UniformResourceIdentifier))
    ends = certificate.not_valid_after_utc.timestamp()
    return Certified(who=who, serial=f"{certificate.serial_number:x}", ends=ends)


def serial_of(text: str) -> str:
    """A serial number that somebody gives, as it stands here; UsageError where it is none."""
    plain = text.lower().replace(":", "").lstrip("0")
    if not _SERIAL.fullmatch(plain):
        raise UsageError(
            f"{text[:80]!r} is no certificate's number", "hex digits, as `tailorbird fleet ca list` has it"
        )
    return plain
