"""A broker of a test's own with a second listener, SASL_SSL, under a certificate made for it."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from console.stack.proc_stack import Stack
from console.stack.progress import TellProgress
from console.stack.services import ServiceSpec
from console.stack.settings import ServiceName, StackSettings
from tests.support.ports import free_port

USER, PASSWORD = "tailorbird", 's3cret-"quoted\\-ünlike'


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """Where it is, and the certificate to trust, which signs itself."""

    address: str
    ca_file: Path


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Its files are in `folder`; it runs while the block does."""
    folder.mkdir(parents=True)
    own = {key: value for key, value in os.environ.items() if not key.startswith("TAILORBIRD_PORT")}
    ports = {"kafka": free_port(), "kafka_controller": free_port()}
    settings = StackSettings.from_environ(own, folder, home=folder / "home", ports=ports)
    ca_file, key_store, port = folder / "ca.pem", folder / "broker.pem", free_port()
    certificate, key = _certificate()
    ca_file.write_bytes(certificate)
    key_store.write_bytes(key + certificate)
    stack = _Secured(settings, port, key_store)
    stack.up(services=["kafka"])
    try:
        yield SecuredKafka(address=f"127.0.0.1:{port}", ca_file=ca_file)
    finally:
        stack.down(purge=True)


class _Secured(Stack):
    """The local stack's broker with a listener more: of a key that is given twice, Java takes the last."""

    def __init__(self, settings: StackSettings, port: int, key_store: Path) -> None:
        super().__init__(settings)
        own, controller = settings.ports.kafka, settings.ports.kafka_controller
        login = f'user_{USER}="{PASSWORD.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
        jaas = _java(f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};")
        self._more = f"""
listeners=PLAINTEXT://127.0.0.1:{own},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{own},SECURE://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config={jaas}
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={key_store}
"""

    def _specs(self, progress: TellProgress, services: Iterable[ServiceName]) -> dict[ServiceName, ServiceSpec]:
        specs = super()._specs(progress, services)
        kafka = specs["kafka"]
        files = {
            path: body + self._more if path.suffix == ".properties" and "log4j2" not in path.name else body
            for path, body in kafka.files.items()
        }
        return {**specs, "kafka": replace(kafka, files=files)}


def _java(value: str) -> str:
    """A value as a file of Java's properties has it."""
    return "".join(one if one.isascii() and one != "\\" else f"\\u{ord(one):04x}" for one in value)


def _certificate() -> tuple[bytes, bytes]:
    """A certificate of 127.0.0.1 that signs itself, and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a broker of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), secret
