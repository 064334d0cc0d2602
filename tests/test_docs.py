"""Every command in the documentation is one that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.topology.reader import read_topology
from tests.support.parsed_command import COMMAND, parse

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "topologies" / "README.md", *(ROOT / "docs").glob("*.md")])
# a line of code, or text between back ticks
TYPED = re.compile(r"^(?:    |       )(tailorbird .+)$|`(tailorbird [^`]+)`", re.MULTILINE)


def typed(page: Path) -> list[str]:
    """Return the commands of a page; those with `…` are abbreviated and left out."""
    found = ["".join(groups) for groups in TYPED.findall(page.read_text())]
    return [" ".join(line.split("  #")[0].split()) for line in found if "…" not in line]


COMMANDS = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in typed(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_every_documented_command_can_be_typed(page: str, line: str) -> None:
    """Every command of README and docs has the sub-command, the options and the arguments that it shows."""
    parse(line)


def leaves(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return every command, as its words."""
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from leaves(inner, (*name, word))
    else:
        yield name


@pytest.mark.parametrize("name", list(leaves(COMMAND)), ids=" ".join)
def test_each_command_has_a_page(name: tuple[str, ...]) -> None:
    """A page of docs, not only README, shows it with its arguments."""
    shown = [page for page, line in COMMANDS if tuple(shlex.split(line)[1 : 1 + len(name)]) == name]
    assert [page for page in shown if page.startswith("docs/")], f"no page of docs shows `tailorbird {' '.join(name)}`"


BLOCKS = [
    (f"{page.relative_to(ROOT)}: {place}", text)
    for page in PAGES
    for place, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("text", [text for _, text in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_documented_yaml_can_be_loaded(text: str) -> None:
    """A whole topology is read alone; a part of one is read within the shop's."""
    said = yaml.safe_load(text)
    shop = yaml.safe_load((ROOT / "topologies" / "shop.yml").read_text())
    read_topology(yaml.safe_dump(said if "name" in said else {**shop, **said}), file="docs.yml", environ={})


def test_the_pages_contain_commands() -> None:
    """Otherwise the test above would check nothing; an invalid command is refused."""
    assert len(COMMANDS) > 40
    for wrong in (
        "tailorbird fly",
        "tailorbird submit topologies/shop.yml --mster x",
        "tailorbird state inspect topologies/shop.yml",
    ):
        with pytest.raises(ValueError, match=wrong):
            parse(wrong)


LINKED = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Every relative link names an existing file, and every anchor a heading of it."""
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to #{anchor}, which {target.name} lacks"


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page of docs."""
    listed = {path for path, _ in LINK.findall((ROOT / "docs" / "README.md").read_text())}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed
