"""Measure how plain the project's prose is: words of the former private dialect, and sentences without a verb.

Prose is what people read: pages of documentation without their code, docstrings, comments, and texts of errors, help
and logs. Run `python -m tests.language src/joins docs` to list every finding with its place.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# The dialect: words and turns of phrase that had a meaning of their own here. On the right: what to write instead.
DIALECT = {
    r"told|(?<!could not )tells?|telling|untold": "report, publish, say, contain, configure, log",
    r"mend(?:s|ed|ing)?": "repair",
    r"anew": "again, recreated",
    r"besides?": "while … runs, next to, compared with",
    r"(?<!-)behind(?! (?:a|the|our) (?:proxy|dashboard|page))": "after, later than, lags",
    r"(?<!rounded )away": "unavailable",
    r"whoever|whomever|whichever": "the reader, the process, any",
    r"nobody": "no process, no reader, no user",
    r"go(?:es|ing)? on|went on": "continues, resumes",
    r"for want of|want of": "lack of",
    r"of others": "external, of other systems",
    r"(?<!dead[ -])letters? (?:of|that|which|wait\w*|is|are)": "dead-letter record",
    r"stubs?": "tombstone",
    r"glimpses?|lulls?|tellers?|stewards?|tenures?|atlas(?:es)?|seams?|patience": "see docs/glossary.md",
    r"lanes?": "session handler, session channel",
    r"hops?": "lookup join",
    r"meanwhile": "in the meantime, during that time, or leave it out",
    r"as it is meant|is meant to": "should, is designed to",
    r"what is (?:not )?there": "what exists",
    r"of ours|of theirs": "Tailorbird's, external",
    r"lies? in|stands? (?:in|beside|behind)": "is in, represents",
    r"comes? (?:again|later)": "is sent again, follows",
}
WORD = re.compile(r"\b(?:" + "|".join(DIALECT) + r")\b", re.IGNORECASE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`|(?<=\])\([^)\s]*\)")  # code, and the targets of links
# Python's own tokenizer takes twenty times as long to find the comments.
STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}(?:[^\\]|\\.)*?\'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*''', re.DOTALL
)
FRAGMENT = re.compile(r"(?:Of|What|Whether|By|As|Who|Where|How|Whose|Which) ")


class Found(NamedTuple):
    """A finding: where it is, and its words."""

    place: str
    text: str


def prose_of(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a file that people read, each with its line."""
    source = path.read_text()
    if path.suffix == ".md":
        blanked = FENCE.sub(lambda found: "\n" * found[0].count("\n"), source)
        return [(number, CODE.sub("", line)) for number, line in enumerate(blanked.splitlines(), 1)]
    if path.suffix == ".java":
        comments = re.finditer(r"/\*.*?\*/|//[^\n]*", source, re.DOTALL)
        return [(source.count("\n", 0, found.start()) + 1, CODE.sub("", found[0])) for found in comments]
    return [*_strings(source), *_comments(source)]


def _strings(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, and strings of several words: texts of errors, of help and of logs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 2:
            yield node.lineno, CODE.sub("", node.value)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    line, at = 1, 0
    for found in STRING_OR_COMMENT.finditer(source):
        line, at = line + source.count("\n", at, found.start()), found.start()
        if found[0][0] == "#" and not found[0].startswith(("# type:", "# noqa", "# fmt:")):
            yield line, CODE.sub("", found[0])


def dialect_of(path: Path) -> tuple[int, list[Found]]:
    """Return the number of words of prose in a file, and the dialect words among them."""
    words, found = 0, []
    for line, text in prose_of(path):
        words += len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))
        for one in WORD.finditer(text):
            found.append(Found(f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, one.start())}", one[0]))
    return words, found


def fragments_of(path: Path) -> list[Found]:
    """Docstrings whose first line begins like a fragment ("Of…", "What…", "By…") instead of a sentence."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if FRAGMENT.match(text):
                line = getattr(node, "lineno", 1)
                found.append(Found(f"{path.relative_to(ROOT)}:{line}", text.splitlines()[0]))
    return found


def sentences_of(path: Path) -> list[str]:
    """The sentences of a Markdown page: no headings, tables or code; a link is its text."""
    text = FENCE.sub("", path.read_text())
    text = re.sub(r"^(?:    .*|\|.*|#.*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", CODE.sub("x", text))
    text = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "\n\n", text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text)
    return [one for paragraph in paragraphs for one in re.split(r"(?<=[.:;?!])\s+", paragraph.strip()) if one]


def files_of(folder: Path) -> list[Path]:
    """The files of a folder that hold prose, generated code and recorded data left out."""
    if folder.is_file():
        return [folder]
    kinds = {".py", ".md", ".java"}
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in kinds and "data" not in path.parts)
    # the word list itself names every word of the dialect
    return [path for path in paths if not path.stem.endswith("_pb2") and path.name not in ("language.py",)]


def main(names: list[str]) -> None:
    """Print every finding of the named files and folders, and their rates."""
    for name in names:
        total, words = 0, 0
        for path in files_of((ROOT / name).resolve()):
            count, found = dialect_of(path)
            fragments = fragments_of(path) if path.suffix == ".py" else []
            total, words = total + len(found), words + count
            for one in (*found, *fragments):
                print(f"{one.place}: {one.text}")
        print(f"{name}: {total} of {words} words, {1000 * total / max(words, 1):.1f} per 1,000")


if __name__ == "__main__":
    main(sys.argv[1:])
