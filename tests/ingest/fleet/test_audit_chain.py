"""A removed or changed line of the audit is noticed, with several writers in one topic."""

from __future__ import annotations

from typing import Any

from ingest.fleet.audit_chain import ChainEnd, chained, faults


def lines_of(*writers: str, each: int = 5) -> list[dict[str, Any]]:
    ends, found = {one: ChainEnd(one) for one in writers}, []
    for number in range(each):
        for writer in writers:
            line = {"at_ms": number, "what": "drain", "who": writer, "outcome": "done", "version": None}
            ends[writer] = ends[writer].after(line)
            found.append(chained(line, ends[writer]))
    return found


def test_an_untouched_audit_has_no_fault() -> None:
    """Expired first lines, and lines of earlier versions, are no fault."""
    lines = lines_of("a", "b")
    assert list(faults(lines)) == []
    assert list(faults([{"at_ms": 1, "what": "of an earlier version", "outcome": "done"}, *lines[3:]])) == []


def test_each_removed_line_is_noticed_unless_it_is_the_last_of_its_writer() -> None:
    lines = lines_of("a", "b")
    for place in range(2, len(lines) - 2):
        (fault,) = faults(lines[:place] + lines[place + 1 :])
        assert fault.startswith(f"writer {lines[place]['who']}: line ")
        assert "is followed by" in fault


def test_a_changed_line_is_noticed() -> None:
    """Also if its own hash was computed again: the next line does not fit."""
    lines = lines_of("a")
    changed = {**lines[2], "who": "nobody"}
    assert len(list(faults([*lines[:2], changed, *lines[3:]]))) == 1
    before = ChainEnd("a", 2, lines[1]["chain"][2])
    content = {name: value for name, value in changed.items() if name != "chain"}
    forged = chained(content, before.after(content))
    assert list(faults([*lines[:2], forged, *lines[3:]])) == ["writer a: line 4, or the one before it, was changed"]


def test_a_line_with_a_forged_chain_is_reported_and_ends_nothing() -> None:
    """Anyone who may write to the topic can add one."""
    lines = lines_of("a")
    for chain in ("x", [], [["a"], 1, "h"], ["a", "1", "h"], ["a", 1, None], ["a", True, "h"], 7):
        (fault,) = faults([*lines[:2], {"at_ms": 1, "what": "forged", "chain": chain}, *lines[2:]])
        assert "no valid place in a chain" in fault
