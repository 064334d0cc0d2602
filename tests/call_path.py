"""Follow a function's calls through the sources, as a reader does: in the order in which they are written, each
function once. Calls that only the running program resolves (protocols, callables in variables) end the path."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Place:
    """A function or a class of a module, by its dotted name in the module."""

    module: str
    name: str

    @property
    def file(self) -> str:
        """The module's file below `src`, without its suffix."""
        return self.module.replace(".", "/")


@dataclass(frozen=True, slots=True)
class Module:
    """The functions and classes of a module by dotted name, and the places that its imports name."""

    functions: Mapping[str, Function]
    classes: Mapping[str, ast.ClassDef]
    imported: Mapping[str, Place]


@cache
def module(name: str) -> Module | None:
    """Read a module of `src`; None for a package and for what is not in `src`."""
    path = SRC / f"{name.replace('.', '/')}.py"
    if not path.exists():
        return None
    tree = ast.parse(path.read_text())
    functions: dict[str, Function] = {}
    classes: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, Function):
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
            functions |= {f"{node.name}.{one.name}": one for one in node.body if isinstance(one, Function)}
    imported = {
        alias.asname or alias.name: Place(node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return Module(functions, classes, imported)


def named(at: str, name: str) -> Place | None:
    """Return the function or class that a dotted name means in a module; None if it is not in `src`."""
    known, (first, _, rest) = module(at), name.partition(".")
    if known is None:
        return None
    if first in known.functions or first in known.classes:
        return Place(at, name)
    if (place := known.imported.get(first)) is None:
        return None
    if (inner := f"{place.module}.{place.name}") and module(inner):
        return named(inner, rest) if rest else None
    return named(place.module, f"{place.name}.{rest}" if rest else place.name)


def method(owner: Place, name: str) -> Place | None:
    """Return a class's method, or the one that it inherits. A protocol has none: the program chooses it."""
    known = module(owner.module)
    if known is None or owner.name not in known.classes:
        return None
    if f"{owner.name}.{name}" in known.functions:
        place = Place(owner.module, f"{owner.name}.{name}")
        bases = {ast.unparse(base) for base in known.classes[owner.name].bases}
        return None if "Protocol" in bases else place
    for base in known.classes[owner.name].bases:
        if (above := named(owner.module, ast.unparse(base))) and (found := method(above, name)):
            return found
    return None


@dataclass(slots=True)
class Walk:
    """One walk; `passed` lists the functions in the order of the first call."""

    passed: list[Place] = field(default_factory=list)

    def enter(self, place: Place) -> None:
        """Walk through a function and everything that it calls. A class means its constructor."""
        known = module(place.module)
        if known is not None and place.name in known.classes:
            for name in ("__init__", "__post_init__"):
                if found := method(place, name):
                    self.enter(found)
            return
        if known is None or place in self.passed or place.name not in known.functions:
            return
        self.passed.append(place)
        function = known.functions[place.name]
        types = dict(_types(place, function))
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0)):
            if found := self._called(place, call.func, types):
                self.enter(found)

    def _called(self, place: Place, called: ast.expr, types: Mapping[str, Place]) -> Place | None:
        if isinstance(called, ast.Attribute):
            if owner := _type(place, called.value, types):
                return method(owner, called.attr)
        elif not isinstance(called, ast.Name):
            return None
        return named(place.module, ast.unparse(called))


def _types(place: Place, function: Function) -> Iterator[tuple[str, Place]]:
    """Yield the classes of the parameters and variables of a function, as far as the text says them."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    if "." in place.name and arguments:
        owner = Place(place.module, place.name.partition(".")[0])
        yield arguments[0].arg, owner
        yield from _fields(owner)
    for one in arguments:
        if one.annotation and (found := _class(place.module, one.annotation)):
            yield one.arg, found
    types: dict[str, Place] = {}
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.With):
            pairs = [(item.optional_vars, item.context_expr) for item in node.items if item.optional_vars]
        for target, value in pairs:
            if found := _type(place, value, types):
                types[ast.unparse(target)] = found
                yield ast.unparse(target), found


@cache
def _fields(owner: Place) -> Sequence[tuple[str, Place]]:
    """Return the classes of a class's fields, as its annotations and its constructor say them."""
    known = module(owner.module)
    if known is None or owner.name not in known.classes:
        return []
    found = [
        (f"self.{node.target.id}", kind)
        for node in known.classes[owner.name].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if (kind := _class(owner.module, node.annotation))
    ]
    if init := known.functions.get(f"{owner.name}.__init__"):
        types = {
            one.arg: kind
            for one in [*init.args.args, *init.args.kwonlyargs]
            if one.annotation and (kind := _class(owner.module, one.annotation))
        }
        place = Place(owner.module, f"{owner.name}.__init__")
        for node in ast.walk(init):
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    if kind := _type(place, value, types):
                        found.append((ast.unparse(target), kind))
    return found


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def _class(at: str, annotation: ast.expr) -> Place | None:
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    found = named(at, str(text).removesuffix(" | None").removeprefix("Iterator[").removesuffix("]"))
    known = found and module(found.module)
    return found if found and known and found.name in known.classes else None


def _type(place: Place, value: ast.expr, types: Mapping[str, Place]) -> Place | None:
    """Return the class of an expression: a known variable, a call of a class, or of a function with an annotation."""
    if (text := ast.unparse(value)) in types:
        return types[text]
    if isinstance(value, ast.Call):
        if ast.unparse(value.func).rpartition(".")[2] in {"closing", "enter_context"}:
            return _type(place, value.args[0], types)
        found = named(place.module, ast.unparse(value.func))
        if found is None and isinstance(value.func, ast.Attribute):
            owner = _type(place, value.func.value, types)
            found = method(owner, value.func.attr) if owner else None
        known = found and module(found.module)
        if found and known and found.name in known.classes:
            return found
        if found and known and (one := known.functions.get(found.name)) and one.returns:
            return _class(found.module, one.returns)
    return None


def call_path(module_name: str, function: str) -> Sequence[Place]:
    """Return the functions that a function calls, itself first, in the order of their first call."""
    walk = Walk()
    walk.enter(Place(module_name, function))
    return walk.passed


def returns(rooms: Sequence[str]) -> int:
    """Count the moves back into a room that the path had left."""
    stays = [room for room, _ in groupby(rooms)]
    return len(stays) - len(set(stays))
