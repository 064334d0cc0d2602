"""Solr servers with settings that the stack's Solr lacks: TLS and basic authentication, SolrCloud."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from tailorbird.devtools.stack.proc_stack import Stack
from tests.support.ports import free_port

_CONNECTOR = '<Arg name="server"><Ref refid="Server"/></Arg>'
_TLS = """
        <Arg name="sslContextFactory">
          <New class="org.eclipse.jetty.util.ssl.SslContextFactory$Server">
            <Set name="KeyStorePath">{store}</Set>
            <Set name="KeyStoreType">PKCS12</Set>
            <Set name="KeyStorePassword">{password}</Set>
          </New>
        </Arg>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A self-signed certificate of the loopback address: `store` for the server, `pem` for clients."""

    store: Path
    pem: Path
    password: str = "a password of the key store"


class SolrServer:
    """A copy of the stack's Solr: the same class path and flags, but its own folder, port and settings."""

    def __init__(self, stack: Stack, home: Path, *, flags: tuple[str, ...] = ()) -> None:
        [running] = [each for each in stack.status() if each.name == "solr"]
        said = Path(f"/proc/{running.pid}/cmdline").read_text().split("\0")[:-1]
        here, there = str(stack.settings.home), str(home)
        before, self.port = stack.settings.ports.solr, free_port()
        self.home = home
        moved = [part.replace(here, there) if part.startswith(("-D", here)) else part for part in said]
        self._command = [part.replace(f"jetty.port={before}", f"jetty.port={self.port}") for part in moved]
        main = self._command.index("-cp")
        self._command[main:main] = flags
        for folder in ("conf/solr", "data/solr"):
            for source in (stack.settings.home / folder).rglob("*.xml"):
                if "cores" not in source.parts and "configsets" not in source.parts:
                    self._copy(source, home / source.relative_to(stack.settings.home), here, before)
        logging = stack.settings.home / "conf" / "solr" / "log4j2.properties"
        self._copy(logging, home / "conf" / "solr" / logging.name, here, before)
        for folder in ("data/solr/cores", "data/solr/configsets", "logs"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def _copy(self, source: Path, target: Path, here: str, port: int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text().replace(here, str(self.home)).replace(f">{port}<", f">{self.port}<")
        target.write_text(text)

    def secure(self, certificate: Certificate, user: str, password: str) -> None:
        """Accept TLS with this certificate only and one user who may do everything; call it before the start."""
        jetty = self.home / "conf" / "solr" / "jetty.xml"
        tls = _TLS.format(store=certificate.store, password=certificate.password)
        jetty.write_text(jetty.read_text().replace(_CONNECTOR, _CONNECTOR + tls))
        security = {
            "authentication": {
                "class": "solr.BasicAuthPlugin",
                "blockUnknown": True,
                "credentials": {user: _hashed(password)},
            }
        }
        (self.home / "data" / "solr" / "security.json").write_text(json.dumps(security))

    def start(self, answers: Callable[[], bool]) -> None:
        """Start it and wait until it answers as expected."""
        with (self.home / "logs" / "solr.out").open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self.home)
        deadline = time.monotonic() + 180
        while not answers():
            said = (self.home / "logs" / "solr.out").read_text()[-2000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.3)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def certificate(folder: Path) -> Certificate:
    """Create a certificate that is valid for an hour."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "solr of a test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    found = Certificate(store=folder / "solr.p12", pem=folder / "solr.pem")
    encryption = serialization.BestAvailableEncryption(found.password.encode())
    found.store.write_bytes(pkcs12.serialize_key_and_certificates(b"solr", key, made, None, encryption))
    found.pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return found


def _hashed(password: str) -> str:
    """Hash a password in the format of Solr's Sha256AuthenticationProvider."""
    salt = os.urandom(32)
    twice = hashlib.sha256(hashlib.sha256(salt + password.encode()).digest()).digest()
    return f"{base64.b64encode(twice).decode()} {base64.b64encode(salt).decode()}"


def cloud(stack: Stack, home: Path) -> SolrServer:
    """Start a SolrCloud of one node, whose ZooKeeper is HBase's."""
    zookeeper = f"-DzkHost={stack.addresses()['zookeeper']}/solr-{home.name}"
    # HTTP/1: Solr's nodes use HTTP/2 among themselves, which the stack's Jetty does not support
    made = SolrServer(stack, home, flags=(zookeeper, "-DcreateZkChroot=true", "-Dsolr.http1=true"))
    settings = home / "data" / "solr" / "solr.xml"
    section = (
        f'<solrcloud><str name="host">127.0.0.1</str><int name="hostPort">{made.port}</int>'
        '<str name="hostContext">solr</str><int name="zkClientTimeout">30000</int></solrcloud></solr>'
    )
    settings.write_text(settings.read_text().replace("</solr>", section))
    return made
