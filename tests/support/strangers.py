"""A gateway that unauthorized clients dial, with every kind of invalid certificate, and one valid agent."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ingest.fleet.certificate import RevokedCertificate, certified
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import revoked_record
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from tailorbird.web.fleet.file_ca import init, issue
from tests.ingest.fleet.test_session_handler import Source
from tests.support.gateways import TENANT, certificates, server_open
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic
from tests.support.ports import free_port


class GatewayWorld:
    """A gateway over topics in memory, a valid agent with an open session, and credentials of every kind."""

    def __init__(self, folder: Path, exit: ExitStack) -> None:
        self.folder = certificates(folder)
        self.topic, self.audit, self.source = NearbyTopic(), NearbyAudit(), Source()
        self.beside = Source()
        coordinator = coordinator_of("g1#1", TENANT, "t", self.topic, self.audit)
        self.runtime = GatewayRuntime(coordinator, self.served, self.audit, self.topic)
        exit.callback(self.runtime.close)
        self.tokens = f"127.0.0.1:{free_port()}"
        self.address = exit.enter_context(server_open(self.runtime, self.folder, self.tokens))
        self.made("honest", FleetIdentity(TENANT, "agents", "honest"))
        self.stream = GrpcStream(self.address, Credentials.of(folder / "honest"))
        exit.callback(self.stream.close)
        self.honest = GatewayLog(self.stream, "s")
        self.honest.recover()

    def served(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        """The source of each agent of the tenant; the valid agent has another one."""
        if (agent.tenant, name) != (TENANT, "s"):
            return None
        return self.source if agent.name == "honest" else self.beside

    def made(self, name: str, who: FleetIdentity, authority: str = "authority", days: int = 1) -> Path:
        folder = self.folder / name
        if not folder.exists():
            issue(self.folder / authority, who, folder, days=days)
            shutil.copy(self.folder / "authority" / "ca.pem", folder / "ca.pem")  # it trusts the gateway
        return folder

    def other_authority(self) -> str:
        if not (self.folder / "other").exists():
            init(self.folder / "other", TENANT)
        return "other"


def agent(world: GatewayWorld) -> grpc.ChannelCredentials:
    return Credentials.of(world.folder / "agent").channel()


def shown(folder: Path) -> grpc.ChannelCredentials:
    return Credentials.of(folder).channel()


def stranger(world: GatewayWorld) -> grpc.ChannelCredentials:
    """Create credentials of another authority."""
    return shown(world.made("stranger", FleetIdentity(TENANT, "agents", "a1"), world.other_authority()))


def own_signer(world: GatewayWorld) -> grpc.ChannelCredentials:
    """Create self-signed credentials with the valid agent's name."""
    folder = world.made("itself", FleetIdentity(TENANT, "agents", "a1"))
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a1")])
    now = datetime.datetime.now(datetime.UTC)
    own = x509.CertificateBuilder(
        issuer_name=name, subject_name=name, public_key=key.public_key(), serial_number=1, not_valid_before=now,
        not_valid_after=now + datetime.timedelta(days=1),
        extensions=[
            x509.Extension(x509.SubjectAlternativeName.oid, False, x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier(f"tailorbird://{TENANT}/agents/a1")])),
        ],
    ).sign(key, hashes.SHA256())  # fmt: skip
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(private)
    (folder / "cert.pem").write_bytes(own.public_bytes(serialization.Encoding.PEM))
    return shown(folder)


def expired(world: GatewayWorld) -> grpc.ChannelCredentials:
    return shown(world.made("expired", FleetIdentity(TENANT, "agents", "a1"), days=0))


def without(world: GatewayWorld) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials((world.folder / "authority" / "ca.pem").read_bytes())


def gateways(world: GatewayWorld) -> grpc.ChannelCredentials:
    return shown(world.folder / "gateway")


def called(name: str) -> Callable[[GatewayWorld], grpc.ChannelCredentials]:
    def make(world: GatewayWorld) -> grpc.ChannelCredentials:
        return shown(world.made(f"called {len(name)} {ord(name[-1])}", FleetIdentity(TENANT, "agents", name)))

    return make


def revoked(world: GatewayWorld) -> grpc.ChannelCredentials:
    folder = world.made("revoked", FleetIdentity(TENANT, "agents", "a1"))
    serial = certified((folder / "cert.pem").read_bytes()).serial
    world.topic.write(revoked_record(RevokedCertificate(serial=serial, by="anna")))
    return shown(folder)
