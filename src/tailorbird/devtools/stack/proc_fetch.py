"""Download jars into the cache: with Maven if it is installed, otherwise with Ivy, whose jars pyspark contains.

A finished bundle is moved to its place by a rename, so it is complete or absent. A killed download resumes, because
Maven and Ivy keep finished files in their own repositories. A lock lets a second caller wait for the first. The
child process holds the lock, too, so that a Maven whose parent was killed is also waited for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from cdc.model.artefacts import Bundle, bundle_folder
from cdc.model.errors import TailorbirdError
from tailorbird.devtools.stack.artefacts import (
    BUNDLES,
    IVY_PATTERN,
    MAVEN_GOAL,
    Jar,
    failure_of,
    ivy_module,
    parse_jars,
    reactor_pom,
    transferred_jar,
    wrong_jars,
)
from tailorbird.devtools.stack.proc_files import check_space, explained
from tailorbird.devtools.stack.proc_tools import find_java, find_tools, locked, unpack_mysql, unpack_postgres
from tailorbird.devtools.stack.progress import ProgressListener, StackProgress

_FILES = files("tailorbird.devtools.stack") / "files"


def fetch(
    cache: Path, environ: Mapping[str, str], progress: ProgressListener, bundles: Collection[Bundle] = BUNDLES
) -> None:
    """Download missing files to the cache: the bundles, and Java or libaio if the machine has none."""
    with explained(cache):
        check_space(cache, 700)
        java = find_java(cache, environ, progress)
        fetch_bundles(cache, java, progress, bundles)
        find_tools(cache, java, progress, with_mysql="mysql" in bundles)


def fetch_bundles(cache: Path, java: Path, progress: ProgressListener, bundles: Collection[Bundle] = BUNDLES) -> None:
    """Download the bundles that the cache lacks."""
    if all(bundle_folder(cache, bundle).is_dir() for bundle in bundles):
        return
    with locked(cache / "lock") as lock:
        missing = [bundle for bundle in bundles if not bundle_folder(cache, bundle).is_dir()]
        for stale in cache.glob("fetch-*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache))
        try:
            wanted = {bundle: parse_jars((_FILES / "jars" / f"{bundle}.txt").read_text()) for bundle in missing}
            _download(_Job(work=work, wanted=wanted, java=java, lock=lock, progress=progress))
            for bundle in missing:
                _install(work, bundle, cache, progress)
            shutil.rmtree(cache / "ivy", ignore_errors=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def spark_connector_jars(cache: Path) -> list[Path]:
    """Return the jars of Spark's Kafka connector, for `spark.jars`. Raises TailorbirdError if they are not
    downloaded."""
    folder = bundle_folder(cache, "spark")
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise TailorbirdError(f"Spark's Kafka connector is not in {folder}", "run `tailorbird stack fetch`")
    return jars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A download of bundles into `work/<bundle>/lib`. `lock` is the descriptor of the lock file, which the child
    inherits."""

    work: Path
    wanted: Mapping[Bundle, tuple[Jar, ...]]
    java: Path
    lock: int
    progress: ProgressListener


def _download(job: _Job) -> None:
    for bundle in job.wanted:
        (job.work / bundle).mkdir()
    # Ivy also helps if Maven is installed and does not work, e.g. with a read-only home or settings for another network
    attempts = [*([_by_maven] if shutil.which("mvn") else []), _by_ivy, _by_ivy]
    for number, attempt in enumerate(attempts, start=1):
        try:
            attempt(job)
            break
        except TailorbirdError as error:
            if number == len(attempts):
                raise
            job.progress(StackProgress(what="download", step="note", detail=f"{error.message}; retrying"))
    for bundle, jars in job.wanted.items():
        found = {path.name: _sha256(path) for path in (job.work / bundle / "lib").glob("*")}
        problems = wrong_jars(found, jars)
        if problems:
            raise TailorbirdError(
                f"{bundle}: {problems[0]}" + (f" and {len(problems) - 1} more" if len(problems) > 1 else ""),
                "a cache in between may hold a damaged copy: remove it there and run `tailorbird stack fetch` again",
            )


def _by_maven(job: _Job) -> None:
    for bundle in job.wanted:
        (job.work / bundle / "pom.xml").write_text((_FILES / "poms" / f"{bundle}.xml").read_text())
    pom = job.work / "pom.xml"
    pom.write_text(reactor_pom(list(job.wanted)))
    command = ["mvn", "-B", "-T", str(len(job.wanted)), "-f", str(pom), MAVEN_GOAL]
    _watch([*command, "-DoutputDirectory=${project.basedir}/lib"], job, job.wanted)


def _by_ivy(job: _Job) -> None:
    spec = find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise TailorbirdError("neither Maven nor pyspark is installed", "install one: `pip install pyspark==4.2.0`")
    settings = job.work / "ivysettings.xml"
    settings.write_text((_FILES / "ivy" / "ivysettings.xml").read_text())
    for bundle, wanted in job.wanted.items():
        module = job.work / bundle / "ivy.xml"
        module.write_text(ivy_module(bundle, wanted))
        command = [str(job.java), "-cp", str(jars[0]), "org.apache.ivy.Main", "-settings", str(settings)]
        command += ["-cache", str(job.work.parent / "ivy"), "-ivy", str(module)]
        command += ["-retrieve", f"{job.work / bundle}/lib/{IVY_PATTERN}"]
        _watch(command, job, {bundle: wanted})


def _watch(command: list[str], job: _Job, wanted: Mapping[Bundle, tuple[Jar, ...]]) -> None:
    """Run Maven or Ivy and report how many jars have arrived. A failure raises TailorbirdError with one line."""
    owner = {jar.file_name: bundle for bundle, jars in wanted.items() for jar in jars}
    arrived: dict[Bundle, set[str]] = {bundle: set() for bundle in wanted}

    def report(bundle: Bundle, done: int) -> None:
        total = len(wanted[bundle])
        job.progress(StackProgress(what=bundle, step="download", done=done, total=total))

    for bundle in wanted:
        report(bundle, 0)
    output = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(job.lock,),
        env={**os.environ, "JAVA_HOME": str(job.java.resolve().parent.parent)},
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            output.append(line)
            name = transferred_jar(line)
            if name in owner and name not in arrived[owner[name]]:
                arrived[owner[name]].add(name)
                report(owner[name], len(arrived[owner[name]]))
    if child.returncode:
        raise TailorbirdError(
            f"the download failed: {failure_of(output)}",
            "check the network and run `tailorbird stack fetch` again: it resumes",
        )
    for bundle in wanted:
        report(bundle, len(wanted[bundle]))


def _install(work: Path, bundle: Bundle, cache: Path, progress: ProgressListener) -> None:
    folder = work / bundle / "lib"
    unpack = {"mysql": unpack_mysql, "postgres": unpack_postgres}.get(bundle)
    if unpack is not None:
        progress(StackProgress(what=bundle, step="unpack"))
        folder = unpack(next(folder.glob("*.jar")), work / bundle / "server")
    folder.rename(bundle_folder(cache, bundle))


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
