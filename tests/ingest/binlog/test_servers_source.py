"""Where the test servers that Debian packs come from."""

from __future__ import annotations

import pytest

from tests.ingest.binlog.binlog_servers import debian_mirror


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("", "http://deb.debian.org/debian"),
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [arch=amd64] https://m.example:8081/debian/ sid main", "https://m.example:8081/debian"),
        (
            "Types: deb\n# http://old.example/debian\nURIs: http://new.example/debian\nSuites: a\n",
            "http://new.example/debian",
        ),
        ("URIs: http://m.example/debian-security\n", "http://deb.debian.org/debian"),
    ],
)
def test_the_machines_own_mirror_is_asked(sources: str, mirror: str) -> None:
    """A machine behind a mirror reaches nothing else, and no address of a mirror stands in the project."""
    assert debian_mirror(sources) == mirror
