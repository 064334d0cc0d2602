"""The project's prose is plain: `tests.language` measures it, and these limits keep it so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.language import ROOT, dialect_of, files_of, fragments_of, sentences_of

MOST = 1.0  # words of the former dialect per 1,000 words
FEWEST_WORDS = 1000  # smaller folders are measured with the one that contains them
LONGEST_SENTENCE = 35
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md")])


def rates() -> dict[str, float]:
    """Dialect words per 1,000 words of every folder and of the pages in the root."""
    words, found = dict[Path, int](), dict[Path, int]()
    for top in ("docs", "src", "tests", "benchmarks"):
        for path in files_of(ROOT / top):
            count, dialect = dialect_of(path)
            for folder in path.relative_to(ROOT).parents[:-1]:
                words[folder] = words.get(folder, 0) + count
                found[folder] = found.get(folder, 0) + len(dialect)
    for path in ROOT.glob("*.md"):
        words[path.relative_to(ROOT)], dialect = dialect_of(path)
        found[path.relative_to(ROOT)] = len(dialect)
    return {str(folder): 1000 * found[folder] / count for folder, count in words.items() if count >= FEWEST_WORDS}


def test_no_folder_speaks_the_dialect() -> None:
    assert {folder: round(rate, 1) for folder, rate in rates().items() if rate > MOST} == {}


def test_docstrings_are_sentences() -> None:
    """Their first lines do not begin like a fragment: "Of …", "What …", "By …"."""
    found = [one for path in files_of(ROOT / "src") if path.suffix == ".py" for one in fragments_of(path)]
    assert [f"{place}: {text}" for place, text in found] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_sentences_are_short(page: Path) -> None:
    long = [one for one in sentences_of(page) if len(re.findall(r"[A-Za-z][\w'-]*", one)) > LONGEST_SENTENCE]
    assert long == []


def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.language.ROOT", tmp_path)
    file = tmp_path / "planted.py"
    file.write_text('"""Of a row: what it was told."""\n# mended behind it\nTEXT = "the letter of a row waits"\n')
    words, found = dialect_of(file)
    assert (words, [one.text for one in found]) == (16, ["told", "letter of", "mended", "behind"])
    assert [one.place for one in fragments_of(file)] == ["planted.py:1"]
    page = tmp_path / "page.md"
    page.write_text("# A title\n\nOne sentence. Another one, told here.\n")
    assert sentences_of(page) == ["One sentence.", "Another one, told here."]
