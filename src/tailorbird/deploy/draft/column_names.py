"""Guess the meaning of columns from their English names. A wrong guess only leads to a worse choice."""

from __future__ import annotations

import re

from tailorbird.deploy.draft.naming import snake

_CHANGED = re.compile(
    r"(^|_)(last_)?(update|updated|modified|changed|edited|synced)(_|$)|^row_version$|^last_(change|edit)$"
)
_CALLED = re.compile(r"(^|_)(name|title|label|caption|subject|company|product|headline)(_|$)")
_SORTED = re.compile(r"(^|_)(status|state|type|kind|category|genre|class|group|country|region|city|currency)(_|$)")
_PERSON = re.compile(
    r"(^|_)(first|last|middle|given|family|full|user|nick|sur|maiden|contact)_?name(_|$)|(^|_)job_title$"
)
_CODE = re.compile(
    r"(^|_)(url|uri|link|href|path|file|hash|md5|sha\d*|uuid|guid|phone|fax|mobile|zip|address\d?|street|e?mail|postal|code|ip|locale)(_|$)"
)
# patterns for the time of a row: the first pattern that any column matches decides
_TIMES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(^|_)creat(ed|ion)(_|$)|^(date|time)_created$|^inserted|(^|_)registered(_|$)",
        r"(^|_)(order|ordered|sale|sold|invoice|payment|paid|purchase|purchased|rental|booking|booked|event|placed)(_|$)",
        r"(^|_)(posted|published|started|opened|submitted|received|logged|occurred|happened|hired?|joined)(_|$)",
        r"^(date|time|timestamp|ts|when|at|day)$",
        r"",
    )
)
POOR = len(_TIMES)
_NOT_ITS_TIME = re.compile(
    r"(^|_)(birth|birthday|born|dob|required|due|expir\w*|return|returned|deleted|end|ended|until|to)(_|$)"
)


def is_change_time(name: str) -> bool:
    """Return whether a column name suggests the time of a row's last change."""
    return _CHANGED.search(snake(name)) is not None


def looks_like_name(name: str) -> bool:
    """Return whether a column name suggests the name or title of a row."""
    return _CALLED.search(snake(name)) is not None


def looks_sorted(name: str) -> bool:
    """Return whether a column name suggests a category, such as status or country."""
    return _SORTED.search(snake(name)) is not None


def looks_like_person(name: str) -> bool:
    """Return whether a column name suggests a part of a person's name. Such a column is a bad facet: it has many
    values."""
    return _PERSON.search(snake(name)) is not None


def looks_like_code(name: str) -> bool:
    """Return whether a column name suggests a code, an address or a path instead of words."""
    return _CODE.search(snake(name)) is not None


def time_rank(name: str) -> int:
    """Rank how well a column name fits the time of a row; lower is better. 0 and 1 are certain, from `POOR` on it is
    a guess."""
    text = snake(name)
    if is_change_time(name):
        return POOR
    if _NOT_ITS_TIME.search(text):
        return POOR + 1
    return next(rank for rank, pattern in enumerate(_TIMES) if pattern.search(text))
