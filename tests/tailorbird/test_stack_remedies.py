"""From a server's log to the line that helps."""

from __future__ import annotations

import pytest

from tailorbird.devtools.stack.remedies import remedy, reporting_lines, tail

# As the servers printed them.
LOGS = {
    "java.io.IOException: No space left on device": "the disk is full",
    "[ERROR] [MY-012144] [InnoDB] posix_fallocate(): Failed to preallocate data, errno: 28 - No space": "disk is full",
    "java.net.BindException: Address already in use": "port is in use",
    "[ERROR] [MY-010259] Do you already have another mysqld server running on port: 3307 ?": "port is in use",
    "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed; error='Cannot allocate memory'": "out of memory",
    "mysqld: error while loading shared libraries: libx.so.1: cannot open": "install the package that has libx.so.1",
    "Error: Could not find or load main class kafka.Kafka\nCaused by: java.lang.ClassNotFoundException": "stack fetch",
    "java.lang.UnsupportedClassVersionError: kafka/Kafka has been compiled by a more recent version": "Java 17",
    "java.nio.file.AccessDeniedException: /data/kafka": "belong to another user",
    "[ERROR] [MY-010020] [Server] Data Dictionary initialization failed.": "down --purge",
}


@pytest.mark.parametrize(("log", "advice"), LOGS.items(), ids=list(LOGS.values()))
def test_a_known_failure_has_its_own_remedy(log: str, advice: str) -> None:
    """Users should not need to read a Java log to learn that the disk is full."""
    found = remedy(log, "kafka")
    assert advice in found
    assert "\n" not in found


def test_an_unknown_failure_leads_to_the_log() -> None:
    """An unknown cause is not guessed."""
    assert remedy("something odd", "solr") == "the whole log: `tailorbird stack logs solr`"


def test_stack_frames_do_not_push_the_reason_out() -> None:
    """A Java exception is two lines of reason and fifty of frames."""
    frames = "".join(f"\tat org.x.Y{number}.z(Y.java:1)\n" for number in range(50))
    log = f"INFO up\njava.lang.Oops: why\n{frames}\t... 12 more\nlast\n"
    assert tail(log, 3) == "INFO up\njava.lang.Oops: why\nlast"


def test_the_first_complaint_is_reported_although_others_follow() -> None:
    """A server that stays half alive repeats its last complaint; the first one holds the reason."""
    log = "\n".join(["INFO fine", "ERROR no such folder", *[f"ERROR shut down {number}" for number in range(500)]])
    reported = reporting_lines(log, 6).splitlines()
    assert reported[0] == "ERROR no such folder"
    assert reported[-1] == "ERROR shut down 499"
    assert len(reported) == 7


def test_without_a_complaint_the_end_is_reported() -> None:
    """A server that hangs says nothing: then the last thing it did is the clue."""
    assert reporting_lines("a\nb\nc\n", 2) == "b\nc"
    assert reporting_lines("", 2) == ""
