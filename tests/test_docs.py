"""What the documentation tells people to type is something that they can type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cdc.topology.reader import read_topology
from tailorbird.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "topologies" / "README.md", *(ROOT / "docs").glob("*.md")])
# a line of code, or words between back ticks
TYPED = re.compile(r"^(?:    |       )(tailorbird .+)$|`(tailorbird [^`]+)`", re.MULTILINE)


def typed(page: Path) -> list[str]:
    """The commands of a page, as they are typed; `…` stands for words left out, which nobody types."""
    found = ["".join(groups) for groups in TYPED.findall(page.read_text())]
    return [" ".join(line.split("  #")[0].split()) for line in found if "…" not in line]


COMMANDS = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in typed(page)]


def parse(line: str) -> None:
    """Read the words as the command line does, without doing what they say; ValueError where it would refuse them.

    Words in capitals stand for others; a command without any is named, not typed.
    """
    name, *words = shlex.split(line)
    command: Any = typer.main.get_command(app)
    context = None
    try:
        while True:
            context = command.make_context(name, words, parent=context)
            if not hasattr(command, "resolve_command"):
                return
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            if not words:
                return
    except Exception as error:  # click's own errors, of which typer has a copy
        raise ValueError(f"{line}: {getattr(error, 'message', error)!s}") from error


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_what_is_reported_can_be_typed(page: str, line: str) -> None:
    """Every command of README and docs has the sub-command, the options and the arguments that it shows."""
    parse(line)


def leaves(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, by its words."""
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from leaves(inner, (*name, word))
    else:
        yield name


@pytest.mark.parametrize("name", list(leaves(typer.main.get_command(app))), ids=" ".join)
def test_each_command_has_a_page(name: tuple[str, ...]) -> None:
    """Not README alone: a page of docs shows it as it is typed."""
    shown = [page for page, line in COMMANDS if tuple(shlex.split(line)[1 : 1 + len(name)]) == name]
    assert [page for page in shown if page.startswith("docs/")], f"no page of docs shows `tailorbird {' '.join(name)}`"


BLOCKS = [
    (f"{page.relative_to(ROOT)}: {place}", text)
    for page in PAGES
    for place, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("text", [text for _, text in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_yaml_that_is_reported_is_read(text: str) -> None:
    """A whole topology as it is; a part of one as a part of the shop's."""
    said = yaml.safe_load(text)
    shop = yaml.safe_load((ROOT / "topologies" / "shop.yml").read_text())
    read_topology(yaml.safe_dump(said if "name" in said else {**shop, **said}), file="docs.yml", environ={})


def test_the_pages_report_commands() -> None:
    """Else the test above says nothing; and what is no command is refused."""
    assert len(COMMANDS) > 40
    for wrong in (
        "tailorbird fly",
        "tailorbird submit topologies/shop.yml --mster x",
        "tailorbird state inspect topologies/shop.yml",
    ):
        with pytest.raises(ValueError, match=wrong):
            parse(wrong)
