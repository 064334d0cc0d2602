"""A list of everything that an installation consists of, in CycloneDX's JSON (SBOM)."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from tailorbird.devtools.stack.artefacts import Jar

_FORMAT = "1.6"


@dataclass(frozen=True, slots=True, kw_only=True)
class SbomComponent:
    """A package, jar or server. `purl` is its package URL, which identifies it; `license` an SPDX expression or name.

    `sha256` is the digest of its only file. `locked` has those of its release's files.
    `parts` are the package URLs of what it consists of."""

    kind: str = "library"
    name: str
    version: str
    purl: str
    license: str = ""
    sha256: str = ""
    locked: Collection[str] = field(default=())
    parts: Collection[str] = field(default=())

    def described(self) -> dict[str, Any]:
        """Return the component as CycloneDX describes it."""
        found: dict[str, Any] = {"type": self.kind, "bom-ref": self.purl, "name": self.name, "purl": self.purl}
        if self.version:
            found["version"] = self.version
        if self.license:
            found["licenses"] = [{"license": {"name": self.license}}]
        if self.sha256:
            found["hashes"] = [_hash(self.sha256)]
        if self.locked:
            hashes = [_hash(one) for one in sorted(self.locked)]
            found["externalReferences"] = [{"type": "distribution", "url": self.purl, "hashes": hashes}]
        return found


def python_package(
    name: str, version: str, license: str, parts: Collection[str] = (), locked: Collection[str] = ()
) -> SbomComponent:
    """Return the component of a Python package. `locked` has the digests of all files that `pip` accepts for it."""
    plain = name.lower().replace("_", "-")
    purl = f"pkg:pypi/{quote(plain)}@{quote(version)}"
    return SbomComponent(name=name, version=version, purl=purl, license=license, locked=locked, parts=parts)


def locked_digests(text: str) -> dict[tuple[str, str], set[str]]:
    """Return the SHA-256 digests in a lock file, by the normalized name and the version of a package."""
    found = dict[tuple[str, str], set[str]]()
    digests = set[str]()
    for line in text.splitlines():
        if start := re.match(r"([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", line):
            digests = found.setdefault((normalized(start[1]), start[2]), set())
        digests |= set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def normalized(name: str) -> str:
    """Return the name by which an index knows a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def maven_jar(jar: Jar) -> SbomComponent:
    """Return the component of a jar that `stack fetch` downloads."""
    more = f"&classifier={quote(jar.classifier)}" if jar.classifier else ""
    purl = f"pkg:maven/{quote(jar.group)}/{quote(jar.artifact)}@{quote(jar.version)}?type=jar{more}"
    return SbomComponent(name=jar.artifact, version=jar.version, purl=purl, sha256=jar.sha256)


def file_in_package(file: str, package: str, sha256: str) -> SbomComponent:
    """Return the component of a jar inside a Python package, whose coordinates are unknown."""
    purl = f"pkg:generic/{quote(package)}/{quote(file)}?checksum=sha256:{sha256}"
    return SbomComponent(kind="file", name=file, version="", purl=purl, sha256=sha256)


def server(name: str, version: str, jars: Collection[Jar]) -> SbomComponent:
    """Return the component of a server of the local stack, which consists of jars."""
    parts = [maven_jar(jar).purl for jar in jars]
    purl = f"pkg:generic/{quote(name)}@{quote(version)}"
    return SbomComponent(kind="application", name=name, version=version, purl=purl, parts=parts)


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}


def sbom_of(own: SbomComponent, components: Collection[SbomComponent]) -> bytes:
    """Return the JSON of an SBOM. `own` is the software that consists of all components.

    The same components make the same bytes. The serial number is a digest of them, and there is no date."""
    unique: Mapping[str, SbomComponent] = {one.purl: one for one in components}
    listed = [unique[purl].described() for purl in sorted(unique)]
    inner = {purl for one in unique.values() for purl in one.parts}
    depends = [{"ref": own.purl, "dependsOn": sorted(unique.keys() - inner)}]
    depends += [
        {"ref": one.purl, "dependsOn": sorted(set(one.parts))} for _, one in sorted(unique.items()) if one.parts
    ]
    digest = hashlib.sha256(orjson.dumps([own.described(), listed])).digest()
    document = {
        "bomFormat": "CycloneDX", "specVersion": _FORMAT,
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}", "version": 1,
        "metadata": {"component": {**own.described(), "type": "application"}},
        "components": listed, "dependencies": depends,
    }  # fmt: skip
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
