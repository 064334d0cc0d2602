"""Parse compiled expressions (`joins.query.expressions`) into trees. They are Spark SQL with `{i}` for value i.

The grammar covers exactly what the compiler writes. Other text raises `UnknownValue`, so no expression is misread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from joins.evaluate.unknown import UnknownValue

_TOKEN = re.compile(
    r"\s*(?:(?P<value>\{\d+\})|(?P<text>'(?:[^'\\]|\\.)*')|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign><=>|<>|<=|>=|[-+*/%=<>(),]))",
    re.DOTALL,
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
Kind = Literal[
    "value", "text", "number", "null", "true", "false", "date", "moment", "interval", "cast", "case", "in", "call"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """A node of the tree. `name` is a function, an operator's sign, the type of a CAST, or a literal.

    The parts of a CASE are condition, value, condition, value, …, and last the value of ELSE."""

    kind: Kind
    name: str = ""
    parts: tuple[Syntax, ...] = ()


def read(text: str) -> Syntax:
    """Parse a compiled expression. Raises UnknownValue for text that the compiler does not write."""
    reader = _Reader(_tokens(text))
    tree = reader.either()
    if reader.at != len(reader.tokens):
        raise UnknownValue(f"it is not read: {text}")
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownValue(f"it is not read: {text}")
        assert match.lastgroup is not None  # one of the groups matched
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def _plain(quoted: str) -> str:
    """Undo `joins.query.expressions.escaped`: return the text of a string literal."""
    doubled = quoted[1:-1].replace("{{", "{").replace("}}", "}")
    if re.search(r"\\[^\\']", re.sub(r"\\\\", "", doubled)):
        raise UnknownValue(f"a literal has an escape: {quoted}")
    return re.sub(r"\\(.)", r"\1", doubled, flags=re.DOTALL)


class _Reader:
    """Parses tokens by recursive descent."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.at = tokens, 0

    def _peek(self, ahead: int = 0) -> str:
        """Return the token `ahead` of the next one in upper case. Empty for a literal and at the end."""
        if self.at + ahead >= len(self.tokens):
            return ""
        kind, text = self.tokens[self.at + ahead]
        return text.upper() if kind in ("word", "sign") else ""

    def _take(self, *wanted: str) -> str:
        if (found := self._peek()) not in wanted:
            raise UnknownValue(f"{found or 'a literal'} stands where {' or '.join(wanted)} is read")
        self.at += 1
        return found

    def _eat(self, wanted: str) -> bool:
        if self._peek() != wanted:
            return False
        self.at += 1
        return True

    def either(self) -> Syntax:
        """Parse an OR expression, the lowest precedence, so any expression."""
        tree = self._both()
        while self._eat("OR"):
            tree = Syntax(kind="call", name="or", parts=(tree, self._both()))
        return tree

    def _both(self) -> Syntax:
        tree = self._negated()
        while self._eat("AND"):
            tree = Syntax(kind="call", name="and", parts=(tree, self._negated()))
        return tree

    def _negated(self) -> Syntax:
        if self._eat("NOT"):
            return Syntax(kind="call", name="not", parts=(self._negated(),))
        return self._compared()

    def _compared(self) -> Syntax:
        tree = self._sum()
        while True:
            word = self._peek()
            if word in _COMPARISONS:
                self.at += 1
                tree = Syntax(kind="call", name=word, parts=(tree, self._sum()))
            elif word == "IS":
                self.at += 1
                no = self._eat("NOT")
                self._take("NULL")
                tree = Syntax(kind="call", name="is not null" if no else "is null", parts=(tree,))
            elif word == "IN":
                self.at += 1
                tree = Syntax(kind="in", parts=(tree, *self._listed()))
            elif word == "LIKE":
                self.at += 1
                tree = Syntax(kind="call", name="like", parts=(tree, self._sum()))
            else:
                return tree

    def _sum(self) -> Syntax:
        tree = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self.at += 1
            tree = Syntax(kind="call", name=sign, parts=(tree, self._product()))
        return tree

    def _product(self) -> Syntax:
        tree = self._signed()
        while (sign := self._peek()) in ("*", "%", "DIV"):
            self.at += 1
            tree = Syntax(kind="call", name=sign.lower(), parts=(tree, self._signed()))
        return tree

    def _signed(self) -> Syntax:
        if self._eat("-"):
            return Syntax(kind="call", name="minus", parts=(self._signed(),))
        return self._one()

    def _listed(self) -> tuple[Syntax, ...]:
        self._take("(")
        if self._eat(")"):
            return ()
        parts = [self.either()]
        while self._take(",", ")") == ",":
            parts.append(self.either())
        return tuple(parts)

    def _one(self) -> Syntax:
        if self.at >= len(self.tokens):
            raise UnknownValue("an expression ends too early")
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "value":
            return Syntax(kind="value", name=text[1:-1])
        if kind == "text":
            return Syntax(kind="text", name=_plain(text))
        if kind == "number":
            return Syntax(kind="number", name=text)
        word = text.upper()
        if kind == "sign":
            if word != "(":
                raise UnknownValue(f"{text} begins no expression")
            tree = self.either()
            self._take(")")
            return tree
        return self._word(word, text)

    def _word(self, word: str, text: str) -> Syntax:
        if word in ("NULL", "TRUE", "FALSE"):
            return Syntax(kind=word.lower())  # type: ignore[arg-type]  # the three of them are kinds
        if word in ("DATE", "TIMESTAMP_NTZ") and self._peek() == "" and self.at < len(self.tokens):
            literal = self._one()
            return Syntax(kind="date" if word == "DATE" else "moment", name=literal.name)
        if word == "INTERVAL":
            literal = self._one()
            return Syntax(kind="interval", name=f"{literal.name} {self._take('SECOND', 'DAY', 'MONTH')}")
        if word == "CASE":
            return self._case()
        if word in ("CAST", "TRY_CAST"):
            self._take("(")
            inner = self.either()
            self._take("AS")
            return Syntax(kind="cast", name=self._type(), parts=(inner,))
        return Syntax(kind="call", name=text.lower(), parts=self._listed())

    def _case(self) -> Syntax:
        parts: list[Syntax] = []
        while self._eat("WHEN"):
            parts.append(self.either())
            self._take("THEN")
            parts.append(self.either())
        parts.append(self.either() if self._eat("ELSE") else Syntax(kind="null"))
        self._take("END")
        return Syntax(kind="case", parts=tuple(parts))

    def _type(self) -> str:
        """Parse the type in a CAST, and return Spark's name of it without blanks."""
        text = ""
        depth = 0
        while self.at < len(self.tokens):
            part = self.tokens[self.at][1]
            self.at += 1
            if part == ")" and depth == 0:
                return text.upper()
            depth += (part == "(") - (part == ")")
            text += part
        raise UnknownValue("a CAST has no end")
