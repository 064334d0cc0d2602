"""Split a statement into words. Comments are dropped; executable comments are replaced by their content.

sqlglot's tokenizer splits the text; its parser is not used. The tokenizer has no keywords, because nearly every word of
MySQL's grammar may also be a column name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ingest.ddl.dialect import Dialect
from ingest.ddl.errors import DdlNotUnderstood

Kind = Literal["word", "name", "string", "number", "symbol", "end"]

# Quoted text, and comments. Possessive quantifiers avoid quadratic time for a quote that is never closed.
_HIDING = r"""
      (?P<quoted> '(?:[^'{0}]|{1}'')*+' | "(?:[^"{2}]|{3}"")*+" | `(?:[^`]|``)*+` )
    | (?P<line> --(?=[\s\x00-\x1f]|\Z)[^\n]*+ | \#[^\n]*+ )
    | (?P<run> /\*M?!(?:\d{{5,6}})? )
    | (?P<open> /\* )
    | (?P<close> \*/ )
    """


def _hiding(single: bool, double: bool) -> re.Pattern[str]:
    """Return the pattern for quoted text and comments. `single` and `double`: a backslash escapes in that kind of
    quote."""
    plain, escaped = ("", ""), (r"\\", r"\\.|")
    return re.compile(_HIDING.format(*(escaped if single else plain), *(escaped if double else plain)), _FLAGS)


_FLAGS = re.VERBOSE | re.DOTALL
# key: (backslash escapes, double quotes enclose names)
_PATTERNS = {
    (escapes, ansi): _hiding(escapes, escapes and not ansi) for escapes in (True, False) for ansi in (True, False)
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One token. `text` is its value without quotes and escapes; `upper` is in upper case, and "" if quoted.

    `glued`: no space precedes it. `quote` is its quote character, if any.
    """

    kind: Kind
    text: str
    upper: str
    quote: str = ""
    glued: bool = False


END = Word(kind="end", text="", upper="")


def words_of(sql: str, dialect: Dialect) -> list[Word]:
    """Split a statement into words.

    Raises DdlNotUnderstood for text that cannot be split, such as an unclosed quote.
    """
    from ingest.ddl.tokenizers import TOKENIZERS, TokenError  # slow to import, and many captures never need it

    text = opened(sql, dialect)
    cutter = TOKENIZERS[dialect.backslash_escapes, dialect.ansi_quotes]()
    try:
        tokens = cutter.tokenize(text)
    except TokenError as error:
        raise DdlNotUnderstood("the statement cannot be split into words: a quote is not closed") from error
    words: list[Word] = []
    end = -1
    for token in tokens:
        raw = text[token.start : token.end + 1]
        glued = token.start == end + 1
        end = token.end
        word = _word(raw, token.token_type.name, glued=glued, dialect=dialect)
        before = words[-1] if words else END
        # names that begin with digits, such as 2024_orders, arrive in two parts
        if word.kind in ("word", "number") and glued and before.kind in ("number", "word") and raw[0] != ".":
            joined = before.text + word.text
            words[-1] = Word(kind="word", text=joined, upper=joined.upper(), glued=before.glued)
        else:
            words.append(word)
    return words


def _word(raw: str, kind: str, *, glued: bool, dialect: Dialect) -> Word:
    first = raw[:1]
    if first == "`" or (first == '"' and dialect.ansi_quotes):
        return Word(kind="name", text=raw[1:-1].replace(first * 2, first), upper="", quote=first, glued=glued)
    if first in ("'", '"'):
        text = unquoted(raw, backslash_escapes=dialect.backslash_escapes)
        return Word(kind="string", text=text, upper="", quote=first, glued=glued)
    if kind == "NUMBER":
        return Word(kind="number", text=raw, upper=raw.upper(), glued=glued)
    if kind == "VAR" or raw[:1].isalnum():
        return Word(kind="word", text=raw, upper=raw.upper(), glued=glued)
    return Word(kind="symbol", text=raw, upper=raw, glued=glued)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unquoted(raw: str, *, backslash_escapes: bool) -> str:
    """Return the value of a quoted string literal as MySQL reads it, without quotes and escapes."""
    quote, body = raw[0], raw[1:-1].replace(raw[0] * 2, raw[0]) if "\\" not in raw else raw[1:-1]
    if "\\" not in raw:
        return body
    if not backslash_escapes:
        return body.replace(quote * 2, quote)
    pattern = re.compile(r"\\(.)|" + quote + quote, re.DOTALL)
    return pattern.sub(lambda m: _ESCAPES.get(m.group(1), m.group(1)) if m.group(1) else quote, body)


def opened(sql: str, dialect: Dialect) -> str:
    """Return the statement as the server reads it: comments become a space, executable comments lose their
    delimiters."""
    parts = _PATTERNS[dialect.backslash_escapes, dialect.ansi_quotes]
    out: list[str] = []
    at, inside = 0, 0
    while match := parts.search(sql, at):
        out.append(sql[at : match.start()])
        at = match.end()
        if match.lastgroup == "quoted":
            out.append(match.group())
            continue
        out.append(" ")
        if match.lastgroup == "open" or (match.lastgroup == "run" and not dialect.runs_comment(match.group())):
            at = _comment_end(sql, at, nested=match.lastgroup == "run")
        elif match.lastgroup == "run":
            inside += 1
        elif match.lastgroup == "close" and inside:
            inside -= 1
        elif match.lastgroup == "close":
            out.append("*/")
    out.append(sql[at:])
    return "".join(out)


def _comment_end(sql: str, start: int, *, nested: bool) -> int:
    """Return the index after the comment that is open at `start`. Only executable comments may nest."""
    depth, at = 1, start
    while depth and (edge := _COMMENT_EDGE.search(sql, at)):
        at = edge.end()
        if edge.group() == "*/":
            depth -= 1
        elif nested:
            depth += 1
    return at if depth == 0 else len(sql)
