"""sqlglot's tokenizer, set up for MySQL's words.

Its import takes 0.2 s of a processor, so `ingest.ddl.lexer` imports this module when it reads the first statement.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import Tokenizer, TokenType
from sqlglot.errors import TokenError

__all__ = ["TOKENIZERS", "TokenError"]


class _Cutter(Tokenizer):
    """sqlglot's tokenizer without keywords: words, names in backticks, strings in either quote, numbers, symbols."""

    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {}
    COMMENTS: ClassVar[list[str | tuple[str, str]]] = []
    COMMANDS: ClassVar[set[TokenType]] = set()


class _PlainCutter(_Cutter):
    """The tokenizer under NO_BACKSLASH_ESCAPES."""

    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"']


class _AnsiCutter(_Cutter):
    """The tokenizer under ANSI_QUOTES."""

    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']
    STRING_ESCAPES: ClassVar[list[str]] = ["'", "\\"]


class _PlainAnsiCutter(_AnsiCutter):
    """The tokenizer under both modes."""

    STRING_ESCAPES: ClassVar[list[str]] = ["'"]


# key: (backslash escapes, double quotes enclose names)
TOKENIZERS = {
    (True, False): _Cutter,
    (False, False): _PlainCutter,
    (True, True): _AnsiCutter,
    (False, True): _PlainAnsiCutter,
}
