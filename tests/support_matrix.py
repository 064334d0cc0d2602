"""Print which tests passed on which database server: `python -m tests.support_matrix RESULTS.xml …`.

Reads the results of pytest (`--junitxml`). A row is a file of tests that ran on at least two servers, named by its
docstring; a number is the count of tests that passed."""

from __future__ import annotations

import ast
import re
import sys
import xml.etree.ElementTree as ET  # pytest's own files
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.decode.proc_peers import machine
from benchmarks.page import bullets, page

ROOT = Path(__file__).parents[1]
# heading → the names of that server in tests
SERVERS = {
    "MySQL 5.7": ("mysql57", "mysql-5.7", "m57"),
    "MySQL 8.0": ("mysql80", "mysql-8.0", "mysql8", "m80"),
    "MySQL 9": ("mysql9", "mysql97", "mysql-9", "m97"),
    "MariaDB 10.11": ("maria10", "mariadb10", "mariadb-10.11", "m10"),
    "MariaDB 11.4": ("maria11", "mariadb11", "mariadb-11.4", "m11"),
    "PostgreSQL 15": ("postgresql-15", "pg15"),
    "PostgreSQL 18": ("postgresql-18", "pg18"),
}
_NAMES = {name: heading for heading, names in SERVERS.items() for name in names}
_NAME = re.compile(rf"(?<![\w.])({'|'.join(sorted(map(re.escape, _NAMES), key=len, reverse=True))})(?![\w.])")


def server_of(path: str, test: str) -> str | None:
    """Return the heading of the server that a test ran on; None if its id names none."""
    parameters = test.partition("[")[2].removesuffix("]")
    found = _NAME.search(parameters)
    if found is not None:
        return _NAMES[found[1]]
    version = re.search(r"(?<!\w)(15|18)(?!\w)", parameters)
    return f"PostgreSQL {version[1]}" if version is not None and "/postgres/" in path else None


def results(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each test that ran: the path of its file, its name with parameters, and whether it passed."""
    for case in ET.fromstring(text).iter("testcase"):
        if case.find("skipped") is None:
            path = f"{case.attrib['classname'].replace('.', '/')}.py"
            yield path, case.attrib["name"], case.find("failure") is None and case.find("error") is None


def table(ran: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Return the lines of the table."""
    passed, failed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for path, test, good in ran:
        server = server_of(path, test)
        if server is not None:
            (passed if good else failed)[path, server] += 1
    paths = sorted({path for path, _ in passed | failed})
    columns = [one for one in SERVERS if any((path, one) in passed | failed for path in paths)]
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for path in paths:
        cells = [_cell(passed[path, one], failed[path, one]) for one in columns]
        if sum(cell != "" for cell in cells) > 1:
            lines.append(f"| {promise(ROOT / path)} (`{path}`) | {' | '.join(cells)} |")
    return lines


def promise(file: Path) -> str:
    """Return the first sentence of a test file's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text())) or file.name
    first = re.split(r"(?<=[.:])\s", text.replace("Law: ", "").replace("\n", " ").strip())[0]
    return first.rstrip(".:").replace("|", "\\|")


def _cell(passed: int, failed: int) -> str:
    if failed:
        return f"{passed}, {failed} failed"
    return str(passed) if passed else ""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    ran = [one for name in arguments for one in results(Path(name).read_text())]
    made = "Made by `make support-matrix` from the tests that ran. A number is the count of tests that passed."
    counts = f"{sum(good for _, _, good in ran):,} tests passed, {sum(not good for _, _, good in ran):,} failed"
    print(page("# Support matrix", made, bullets([machine(), counts]), "\n".join(table(ran))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
