"""The file of secrets that Java's clients of Kafka read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cdc.model.brokers import Brokers, KafkaSecurity
from cdc.model.errors import UsageError
from joins.engine.file_secrets import java_properties


def unescaped(text: str) -> dict[str, str]:
    """Parse a Java properties file."""
    lines = (line.partition("=") for line in text.splitlines())
    return {name: re.sub(r"\\u(....)", lambda found: chr(int(found[1], 16)), value) for name, _, value in lines}


def test_secrets_are_in_a_file_of_their_owner(tmp_path: Path) -> None:
    """Spark's options name the file, which only its owner can read; equal secrets share one file."""
    security = KafkaSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="cdc", password='a"=#\\ é')
    found = java_properties(Brokers("k:9", security), tmp_path / "secrets")
    assert (
        java_properties(Brokers("other:9", security), tmp_path / "secrets")["sasl.jaas.config"]
        == (found["sasl.jaas.config"])
    )
    (file,) = (tmp_path / "secrets").iterdir()
    assert found["sasl.jaas.config"] == f"${{file:{file}:sasl.jaas.config}}"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    login = unescaped(file.read_text())["sasl.jaas.config"]
    assert login.endswith(r'required username="cdc" password="a\"=#\\ é";')


def test_any_key_becomes_one_that_java_reads(tmp_path: Path) -> None:
    """librdkafka reads keys that Java does not (PKCS #1, encrypted): one topology serves both."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "k.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"hush"),
        )
    )
    (tmp_path / "c.pem").write_text("-----BEGIN CERTIFICATE-----\n")

    def found(password: str, certificate: str = "c.pem") -> dict[str, str]:
        return java_properties(
            Brokers(
                "k:9",
                KafkaSecurity(
                    protocol="SSL",
                    certificate_file=str(tmp_path / certificate),
                    key_file=str(tmp_path / "k.pem"),
                    key_password=password,
                ),
            ),
            tmp_path / "secrets",
        )

    assert set(found("hush")) >= {"ssl.keystore.key", "ssl.keystore.certificate.chain"}
    (file,) = (tmp_path / "secrets").iterdir()
    assert unescaped(file.read_text())["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match=r"log\.security\.key_file .*k\.pem"):
        found("wrong")
    with pytest.raises(UsageError, match=r"log\.security\.certificate_file .*none\.pem: No such file"):
        found("hush", "none.pem")
