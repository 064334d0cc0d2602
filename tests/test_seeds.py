"""docs/seeds.md: every point of the source documents has a place, and every named test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?!point|document|---)(.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")


def test_every_point_names_a_test_a_command_or_that_it_is_missing() -> None:
    """A row without evidence, and a test that was renamed or removed, are errors."""
    points = ROW.findall((ROOT / "docs" / "seeds.md").read_text())
    assert len(points) > 70
    for point, where in points[5:]:  # after the documents themselves
        found = TEST.findall(where)
        assert found or "**missing**" in where or re.search(r"`(make|tailorbird) ", where) or "](" in where, point
        for file, name in found:
            assert (ROOT / file).is_file(), (point, file)
            assert not name or f"def {name}(" in (ROOT / file).read_text(), (point, name)
