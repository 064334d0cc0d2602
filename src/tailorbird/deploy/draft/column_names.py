"""What names of columns tell, in English as most schemas are: pure guesses, which only choose and never break."""

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
# which time is the row's own: the first pattern that any column matches decides
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
    """Whether a column is named like the moment at which its row last changed."""
    return _CHANGED.search(snake(name)) is not None


def looks_like_name(name: str) -> bool:
    """Whether a column is named like what people call a row."""
    return _CALLED.search(snake(name)) is not None


def looks_sorted(name: str) -> bool:
    """Whether a column is named like what people sort rows under."""
    return _SORTED.search(snake(name)) is not None


def looks_like_person(name: str) -> bool:
    """Whether a column is named like a part of a person's name, of which there are as many as people."""
    return _PERSON.search(snake(name)) is not None


def looks_like_code(name: str) -> bool:
    """Whether a text is rather a number, an address or a path than words."""
    return _CODE.search(snake(name)) is not None


def time_rank(name: str) -> int:
    """How well a column's name fits the time of a row: less is better, 0 and 1 are sure, `POOR` and more are not."""
    text = snake(name)
    if is_change_time(name):
        return POOR
    if _NOT_ITS_TIME.search(text):
        return POOR + 1
    return next(rank for rank, pattern in enumerate(_TIMES) if pattern.search(text))
