"""What is refused in a query's text before it is parsed: where sqlglot reads over a mistake, or mends it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NoReturn

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from joins.query.functions import PATTERN, pattern_for

# Refuses at a line (from 0) and a column (from 1): what is wrong, and what is expected.
RefuseAt = Callable[[int, int, str, str], NoReturn]


def check_tokens(text: str, refuse: RefuseAt) -> None:
    """Refuse stray commas, texts side by side, and patterns of date_format that are not kept."""
    tokens = sqlglot.tokenize(text, read="spark")
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.COMMA and after.token_type in (TokenType.COMMA, TokenType.FROM):
            what = f"not SQL: {after.text} after a comma"
            refuse(after.line - 1, after.col, what, "a column after each comma")
        if token.token_type == after.token_type == TokenType.STRING:
            # Spark reads '' within a text as a quote, sqlglot as the end of one text and the begin of another
            what = f"two texts side by side: '{token.text}' '{after.text}'"
            refuse(after.line - 1, after.col, what, "a quote as \\', texts joined by ||")
    _check_patterns(tokens, refuse)


def _check_patterns(tokens: Sequence[Token], refuse: RefuseAt) -> None:
    """Patterns of date_format as they were written: sqlglot turns them into its own, and back into others."""
    for i, token in enumerate(tokens[:-1]):
        if token.text.lower() != "date_format" or tokens[i + 1].token_type != TokenType.L_PAREN:
            continue
        depth, last = 0, tokens[i + 1]
        for after in tokens[i + 1 :]:
            depth += (after.token_type == TokenType.L_PAREN) - (after.token_type == TokenType.R_PAREN)
            if depth == 0:
                break
            last = after
        quotes = 2 * (last.token_type == TokenType.STRING)
        if quotes and re.fullmatch(PATTERN, last.text):
            continue
        expected = f"of yyyy MM dd HH mm ss and - / : . _ and blanks: '{pattern_for(last.text)}'"
        shown = f"'{last.text}'" if quotes else last.text
        column = last.col - len(last.text) - quotes + 1
        refuse(last.line - 1, column, f"pattern {shown} of date_format", expected)
