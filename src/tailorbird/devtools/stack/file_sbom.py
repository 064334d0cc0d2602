"""Print the SBOM of this environment and of the local stack: `python -m tailorbird.devtools.stack.file_sbom`."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from cdc.model.artefacts import VERSIONS
from tailorbird.devtools.stack.artefacts import BUNDLES, parse_jars
from tailorbird.devtools.stack.sbom import (
    SbomComponent,
    file_in_package,
    maven_jar,
    python_package,
    sbom_of,
    server,
)

_FILES = files("tailorbird.devtools.stack") / "files"
_OWN = "tailorbird"
_LONGEST_LICENSE = 100  # characters; some packages have the whole text in this field


def environment_sbom() -> bytes:
    """Return the SBOM of the installed packages, Spark's jars, the servers of the stack, and their jars."""
    installed = {one.name.lower(): one for one in distributions()}
    own = _package(installed.pop(_OWN))
    return sbom_of(own, [*_packages(installed.values()), *_stack()])


def _packages(installed: Iterable[Distribution]) -> Iterator[SbomComponent]:
    for one in installed:
        if one.name.lower() == "pyspark":
            jars = list(_spark_jars())
            yield from jars
            yield _package(one, [jar.purl for jar in jars])
        else:
            yield _package(one)


def _package(one: Distribution, parts: list[str] | None = None) -> SbomComponent:
    said = one.metadata.json.get("license_expression") or one.metadata.json.get("license") or ""
    license = str(said).strip().partition("\n")[0]
    return python_package(one.name, one.version, license if len(license) < _LONGEST_LICENSE else "", parts or ())


def _spark_jars() -> Iterator[SbomComponent]:
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for jar in sorted((Path(spec.origin).parent / "jars").glob("*.jar")):
            with jar.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            yield file_in_package(jar.name, "pyspark", digest)


def _stack() -> Iterator[SbomComponent]:
    for bundle in BUNDLES:
        jars = parse_jars((_FILES / "jars" / f"{bundle}.txt").read_text())
        yield from map(maven_jar, jars)
        yield server(bundle, VERSIONS[bundle], jars)
    java = re.match(r"([\w-]+)==([\w.]+)", (_FILES / "java.txt").read_text())
    if java is not None:
        yield python_package(java[1], java[2], "")


if __name__ == "__main__":
    sys.stdout.buffer.write(environment_sbom())
