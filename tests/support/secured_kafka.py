"""A test's broker with two more listeners, SASL_SSL and mutual TLS, with certificates made for it, and with access
control. The user `tailorbird` and the client's certificate may do everything; other users have what a test grants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cdc.model.brokers import Brokers, KafkaSecurity, Mechanism
from cdc.process.grants import Grant, Operation
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.progress import ProgressListener
from tailorbird.devtools.stack.service_spec import ServiceSpec
from tailorbird.devtools.stack.settings import ServiceName, StackSettings
from tests.support.certificates import self_signed
from tests.support.ports import free_port

USER, PASSWORD = "tailorbird", 's3cret-"quoted\\-ünlike'
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_TOKENS = """
listener.name.secure.oauthbearer.sasl.jaas.config={0}.OAuthBearerLoginModule required;
listener.name.secure.oauthbearer.sasl.server.callback.handler.class={0}.OAuthBearerValidatorCallbackHandler
listener.name.secure.sasl.oauthbearer.jwks.endpoint.url={1}/keys
listener.name.secure.sasl.oauthbearer.expected.audience=tailorbird
"""
SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """Its addresses and files: `plain` without authentication, where everything is allowed; `address` of SASL_SSL,
    `mutual` of TLS for clients with a certificate; the self-signed certificate to trust; a client's certificate, and
    its key under PASSWORD."""

    plain: str
    address: str
    mutual: str
    ca_file: Path
    certificate_file: Path
    key_file: Path

    def login(self, mechanism: Mechanism, password: str = PASSWORD) -> Brokers:
        """Return the settings to log in with a password."""
        security = KafkaSecurity(
            protocol="SASL_SSL", mechanism=mechanism, username=USER, password=password, ca_file=str(self.ca_file)
        )
        return Brokers(self.address, security)

    def with_token(self, issuer: str, secret: str) -> Brokers:
        """Return the settings to log in with a token of an issuer."""
        security = KafkaSecurity(
            protocol="SASL_SSL", mechanism="OAUTHBEARER", username=USER, password=secret, ca_file=str(self.ca_file),
            token_url=f"{issuer}/token", scope="kafka",
        )  # fmt: skip
        return Brokers(self.address, security)

    def certified(self) -> Brokers:
        """Return the settings to connect with the client's certificate."""
        security = KafkaSecurity(
            protocol="SSL", ca_file=str(self.ca_file), certificate_file=str(self.certificate_file),
            key_file=str(self.key_file), key_password=PASSWORD,
        )  # fmt: skip
        return Brokers(self.mutual, security)

    def user(self, name: str, password: str = PASSWORD) -> None:
        """Create a user for SCRAM-SHA-512 who may do nothing."""
        admin = AdminClient({"bootstrap.servers": self.plain})
        made = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        admin.alter_user_scram_credentials([made])[name].result(20)

    def allow(self, user: str, grant: Grant, *operations: Operation) -> None:
        """Give a user operations of a grant (none: all)."""
        admin = AdminClient({"bootstrap.servers": self.plain})
        for made in admin.create_acls(_rules(user, grant, operations)).values():
            made.result(20)

    def forbid(self, user: str, grant: Grant, *operations: Operation) -> None:
        """Take operations of a grant (none: all) from a user."""
        admin = AdminClient({"bootstrap.servers": self.plain})
        for made in admin.delete_acls([_filter(one) for one in _rules(user, grant, operations)]).values():
            made.result(20)

    def rules(self, user: str) -> set[tuple[str, bool, str]]:
        """Return what a user may do: name, whether it is a prefix, and operation."""
        admin = AdminClient({"bootstrap.servers": self.plain})
        anything: Any = None
        wanted = AclBindingFilter(
            ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything, AclOperation.ANY,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        return {
            (one.name, one.resource_pattern_type == ResourcePatternType.PREFIXED, one.operation.name)
            for one in admin.describe_acls(wanted).result(20)
        }

    def uncertified(self) -> Brokers:
        """Return the settings to connect without a certificate to the listener that requires one."""
        return Brokers(self.mutual, KafkaSecurity(protocol="SSL", ca_file=str(self.ca_file)))


@contextmanager
def secured_kafka(folder: Path, issuer: str = "") -> Iterator[SecuredKafka]:
    """Run the broker for the block; its files are in `folder`. It accepts the tokens of an issuer, by its URL."""
    folder.mkdir(parents=True)
    own = {key: value for key, value in os.environ.items() if not key.startswith("TAILORBIRD_PORT")}
    ports = {"kafka": free_port(), "kafka_controller": free_port()}
    settings = StackSettings.from_environ(own, folder, home=folder / "home", ports=ports)
    ca_file, key_store, port, mutual = folder / "ca.pem", folder / "broker.pem", free_port(), free_port()
    certificate, key = self_signed()
    ca_file.write_bytes(certificate)
    key_store.write_bytes(key + certificate)
    certificate_file, key_file = folder / "client.pem", folder / "client.key"
    certificate, key = self_signed(PASSWORD)
    certificate_file.write_bytes(certificate)
    key_file.write_bytes(key)
    stack = _Secured(settings, port, mutual, key_store, certificate_file, issuer)
    stack.up(services=["kafka"])
    _know_user(f"127.0.0.1:{settings.ports.kafka}")
    try:
        yield SecuredKafka(
            plain=f"127.0.0.1:{settings.ports.kafka}", address=f"127.0.0.1:{port}", mutual=f"127.0.0.1:{mutual}",
            ca_file=ca_file, certificate_file=certificate_file, key_file=key_file,
        )  # fmt: skip
    finally:
        stack.down(purge=True)


def log_of(kafka: SecuredKafka, folder: Path, password: str = PASSWORD) -> str:
    """Return the `log:` section of a topology whose password is in a separate file."""
    (folder / "password").write_text(f"{password}\n", encoding="utf-8")
    return (
        f"{{bootstrap_servers: '{kafka.address}', security: {{protocol: SASL_SSL, mechanism: PLAIN, username: {USER},"
        f" password: '${{file:password}}', ca_file: {kafka.ca_file}}}}}"
    )


class _Secured(Stack):
    """The local stack's broker with more listeners: if a key is given twice, Java takes the last value."""

    def __init__(
        self, settings: StackSettings, port: int, mutual: int, key_store: Path, certificate_file: Path, issuer: str
    ) -> None:
        super().__init__(settings)
        own, controller = settings.ports.kafka, settings.ports.kafka_controller
        login = f'user_{USER}="{PASSWORD.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
        jaas = _java(f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};")
        open_to_all = f"PLAINTEXT://127.0.0.1:{own},SECURE://127.0.0.1:{port},MUTUAL://127.0.0.1:{mutual}"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        self._more = f"""
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{USER};User:CN=of a test
listeners={open_to_all},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={open_to_all}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL
listener.name.secure.sasl.enabled.mechanisms=PLAIN,{",".join(SCRAM)}
listener.name.secure.plain.sasl.jaas.config={jaas}
listener.name.secure.scram-sha-256.sasl.jaas.config={scram}
listener.name.secure.scram-sha-512.sasl.jaas.config={scram}
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.truststore.type=PEM
listener.name.mutual.ssl.truststore.location={certificate_file}
"""
        self._jvm: tuple[str, ...] = ()
        if issuer:
            self._jvm = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer}/keys",)
            self._more = self._more.replace("mechanisms=PLAIN,", "mechanisms=PLAIN,OAUTHBEARER,") + _TOKENS.format(
                "org.apache.kafka.common.security.oauthbearer", issuer
            )
        for name in ("secure", "mutual"):
            self._more += f"listener.name.{name}.ssl.keystore.type=PEM\n"
            self._more += f"listener.name.{name}.ssl.keystore.location={key_store}\n"

    def _specs(self, progress: ProgressListener, services: Iterable[ServiceName]) -> dict[ServiceName, ServiceSpec]:
        specs = super()._specs(progress, services)
        kafka = specs["kafka"]
        files = {
            path: body + self._more if path.suffix == ".properties" and "log4j2" not in path.name else body
            for path, body in kafka.files.items()
        }
        argv = (kafka.argv[0], *self._jvm, *kafka.argv[1:])
        return {**specs, "kafka": replace(kafka, files=files, argv=argv)}


def _rules(user: str, grant: Grant, operations: Iterable[Operation]) -> list[AclBinding]:
    pattern = ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL
    return [
        AclBinding(
            _RESOURCES[grant.resource], grant.name, pattern, f"User:{user}", "*", AclOperation[one],
            AclPermissionType.ALLOW,
        )
        for one in operations or grant.operations
    ]  # fmt: skip


def _filter(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation,
        rule.permission_type,
    )  # fmt: skip


def _know_user(address: str) -> None:
    """Create the user for SCRAM, whose users the broker stores itself."""
    admin = AdminClient({"bootstrap.servers": address})
    for mechanism in SCRAM.values():  # one request per user
        known = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([known])[USER].result(20)


def _java(value: str) -> str:
    """Format a value for a Java properties file."""
    return "".join(one if one.isascii() and one != "\\" else f"\\u{ord(one):04x}" for one in value)
