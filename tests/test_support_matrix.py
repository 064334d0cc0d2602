"""The support matrix counts each test for the server that it ran on."""

from __future__ import annotations

import pytest

from tests.support_matrix import results, server_of, table

XML = """<testsuites><testsuite>
<testcase classname="tests.test_support_matrix" name="test_a[mysql57-x]"/>
<testcase classname="tests.test_support_matrix" name="test_a[mysql80-x]"/>
<testcase classname="tests.test_support_matrix" name="test_a[postgresql-18]"><failure/></testcase>
<testcase classname="tests.test_support_matrix" name="test_a[maria11]"><skipped/></testcase>
<testcase classname="tests.test_release" name="test_b[mysql80]"/>
<testcase classname="tests.test_release" name="test_c"/>
</testsuite></testsuites>"""


def test_a_row_is_a_file_that_ran_on_several_servers() -> None:
    """Skipped tests count nowhere; a failure is shown."""
    assert table(results(XML)) == [
        "| | MySQL 5.7 | MySQL 8.0 | PostgreSQL 18 |",
        "|---|--:|--:|--:|",
        "| The support matrix counts each test for the server that it ran on (`tests/test_support_matrix.py`) "
        "| 1 | 1 | 0, 1 failed |",
    ]


@pytest.mark.parametrize(
    ("path", "test", "server"),
    [
        ("tests/a.py", "test[mysql9-per_source]", "MySQL 9"),
        ("tests/a.py", "test[sakila@m97]", "MySQL 9"),
        ("tests/a.py", "test[mariadb-10.11-x]", "MariaDB 10.11"),
        ("tests/a.py", "test[15]", None),
        ("tests/ingest/postgres/a.py", "test[15]", "PostgreSQL 15"),
        ("tests/a.py", "test", None),
        ("tests/a.py", "test[mysql]", None),
    ],
)
def test_a_server_is_found_by_its_name_in_tests(path: str, test: str, server: str | None) -> None:
    """Each suite has its own names for the same servers."""
    assert server_of(path, test) == server
