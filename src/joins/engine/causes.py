"""Extract the cause of a failed query from Spark's error text, and find the remedy.

Spark wraps a failure in up to five others: the query's, the job's, the task's with its Java stack, the Python
worker's traceback. The first line says least. The cause is the last line that names an exception: Java lists causes
from the outermost to the innermost, and Python ends a traceback with the exception that was raised."""

from __future__ import annotations

import re

_LONGEST = 500
# `Caused by: java.io.IOException: …`, `thriftpy2.transport.TTransportException: …`, `ValueError: …`
_HEADING = re.compile(
    r"^(?:Caused by: )?(?:[a-z_][\w$]*\.)*"
    r"(?P<name>[A-Z]\w*(?:Error|Exception|Failure|Throwable)|Fatal|Retriable)"
    r"(?::\s*(?P<said>.*))?$"
)
# Spark's wrapper around a query's failure, with an id that changes at every start
_WRAPPED = re.compile(r"\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: | SQLSTATE: \w{5}")
_SNAPSHOT = "first `tailorbird snapshot TOPOLOGY source.table` of the topic's table, then `tailorbird join … --rebuild`"
_NO_SPACE = "No space left on device"
_REMEDIES = (
    ("Some data may have been lost", _SNAPSHOT),
    ("UnknownTopicOrPartition", f"its topic is gone; {_SNAPSHOT}"),
    ("OutOfMemoryError", "a lower max_changes_per_batch needs less memory"),
    ("ModuleNotFoundError", "install this package in the executors' Python: docs/cluster.md"),
    ("PYTHON_VERSION_MISMATCH", "executors need the driver's version of Python: docs/cluster.md"),
    ("Permission denied", "let this user write to TAILORBIRD_HOME"),
    ("ConcurrentModificationException", "another process runs this join; stop one of them"),
    ("Multiple streaming queries are concurrently using", "another process runs this join; stop one of them"),
)


def cause_of(error: BaseException) -> str:
    """Return the innermost cause as one line: the name of the exception and its message."""
    return _cause(_WRAPPED.sub("", str(error))) or type(error).__name__


def is_full_disk(error: BaseException) -> bool:
    """Return whether a query failed because a disk of this machine is full."""
    return _NO_SPACE in str(error)


def remedy_for(error: BaseException) -> str:
    """Return what the user can do about a known failure, or an empty text."""
    text = str(error)
    return next((remedy for sign, remedy in _REMEDIES if sign in text), "")


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    headings = [(place, found) for place, line in enumerate(lines) if (found := _HEADING.match(line))]
    for place, heading in reversed(headings):
        said = (heading["said"] or "").strip()
        if said.startswith("Traceback"):  # the real message is at the trace's end
            continue
        if not said and place + 1 < len(lines) and not lines[place + 1].startswith(("at ", "...", "Caused by")):
            said = lines[place + 1]
        return f"{heading['name']}: {said}"[:_LONGEST] if said else heading["name"]
    return lines[0][:_LONGEST] if lines else ""
