"""Print the SBOM of this environment and of the local stack.

python -m tailorbird.devtools.stack.file_sbom locks/*.txt     # lock files, for the digests of packages
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from cdc.model.artefacts import VERSIONS
from tailorbird.devtools.stack.artefacts import BUNDLES, parse_jars
from tailorbird.devtools.stack.sbom import (
    SbomComponent,
    file_in_package,
    locked_digests,
    maven_jar,
    normalized,
    python_package,
    sbom_of,
    server,
)

_FILES = files("tailorbird.devtools.stack") / "files"
_OWN = "tailorbird"
Digests = Mapping[tuple[str, str], Collection[str]]  # by normalized name and version
_LONGEST_LICENSE = 100  # characters; some packages have the whole text in this field


def environment_sbom(locks: Iterable[Path] = ()) -> bytes:
    """Return the SBOM of the installed packages, Spark's jars, the servers of the stack, and their jars.

    A package has the digests that a lock file accepts for its version."""
    digests = dict[tuple[str, str], set[str]]()
    for file in locks:
        for package, found in locked_digests(file.read_text()).items():
            digests.setdefault(package, set()).update(found)
    installed = {one.name.lower(): one for one in distributions()}
    own = _package(installed.pop(_OWN), digests)
    return sbom_of(own, [*_packages(installed.values(), digests), *_stack()])


def _packages(installed: Iterable[Distribution], digests: Digests) -> Iterator[SbomComponent]:
    for one in installed:
        if one.name.lower() == "pyspark":
            jars = list(_spark_jars())
            yield from jars
            yield _package(one, digests, [jar.purl for jar in jars])
        else:
            yield _package(one, digests)


def _package(one: Distribution, digests: Digests, parts: Collection[str] = ()) -> SbomComponent:
    said = one.metadata.json.get("license_expression") or one.metadata.json.get("license") or ""
    license = str(said).strip().partition("\n")[0]
    locked = digests.get((normalized(one.name), one.version), ())
    return python_package(one.name, one.version, license if len(license) < _LONGEST_LICENSE else "", parts, locked)


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
    for (name, version), digests in locked_digests((_FILES / "java.txt").read_text()).items():
        yield python_package(name, version, "", locked=digests)


if __name__ == "__main__":
    sys.stdout.buffer.write(environment_sbom(map(Path, sys.argv[1:])))
