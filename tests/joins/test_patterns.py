"""Regular expressions are accepted only if the ways to match a text can be counted."""

from __future__ import annotations

import random
import re
import time

import pytest

from joins.query.functions.patterns import LONGEST, NESTED, BadPattern, pattern_of, plain_text

LIMITS = {
    "^n[12]$": LONGEST, "foo|bar": LONGEST, r"\d{4}-\d{2}": LONGEST, r"^(\w+)-(\d+)$": LONGEST, "[0-9]+": 20_000,
    r"(\w+)@(\w+)\.com": 20_000, "^a.*b": 14_142, ".*foo.*": 843, "^.*a.*b.*c": 156, "(?:ab)*c": NESTED,
}  # fmt: skip


@pytest.mark.parametrize("pattern", LIMITS)
def test_the_longest_text_depends_on_the_ways(pattern: str) -> None:
    """A text that could take long is not matched at all."""
    assert pattern_of(pattern).most == LIMITS[pattern]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b", "(a|ab)*c", "(a*)*", "((a?b?)*)c", "a.*b.*c.*d.*", r"(a)\1", "(?=a)b", "(?i)a", r"\bfoo", r"\p{L}",
        "a**", "a++", "*a", "a{3,2}", "(a", "a)", "[a", "[]a]", "[a[b]]", "[a&&b]", "[z-a]", "a{2", r"\Qa\E", "(?<n>a)",
        "a{999}", "(a?)*", "(?:a|)*", "([0-9]?)+x", "(?:a{0,1})*b", "^(?:-?)*x", "((a)*)+",
    ],
)  # fmt: skip
def test_a_pattern_that_may_take_long_is_refused(pattern: str) -> None:
    """Also what Java and Python read otherwise is refused."""
    with pytest.raises(BadPattern):
        pattern_of(pattern)


def test_no_random_pattern_takes_long() -> None:
    """Whatever is accepted answers the longest texts of few letters soon, also in Python."""
    chance, slow = random.Random(5), []
    for _ in range(1500):
        pattern = "".join(
            chance.choice(["a", "b", "(", ")", "|", "*", "+", "?", ".", "[ab]", "{1,2}"]) for _ in range(9)
        )
        try:
            found = pattern_of(pattern)
        except BadPattern:
            continue
        since = time.process_time()
        re.compile(found.python).search(chance.choice(["a", "ab", "b"]) * min(60, found.most // 2))
        if time.process_time() - since > 0.5:
            slow.append(pattern)
    assert not slow


def test_plain_text() -> None:
    """`split` takes only patterns that match one text."""
    assert [plain_text(one) for one in [",", r"\.", "[|]", "a|b", ".", r"\d"]] == [",", ".", "|", None, None, None]
