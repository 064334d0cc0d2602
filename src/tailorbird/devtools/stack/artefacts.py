"""The downloads of the local stack as data: the exact jars of each bundle, and input files for Maven and Ivy.

Every jar is pinned by its coordinates and SHA-256 in `files/jars/<bundle>.txt`. So downloads are verified, and the
total for the progress is known. Maven and Ivy resolve version conflicts differently, but produce the same files
here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import quoteattr

from cdc.model.artefacts import VERSIONS, Bundle
from cdc.model.errors import UsageError

BUNDLES: Final[tuple[Bundle, ...]] = tuple(VERSIONS)

MAVEN_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# Maven prints it when a jar has arrived, Ivy when its download starts
_TRANSFERRED: Final = re.compile(r"(?:Downloaded from \S+: |^downloading )\S*?/?([^/\s]+\.jar)(?:\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """A published jar with its Maven coordinates and checksum."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Return the file name that Maven and Ivy give the jar."""
        return f"{self.artifact}-{self.version}{'-' + self.classifier if self.classifier else ''}.jar"


def parse_jars(text: str) -> tuple[Jar, ...]:
    """Parse a bundle's list: one line `sha256  group:artifact:version[:classifier]` per jar, as for `sha256sum`."""
    jars = []
    for line in text.splitlines():
        digest, _, coordinates = line.partition("  ")
        group, artifact, version, *classifier = coordinates.split(":")
        jars.append(
            Jar(
                group=group,
                artifact=artifact,
                version=version,
                classifier=classifier[0] if classifier else "",
                sha256=digest,
            )
        )
    return tuple(jars)


def bundle_name(text: str) -> Bundle:
    """Return the bundle that the user named. Raises UsageError, which lists the names, for an unknown one."""
    for bundle in BUNDLES:
        if bundle == text:
            return bundle
    raise UsageError(f"no bundle {text!r}", f"choose among {', '.join(BUNDLES)}")


def reactor_pom(bundles: Collection[Bundle]) -> str:
    """Return a parent POM, so that one Maven process resolves several bundles: 34 s instead of 60."""
    modules = "".join(f"    <module>{bundle}</module>\n" for bundle in bundles)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>tailorbird.stack</groupId>\n"
        "  <artifactId>all</artifactId>\n"
        "  <version>1</version>\n"
        "  <packaging>pom</packaging>\n"
        f"  <modules>\n{modules}  </modules>\n"
        "</project>\n"
    )


def ivy_module(bundle: Bundle, jars: Collection[Jar]) -> str:
    """Return an Ivy file that requests exactly these jars and none of their dependencies."""
    lines = []
    by_module: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        by_module.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    for (group, artifact, version), members in by_module.items():
        lines.append(
            f"    <dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
            ' transitive="false" conf="default->*">'
        )
        for jar in members:
            classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
            lines.append(f'      <artifact name={quoteattr(artifact)} type="jar" ext="jar"{classifier}/>')
        lines.append("    </dependency>")
    dependencies = "\n".join(lines)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        f'  <info organisation="tailorbird.stack" module="{bundle}"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


IVY_PATTERN: Final = "[artifact]-[revision](-[classifier]).[ext]"


def transferred_jar(line: str) -> str:
    """Return the name of the jar that a line of Maven's or Ivy's output reports, or an empty text."""
    found = _TRANSFERRED.search(line)
    return found.group(1) if found else ""


def failure_of(output: Collection[str]) -> str:
    """Return the line of Maven's or Ivy's output that has the error."""
    for line in output:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        if plain.startswith("[ERROR]") and len(plain) > len("[ERROR] "):
            return plain.removeprefix("[ERROR]").strip()
        if "UNRESOLVED DEPENDENCIES" in plain or plain.startswith(("Error:", "Exception in thread")):
            return plain.strip(": ")
    return "no reason given"


def wrong_jars(found: Mapping[str, str], jars: Collection[Jar]) -> list[str]:
    """Compare a folder (file name → SHA-256) with a bundle's list. Return the differences as text."""
    problems = [f"{jar.file_name} is missing" for jar in jars if jar.file_name not in found]
    problems += [
        f"{jar.file_name} is not the file that was published"
        for jar in jars
        if jar.file_name in found and found[jar.file_name] != jar.sha256
    ]
    known = {jar.file_name for jar in jars}
    return problems + [f"{name} is not on the list" for name in sorted(found) if name not in known]
