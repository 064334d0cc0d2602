"""Downloads are pinned, checked, and the same with Maven and Ivy."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from cdc.model.artefacts import VERSIONS, Bundle
from cdc.model.errors import UsageError
from tailorbird.devtools.stack.artefacts import (
    BUNDLES,
    Jar,
    bundle_name,
    failure_of,
    ivy_module,
    parse_jars,
    reactor_pom,
    transferred_jar,
    wrong_jars,
)

FILES = Path(__file__).parents[2] / "src" / "tailorbird" / "devtools" / "stack" / "files"
MAVEN = {"m": "http://maven.apache.org/POM/4.0.0"}


def jars(bundle: Bundle) -> tuple[Jar, ...]:
    return parse_jars((FILES / "jars" / f"{bundle}.txt").read_text())


@pytest.mark.parametrize("bundle", BUNDLES)
def test_the_list_of_jars_is_the_pom_resolved(bundle: Bundle) -> None:
    """A version that is raised in a POM and not in the list would be refused as damaged on every machine."""
    pom = ElementTree.parse(FILES / "poms" / f"{bundle}.xml")
    wanted = {
        tuple(dependency.findtext(f"m:{part}", namespaces=MAVEN) for part in ("groupId", "artifactId", "version"))
        for dependency in pom.iterfind("m:dependencies/m:dependency", MAVEN)
    }
    assert wanted
    assert wanted <= {(jar.group, jar.artifact, jar.version) for jar in jars(bundle)}


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_jar_is_pinned_once(bundle: Bundle) -> None:
    """The folder's names and sums are known before the first byte arrives."""
    listed = jars(bundle)
    assert len({jar.file_name for jar in listed}) == len(listed)
    assert all(len(jar.sha256) == 64 for jar in listed)
    # Ivy keeps one revision of a module: two on one list would lose one
    revisions = {(jar.group, jar.artifact): jar.version for jar in listed}
    assert all(revisions[jar.group, jar.artifact] == jar.version for jar in listed)


def test_versions_of_the_bundles_are_those_of_their_main_jar() -> None:
    """The folder of a bundle is named after what is in it."""
    main = {"kafka": "kafka_2.13", "solr": "solr-core", "spark": "spark-sql-kafka-0-10_2.13", "hbase": "hbase-thrift"}
    for bundle in BUNDLES:
        if bundle in main:
            assert [jar.version for jar in jars(bundle) if jar.artifact == main[bundle]] == [VERSIONS[bundle]]


def test_the_connector_of_spark_comes_without_what_pyspark_has() -> None:
    """A second Scala or Hadoop on the class path would break Spark; the four jars are those that it lacks."""
    assert {jar.artifact for jar in jars("spark")} == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }


@pytest.mark.parametrize("bundle", BUNDLES)
def test_ivy_is_asked_for_exactly_the_list(bundle: Bundle) -> None:
    """Ivy settles conflicts of versions otherwise than Maven: it gets no chance to."""
    module = ElementTree.fromstring(ivy_module(bundle, jars(bundle)))
    asked = set()
    for dependency in module.iter("dependency"):
        assert dependency.get("transitive") == "false"
        for artifact in dependency.iter("artifact"):
            classifier = artifact.get("{http://ant.apache.org/ivy/maven}classifier", "")
            asked.add((dependency.get("org"), artifact.get("name"), dependency.get("rev"), classifier))
    assert asked == {(jar.group, jar.artifact, jar.version, jar.classifier) for jar in jars(bundle)}


def test_one_maven_fetches_all_bundles() -> None:
    """The parent names each folder as a module."""
    parent = ElementTree.fromstring(reactor_pom(["kafka", "solr"]))
    assert [module.text for module in parent.iterfind("m:modules/m:module", MAVEN)] == ["kafka", "solr"]


def test_no_file_names_a_repository() -> None:
    """The machine's settings, not the project, select the repository."""
    for path in FILES.rglob("*"):
        if path.is_file() and path.suffix in {".xml", ".txt"} and path.parent.name in {"poms", "jars", "ivy"}:
            text = path.read_text().replace("http://maven.apache.org/POM/4.0.0", "")
            assert "://" not in text, path


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[INFO] Downloaded from central: scheme://host/a/b/1/b-1.jar (12 kB at 3 kB/s)\n", "b-1.jar"),
        ("[INFO] Downloading from central: scheme://host/a/b/1/b-1.jar\n", ""),
        ("[INFO] Downloaded from central: scheme://host/a/b/1/b-1.pom (12 kB at 3 kB/s)\n", ""),
        ("downloading scheme://host/a/b/1/b-1-linux.jar ...\n", "b-1-linux.jar"),
        ("\t[SUCCESSFUL ] a#b;1!b.jar (56ms)\n", ""),
    ],
)
def test_progress_is_read_from_the_output(line: str, name: str) -> None:
    """The bar moves with every jar and with nothing else."""
    assert transferred_jar(line) == name


def test_a_folder_is_compared_with_its_list() -> None:
    """A missing, damaged or foreign jar is named."""
    listed = (
        Jar(group="g", artifact="a", version="1", classifier="", sha256="s1"),
        Jar(group="g", artifact="b", version="2", classifier="x", sha256="s2"),
    )
    assert wrong_jars({"a-1.jar": "s1", "b-2-x.jar": "s2"}, listed) == []
    assert wrong_jars({"a-1.jar": "other", "c-3.jar": "s"}, listed) == [
        "b-2-x.jar is missing",
        "a-1.jar is not the file that was published",
        "c-3.jar is not on the list",
    ]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (["[INFO] x\n", "[\x1b[1;31mERROR\x1b[m] Unknown host\n", "[ERROR] Re-run\n"], "Unknown host"),
        (["a\n", "\t\t::          UNRESOLVED DEPENDENCIES         ::\n"], "UNRESOLVED DEPENDENCIES"),
        (["Error: JAVA_HOME is not defined correctly.\n"], "Error: JAVA_HOME is not defined correctly."),
        ([], "no reason given"),
    ],
)
def test_the_reason_of_a_failed_download_is_one_line(output: list[str], reason: str) -> None:
    """Maven prints forty lines around it."""
    assert failure_of(output) == reason


def test_an_unknown_bundle_is_refused_with_the_list() -> None:
    """`tailorbird stack fetch hbse` lists the bundles."""
    with pytest.raises(UsageError, match="no bundle 'hbse'; choose among kafka, hbase"):
        bundle_name("hbse")
