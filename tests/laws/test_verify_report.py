"""Arguments, output and exit codes of `tailorbird verify`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import Retriable, UsageError
from cdc.topology.reader import read_topology
from tailorbird.cli.app import app
from tailorbird.verify import run_stages
from tailorbird.verify.findings import Finding, Verdict, exit_code
from tailorbird.verify.request import StageResult, parse_request
from tailorbird.verify.verdict_text import lines_of

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"
DIFFERENT = Finding(
    stage="index",
    table="wide",
    key={"id": 7},
    kind="different",
    columns={"amount": ("1.00", "2.00"), "note": (None, "x" * 100)},
    position="row 0001, HBase's version 8",
)
EQUAL = Verdict(
    stage="index",
    table="wide",
    rows=1_234,
    leaves=0,
    cut="stamp 5 = 1970-01-01 00:00:00.005 UTC, index wide",
    columns=("id", "amount", "note"),
    findings=(),
    differing=0,
    moving=0,
    unknown=(),
    seconds=1.25,
)
WRONG = replace(EQUAL, findings=(DIFFERENT,), differing=1)
LAG = "3 rows: index wide shows batch timestamp 4, the table is written up to batch timestamp 5"
LATE = replace(EQUAL, unknown=(LAG,), moving=2)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([EQUAL], 0),
        ([EQUAL, WRONG], 1),
        ([LATE, WRONG], 1),
        ([EQUAL, LATE], 3),
        ([], 3),
        ([replace(EQUAL, moving=1)], 0),
    ],
)
def test_exit_codes(verdicts: list[Verdict], code: int) -> None:
    """A proved difference outweighs everything; an incomplete comparison is never equal; a moving row is no fault."""
    assert exit_code(verdicts) == code


def test_what_is_printed() -> None:
    """The output has the row, each column and both values. NULL is not quoted; long values are cut."""
    assert list(lines_of(WRONG)) == [
        "index  wide: different  (1,234 rows, stamp 5 = 1970-01-01 00:00:00.005 UTC, index wide, 1.2 s)",
        "       1 row differs between HBase and the index:",
        "         different: id=7  (row 0001, HBase's version 8)",
        '           amount: "1.00" in HBase, "2.00" in the index',
        f'           note: NULL in HBase, "{"x" * 79}… (102 characters) in the index',
    ]
    assert list(lines_of(LATE))[1:] == [
        "       not compared: 2 rows changed in every round",
        "       not compared: 3 rows: index wide shows batch timestamp 4, the table is written up to batch timestamp 5",
    ]
    many = replace(WRONG, findings=(DIFFERENT,) * 30, differing=30)
    assert list(lines_of(many))[-1] == "         … and 10 more: --json shows all of them with their values"
    more = replace(WRONG, findings=(DIFFERENT,) * 1000, differing=2000)
    assert list(lines_of(more))[-1] == "         … and 1,980 more: --json shows the first 1,000 with their values"


def test_json_has_all_of_it() -> None:
    """There is a line for each difference and one for the verdict."""
    reported = DIFFERENT.to_json()
    assert (reported["kind"], reported["difference"], reported["key"]) == ("difference", "different", {"id": 7})
    assert reported["columns"]["amount"] == {"near": "1.00", "far": "2.00"}
    assert (WRONG.to_json()["outcome"], WRONG.to_json()["differing"]) == ("different", 1)


def test_tables_and_stages_are_chosen() -> None:
    """Without names, all tables in HBase are compared. Stages run in the order of the data flow."""
    topology = read_topology(SHOP.read_text(), file="shop.yml", environ={})
    assert (parse_request(topology, None, None).tables, parse_request(topology, None, None).stages) == (
        ("orders_wide",), ("log", "table", "index"),
    )  # fmt: skip
    assert parse_request(topology, ["index"], ["orders_wide"]).stages == ("index",)
    assert [str(one) for one in parse_request(topology, None, ["shop.orders"]).captured] == ["shop.shop.orders"]
    with pytest.raises(UsageError, match="no table orders to compare"):
        parse_request(topology, ["index"], ["orders"])
    for stages, tables, words in (
        (["fish"], None, "no stage fish; choose one of log, table, index"),
        (None, ["fish"], "shop.yml: no table fish to compare; it has orders_wide"),
    ):
        with pytest.raises(UsageError, match=words):
            parse_request(topology, stages, tables)
    with pytest.raises(UsageError, match="add --repair"):
        parse_request(topology, None, None, dry_run=True)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--table", "fish"], "no table fish to compare; it has orders_wide"),
        (["--stage", "fish"], "no stage fish; choose one of log, table, index"),
        (["--sample", "64"], "--sample 64: not a fraction 1/N; write e.g. --sample 1/64"),
        (["--sample", "1/64", "--all"], "--sample and --all exclude one another"),
        (["--changed-since", "last", "--all"], "--changed-since and --all exclude one another"),
        (["--changed-since", "last"], "--changed-since does not apply to the table stage; add --stage log or"),
        (["--stage", "index", "--changed-since", "1-2"], "the index stage compares only changes since its last"),
        (
            ["--stage", "index", "--changed-since", "last", "--sample", "1/2"],
            "--changed-since and --sample exclude one another; choose one",
        ),
        (["--dry-run"], "--dry-run shows what --repair would do; add --repair"),
        (["--repair"], "--repair writes, and there is no terminal to ask for confirmation; add --yes or --dry-run"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], reported: str) -> None:
    """Invalid arguments are rejected before any server is queried."""
    result = CliRunner().invoke(app, ["verify", str(SHOP), *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert reported in result.stderr


@pytest.mark.parametrize("stage", ["table", "index"])
@pytest.mark.parametrize("repair", [[], ["--repair", "--yes"]])
def test_servers_that_are_away_are_one_line_and_exit_3(stage: str, repair: list[str], tmp_path: Path) -> None:
    """HBase is queried first, so nothing was written."""
    unavailable = re.sub(r"(thrift: |brokers: |http://)\S+:\S+?(?=/|\n)", r"\g<1>127.0.0.1:1", SHOP.read_text())
    (tmp_path / "away.yml").write_text(unavailable)
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "away.yml"), "--stage", stage, *repair])
    assert (result.exit_code, result.stdout) == (3, "")
    (reported,) = result.stderr.splitlines()
    assert reported.startswith("tailorbird: HBase")
    assert reported.endswith("`tailorbird stack status`")


def test_a_proved_difference_outlives_a_server_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences found before the error are printed and determine the exit code."""

    def results(*_: object) -> Iterator[StageResult]:
        yield StageResult(verdict=WRONG)
        raise Retriable("HBase is away")

    monkeypatch.setattr(run_stages, "verify_stages", results)
    result = CliRunner().invoke(app, ["verify", str(SHOP)])
    assert (result.exit_code, "amount" in result.stdout, result.stderr) == (1, True, "tailorbird: HBase is away\n")


def test_an_invalid_topology_is_exit_2(tmp_path: Path) -> None:
    """As for every other command."""
    (tmp_path / "bad.yml").write_text("name: [")
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "bad.yml")])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


def test_explain_without_its_servers_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """1 would mean that an event contradicts its cell."""
    unavailable = re.sub(r"(thrift: |brokers: |http://)\S+:\S+?(?=/|\n)", r"\g<1>127.0.0.1:1", SHOP.read_text())
    (tmp_path / "away.yml").write_text(unavailable)
    result = CliRunner().invoke(app, ["explain", str(tmp_path / "away.yml"), "orders_wide", "7"])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (3, "", 1)
