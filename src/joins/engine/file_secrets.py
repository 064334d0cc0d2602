"""Write a file with the secrets of Kafka's Java clients, so that no plan, command line or event log contains them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from cdc.model.brokers import Brokers
from cdc.model.errors import UsageError


def java_properties(brokers: Brokers, folder: Path) -> dict[str, str]:
    """Return the properties of Kafka's Java clients. Secrets are in a file in `folder` that only its owner can read.

    Executors read the file under the same path. Its name depends on its content, so the file of a running query
    never changes. Raises UsageError if the certificate or its key cannot be used."""
    security = brokers.security
    certificates = key = ""
    if security is not None and security.certificate_file is not None and security.key_file is not None:
        certificates = _read("certificate_file", security.certificate_file).decode(errors="replace")
        key = _pkcs8(security.key_file, security.key_password)
    secrets = brokers.java_secrets(certificates, key)
    if not secrets:
        return brokers.java()
    text = "".join(f"{name}={_escaped(value)}\n" for name, value in secrets.items())
    file = folder / f"kafka-{hashlib.sha256(text.encode()).hexdigest()[:16]}.properties"
    _write(file, text)
    return brokers.java(str(file))


def _write(file: Path, text: str) -> None:
    """Write the file atomically: it is renamed into place, even if several processes write it."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as scratch:  # mode 0600
            scratch.write(text)
        Path(scratch.name).replace(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "let this user write to TAILORBIRD_HOME") from error


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file: everything but letters and digits as \\uXXXX."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _pkcs8(file: str, password: str | None) -> str:
    """Return a private key in PKCS #8 form, the only one that Java reads."""
    try:
        key = serialization.load_pem_private_key(_read("key_file", file), password.encode() if password else None)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"log.security.key_file {file}: {error}", "name a private key in PEM format; set key_password if it has one"
        ) from error
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _read(key: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"log.security.{key} {file}: {error.strerror}", "name a readable PEM file") from error
