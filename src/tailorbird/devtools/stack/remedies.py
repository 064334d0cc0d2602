"""Find the cause of a failed start in a server's log, and what to do about it."""

from __future__ import annotations

import re
from typing import Final

_KNOWN: Final[tuple[tuple[str, str], ...]] = (
    (
        r"No space left on device|Disk is full|errno: 28\b",
        "the disk is full: free some space, or move the data folder with TAILORBIRD_HOME",
    ),
    (
        r"Address already in use|BindException|Do you already have another mysqld server running on port",
        "its port is in use: stop the other program, or choose other ports with --port-offset 1000",
    ),
    (
        r"Cannot allocate memory|insufficient memory for the Java Runtime|OutOfMemoryError"
        r"|unable to create native thread",
        "the machine is out of memory: the whole stack needs 1.5 GiB",
    ),
    (r"loading shared libraries: (?P<what>[^:\s]+)", "install the package that has {what}"),
    (
        r"class LocalNode\.java|main class .*LocalNode\.java",
        "OpenSearch's launcher is compiled: install a JDK, e.g. openjdk-17-jdk-headless",
    ),
    (r"UnsupportedClassVersionError", "this Java is too old: set JAVA_HOME to a Java 17"),
    (
        r"ClassNotFoundException|NoClassDefFoundError",
        "jars are missing: remove the cache folder and run `tailorbird stack fetch`",
    ),
    (
        r"Permission denied|AccessDeniedException",
        "its files belong to another user: change their owner, or use another data folder with TAILORBIRD_HOME",
    ),
    (
        r"InconsistentClusterIdException|meta\.properties|Data Dictionary initialization failed"
        r"|Plugin initialization aborted|initialization of plugin 'InnoDB' failed",
        "its data folder is damaged: `tailorbird stack down --purge` removes all data of this stack",
    ),
)

_SEVERE: Final = re.compile(r"\b(ERROR|FATAL|Caused by|Exception in thread|\[ERROR\])\b|\[ERROR\]")


def remedy(log_tail: str, service: str) -> str:
    """Return what the user can do if a server did not start. `log_tail` is the end of its log."""
    for pattern, advice in _KNOWN:
        found = re.search(pattern, log_tail)
        if found:
            return advice.format(**found.groupdict())
    return f"the whole log: `tailorbird stack logs {service}`"


def tail(text: str, lines: int = 15) -> str:
    """Return the last lines of a text without Java's stack frames, which would hide the cause."""
    return "\n".join(_plain(text)[-lines:])


def reporting_lines(text: str, lines: int = 15) -> str:
    """Return the lines that show why a server failed: from its first severe line on, or else the last lines.

    A server that is half alive repeats its last error forever. The first error has the cause."""
    kept = _plain(text)
    first = next((number for number, line in enumerate(kept) if _SEVERE.search(line)), None)
    if first is None or first + lines >= len(kept):
        return "\n".join(kept[-lines:])
    return "\n".join([*kept[first : first + lines // 2], "…", *kept[-(lines - lines // 2) :]])


def _plain(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not re.match(r"\s+at |\s+\.\.\. \d+ more", line)]
