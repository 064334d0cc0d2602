"""Output for 20,000 tables: short, with the worst first and the others counted; a search finds each entry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailorbird.cli.app import app
from tailorbird.cli.cli_doctor import _print
from tailorbird.deploy.plan.change import Change
from tailorbird.deploy.plan.plan_text import lines_of
from tailorbird.operate.doctor.doctor import Checkup
from tailorbird.operate.status.selection import ListChoice, cut
from tailorbird.verify.findings import Verdict
from tailorbird.verify.verdict_text import VerdictLines

MANY = 20_000
ENTRIES = [f"t{n:05} {'down' if n % 5000 == 4999 else 'moving'}" for n in range(MANY)]


def lines(selection: ListChoice, entries: list[str]) -> list[str]:
    shown = selection.matching(entries, str)
    return list(selection.lines(shown, lambda one: [one], lambda one: one.split()[1], lambda one: "moving" in one))


def test_the_worst_entries_are_first_and_the_others_are_counted() -> None:
    """A list that fits keeps its order; of a longer one, nothing is left out that the last line does not count."""
    found = lines(ListChoice(limit=6), ENTRIES)
    assert found[:4] == ["t04999 down", "t09999 down", "t14999 down", "t19999 down"]
    assert found[4:] == [
        "t00000 moving", "t00001 moving", "… and 19,994 more: 19,994 moving. See --limit, --search and --json",
    ]  # fmt: skip
    assert lines(ListChoice(limit=2), ENTRIES)[-1].startswith("… and 19,998 more: 19,996 moving, 2 down.")
    assert lines(ListChoice(), ENTRIES[4990:5000]) == ENTRIES[4990:5000]
    assert lines(ListChoice(search="T1 4999 down"), ENTRIES) == ["t14999 down"]
    assert (cut("x" * 2000), cut("x" * 2010)) == ("x" * 2000, "x" * 2000 + "… (10 more characters)")


def test_verify_prints_differences_and_totals_instead_of_a_line_per_equal_table() -> None:
    """The totals name the tables that differ or were not compared, also if their lines were printed long before."""
    text = VerdictLines(3)
    equal = Verdict(stage="log", table="", cut="0:1")
    printed = list[str]()
    for n in range(MANY):
        differing, unknown = int(n in (700, 15_000)), ("no server",) if n == 9 else ()
        printed += text.add(replace(equal, table=f"s.d.t{n:05}", differing=differing, unknown=unknown))
    assert [one.split(":")[0].split()[1] for one in printed if one.startswith("log")] == [
        "s.d.t00000", "s.d.t00001", "s.d.t00002", "s.d.t00009", "s.d.t00700", "s.d.t15000",
    ]  # fmt: skip
    assert printed.count("500 comparisons: 1 could not tell, 499 equal") == 1
    assert list(text.totals()) == [
        "20,000 comparisons: 2 different, 1 could not tell, 19,997 equal",
        "different: log s.d.t00700, log s.d.t15000",
        "could not tell: log s.d.t00009",
    ]
    few = VerdictLines(3)
    assert len(list(few.add(equal))) == 1
    assert list(few.totals()) == [], "everything was printed"


def test_a_plan_with_many_steps_begins_with_those_that_do_something() -> None:
    """The totals count all steps, as without a limit."""
    kept = Change(action="keep", kind="table", name="", why="as in the file", by="")
    steps = [replace(kept, name=f"t{n:05}") for n in range(MANY)]
    steps[19_000] = replace(kept, action="make", name="new", by="apply")
    found = list(lines_of(steps, ListChoice(limit=2)))
    assert found[0].startswith("make")
    assert found[-2].startswith("… and 19,998 more: 19,998 keep")
    assert found[-1].startswith("20,000 steps: 1 by `apply` and `run`")
    assert len(list(lines_of(steps, ListChoice(search="t19999")))) == 2


def test_doctor_prints_the_faults_of_a_source_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Each source has its own limit; JSON has every finding."""
    ok = Checkup(subject="source shop", check="", status="ok", found="readable, with a key")
    found = [replace(ok, check=f"d.t{n:05}") for n in range(MANY)]
    found[9_000] = replace(found[9_000], status="warning", found="no key")
    found[19_000] = replace(found[19_000], status="fault", found="no key", remedy="GRANT " * 1000)
    found.append(Checkup(subject="source crm", check="reachable", status="ok", found="127.0.0.1:3308"))
    _print(found, ListChoice(limit=3), as_json=False)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "FAULT   source shop: d.t19000: no key"
    assert len(printed[1]) < 2100
    assert printed[2] == "WARNING source shop: d.t09000: no key"
    assert printed[-2:] == [
        "… and 19,997 more: 19,997 ok. See --limit, --search and --json",
        "ok      source crm: reachable: 127.0.0.1:3308",
    ]
    _print(found, ListChoice(limit=3, search="d.t19"), as_json=True)
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 1000


def test_validate_prints_some_of_many_tables(tmp_path: Path) -> None:
    """JSON has all tables; a search prints one of those that the text leaves out."""
    tables = "".join(f"  w{n:03}:\n    query: SELECT o.id, o.a FROM s.t o\n    row_key: [id]\n" for n in range(4))
    file = tmp_path / "many.yml"
    shop = (Path(__file__).parents[2] / "topologies" / "shop.yml").read_text()
    source = shop[shop.index("sources:") : shop.index("\n  crm:")].replace("shop:", "s:").replace("orders", "t")
    servers = shop[shop.index("\nlog:") : shop.index("\ntables:")]
    file.write_text(f"name: many\n{source}\n{servers}\ntables:\n{tables}")

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["validate", "--offline", str(file), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert "… and 2 more: 2 valid." in printed("--limit", "2")
    assert "w003" not in printed("--limit", "2")
    assert printed("--search", "w003").startswith("w003: id, a\n")
    assert len(json.loads(printed("--json"))["tables"]) == 4
