"""Brokers of a Kafka cluster and the authentication of clients: one value for all clients.

Three clients connect to Kafka (librdkafka, kafka-python, Java's in Spark), and each has other names for its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TOKEN: Mechanism = "OAUTHBEARER"  # a token of an OAuth 2.0 server, for the client's id and secret
_LIBRDKAFKA = {
    "protocol": "security.protocol", "mechanism": "sasl.mechanism", "username": "sasl.username",
    "password": "sasl.password", "ca_file": "ssl.ca.location", "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location", "key_password": "ssl.key.password",
}  # fmt: skip
_KAFKA_PYTHON = {
    "protocol": "security_protocol", "mechanism": "sasl_mechanism", "username": "sasl_plain_username",
    "password": "sasl_plain_password", "ca_file": "ssl_cafile", "certificate_file": "ssl_certfile",
    "key_file": "ssl_keyfile", "key_password": "ssl_password",
}  # fmt: skip
# the same fields, if the mechanism is OAUTHBEARER. `cdc.process.kafka_login` gives kafka-python its tokens
_LIBRDKAFKA_TOKEN = {
    **_LIBRDKAFKA, "username": "sasl.oauthbearer.client.id", "password": "sasl.oauthbearer.client.secret",
    "token_url": "sasl.oauthbearer.token.endpoint.url", "scope": "sasl.oauthbearer.scope",
    "token_ca_file": "https.ca.location",
}  # fmt: skip
_OF_TOKEN = ("username", "password", "token_url", "scope", "token_ca_file")
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_TOKEN_MODULE, _TOKEN_HANDLER = (
    f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin{part}" for part in ("Module", "CallbackHandler")
)
_SCRAM = "scram.ScramLoginModule"
_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """`log.security` of a topology; files are PEM. No password ever appears in messages or logs (`repr`).

    `mechanism`, `username` and `password` are set if the protocol is SASL_…. `certificate_file` and `key_file` are both
    set or both empty. Without `ca_file` the machine's own certificates are trusted. With OAUTHBEARER, `username` and
    `password` are a client's id and secret, for which the server at `token_url` gives tokens of a `scope`; the
    certificates in `token_ca_file` are trusted for it.
    """

    protocol: Protocol
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    token_url: str | None = None
    scope: str | None = None
    token_ca_file: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Brokers:
    """Addresses of a Kafka cluster, `host:port,…`, and the credentials. `str()` and `repr()` contain only the
    addresses."""

    servers: str
    security: KafkaSecurity | None = None

    def __str__(self) -> str:
        return self.servers

    def __repr__(self) -> str:
        return f"Brokers({self.servers!r})"

    @property
    def takes_tokens(self) -> bool:
        """Return whether clients log in with a token of an OAuth 2.0 server."""
        return self.security is not None and self.security.mechanism == TOKEN

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings for every client of confluent_kafka."""
        if self.takes_tokens:
            found = {"sasl.oauthbearer.method": "oidc", **self._secured(_LIBRDKAFKA_TOKEN)}
        else:
            found = self._secured(_LIBRDKAFKA)
        return {"bootstrap.servers": self.servers, **found}

    def reader(self, group: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a consumer of confluent_kafka that assigns its partitions itself and commits nothing.

        It reads committed records, from the first one if an offset no longer exists, and reports the end of a
        partition. Names in `more` have underscores instead of dots. The client requires `group`.
        """
        return {
            **self.librdkafka(),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,  # librdkafka would write to standard error; the failed call returns the error anyway
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def kafka_python(self) -> dict[str, Any]:
        """Return the keyword arguments for every client of kafka-python, but for what gives it tokens
        (`cdc.process.kafka_login`)."""
        own = {name: at for name, at in _KAFKA_PYTHON.items() if not (self.takes_tokens and name in _OF_TOKEN)}
        return {"bootstrap_servers": self.servers, **self._secured(own)}

    def java(self, secrets: str = "") -> dict[str, str]:
        """Return Java's properties without secrets. They refer to the file `secrets`, a properties file with
        `java_secrets`, which Kafka's client reads itself (KIP-297, KIP-421)."""
        one = self.security
        found = {"bootstrap.servers": self.servers}
        if one is None:
            return found
        found["security.protocol"] = one.protocol
        if one.mechanism is not None:
            found["sasl.mechanism"] = one.mechanism
        if self.takes_tokens:
            found["sasl.login.callback.handler.class"] = _TOKEN_HANDLER
            found["sasl.oauthbearer.token.endpoint.url"] = one.token_url or ""
        if one.ca_file is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": one.ca_file}
        if one.certificate_file is not None:
            found["ssl.keystore.type"] = "PEM"
        if names := self._secret_names():
            found |= {"config.providers": "file", "config.providers.file.class": _PROVIDER}
            found |= {name: f"${{file:{secrets}:{name}}}" for name in names}
        return found

    def java_secrets(self, certificates: str = "", key: str = "") -> dict[str, str]:
        """Return the properties with secrets, for the file that `java` refers to.

        `certificates` (trusted) and `key` (PKCS #8, not encrypted) are PEM texts.
        """
        one = self.security
        values = {"ssl.keystore.certificate.chain": certificates, "ssl.keystore.key": key}
        if one is not None and one.mechanism is not None:
            values["sasl.jaas.config"] = _token_login(one) if self.takes_tokens else _login(one, one.mechanism)
        return {name: values[name] for name in self._secret_names()}

    def _secured(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of `security` that are set, under a client's own names; `names` maps field → name."""
        found = {} if self.security is None else asdict(self.security)
        return {names[name]: value for name, value in found.items() if value is not None and name in names}

    def _secret_names(self) -> list[str]:
        one, names = self.security, list[str]()
        if one is not None and one.mechanism is not None:
            names.append("sasl.jaas.config")
        if one is not None and one.certificate_file is not None:
            names += ["ssl.keystore.certificate.chain", "ssl.keystore.key"]
        return names


def refuses(name: str, message: str) -> bool:
    """Return whether an error of librdkafka, by its name and message, means that credentials were rejected, on either
    side.

    In TLS 1.3 a broker verifies a client's certificate after the handshake. So its alert closes a connection that
    seemed established, and librdkafka reports a transport error.
    """
    return name in ("_AUTHENTICATION", "_SSL") or (name == "_TRANSPORT" and "SSL alert" in message)


def _login(security: KafkaSecurity, mechanism: Mechanism) -> str:
    module = _MODULES.get(mechanism, _SCRAM)
    login = f"username={_quoted(security.username or '')} password={_quoted(security.password or '')}"
    return f"org.apache.kafka.common.security.{module} required {login};"


def _token_login(security: KafkaSecurity) -> str:
    options = {"clientId": security.username or "", "clientSecret": security.password or ""}
    if security.scope is not None:
        options["scope"] = security.scope
    if security.token_ca_file is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.token_ca_file}
    return f"{_TOKEN_MODULE} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _quoted(text: str) -> str:
    """Quote a text for the Java login configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
