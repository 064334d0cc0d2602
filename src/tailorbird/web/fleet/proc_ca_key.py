"""The private key of a fleet's authority: a file, encrypted with a passphrase, or a device that a command uses."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cdc.model.errors import UsageError

PASSPHRASE, SIGN = "TAILORBIRD_CA_PASSPHRASE", "TAILORBIRD_CA_SIGN_COMMAND"
KEY = "ca-key.pem"
LEAST = 12  # characters of a passphrase
_SECONDS = 60.0  # a device may wait for a touch or a PIN
_RESTORE = "restore the one that `fleet ca init` made"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaKey:
    """Access to the authority's key. `passphrase` decrypts the file; without one the file is not encrypted.

    `command` replaces the file. It reads the bytes to sign from its standard input, and writes their ECDSA signature
    with SHA-256 (DER) to its standard output."""

    passphrase: str = field(default="", repr=False)
    command: str = field(default="", repr=False)

    def encrypted(self, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Return the PEM of a key, encrypted if there is a passphrase."""
        return private_pem(key, self.passphrase)

    def signer(self, folder: Path, certificate: x509.Certificate) -> ec.EllipticCurvePrivateKey:
        """Return the key that has signed the authority's certificate.

        Raises UsageError if the file is missing, readable by other users, encrypted with another passphrase, or not the
        key of `ca.pem`."""
        public = certificate.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise UsageError(f"{folder / 'ca.pem'} is not of an authority that tailorbird created", _RESTORE)
        if self.command:
            return CommandKey(self.command, public)
        key = load_key(folder / KEY, _RESTORE, self.passphrase)
        if key.public_key() != public:
            raise UsageError(f"{folder / KEY} is not the key of ca.pem", _RESTORE)
        return key


NO_PASSPHRASE = CaKey()


def is_encrypted(folder: Path) -> bool:
    """Return whether an authority's key is a file that needs a passphrase."""
    try:
        return b"ENCRYPTED" in (folder / KEY).read_bytes()
    except OSError:  # reported when the key is used
        return False


def change_passphrase(folder: Path, former: str, passphrase: str) -> None:
    """Encrypt an authority's key with another passphrase. The file is replaced by a rename."""
    file = folder / KEY
    key = load_key(file, _RESTORE, former)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(private_pem(key, passphrase))
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)


def load_key(file: Path, remedy: str, passphrase: str = "") -> ec.EllipticCurvePrivateKey:
    """Read a private key. Raises UsageError, with `remedy` if there is no such key."""
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file} is accessible to other users", f"chmod 600 {file}")
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", remedy) from error
    encrypted = b"ENCRYPTED" in content
    if encrypted and not passphrase:
        raise UsageError(f"{file} is encrypted", f"--passphrase-file FILE, or {PASSPHRASE}")
    try:
        key = serialization.load_pem_private_key(content, passphrase.encode() if encrypted else None)
    except (TypeError, ValueError) as error:
        if encrypted:
            raise UsageError(f"{file}: the passphrase is wrong", "use the one of `fleet ca init`") from None
        raise UsageError(f"{file} is not a key: {error}", remedy) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{file} is not a key that tailorbird created", remedy)
    return key


def private_pem(key: ec.EllipticCurvePrivateKey, passphrase: str = "") -> bytes:
    """Return the PEM of a key, encrypted if there is a passphrase."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


class CommandKey(ec.EllipticCurvePrivateKey):
    """A private key that only a command can use, such as one on a device with PKCS#11.

    Each signature is verified with the public key, so a command with another key cannot issue anything."""

    def __init__(self, command: str, public: ec.EllipticCurvePublicKey) -> None:
        self._command, self._public = shlex.split(command), public

    def sign(self, data: Any, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        """Return the command's signature of `data`. Raises UsageError if it fails or signs with another key."""
        remedy = f"check {SIGN}: it reads from standard input and writes a DER signature (ECDSA, SHA-256)"
        try:
            done = subprocess.run(self._command, input=bytes(data), capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:  # its text is the whole command, perhaps with a PIN
            raise UsageError(f"the command that signs: no signature within {_SECONDS:g} s", remedy) from None
        except OSError as error:
            raise UsageError(f"the command that signs: {error.strerror}", remedy) from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise UsageError(f"the command that signs ended with {done.returncode}: {lines[-1][:200]}", remedy)
        try:
            self._public.verify(done.stdout, bytes(data), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise UsageError("the command did not sign with the key of the authority", remedy) from None
        return done.stdout

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """Return the public key."""
        return self._public

    @property
    def curve(self) -> ec.EllipticCurve:
        """Return the curve of the key."""
        return self._public.curve

    @property
    def key_size(self) -> int:
        """Return the number of bits."""
        return self._public.key_size

    def __copy__(self) -> CommandKey:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> CommandKey:
        return self

    def exchange(self, algorithm: ec.ECDH, peer_public_key: ec.EllipticCurvePublicKey) -> bytes:
        """Raise TypeError: the command only signs."""
        self._unavailable()

    def private_numbers(self) -> ec.EllipticCurvePrivateNumbers:
        """Raise TypeError: the key is unknown to this process."""
        self._unavailable()

    def private_bytes(self, encoding: Any, format: Any, encryption_algorithm: Any) -> bytes:
        """Raise TypeError: the key is unknown to this process."""
        self._unavailable()

    def _unavailable(self) -> NoReturn:
        raise TypeError("the private key is only known to the command that signs")
