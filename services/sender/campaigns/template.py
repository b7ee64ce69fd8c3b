"""Compiles a campaign's template once, so that each message only fills in its own words."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
# Meta refuses line breaks, tabs and more than four spaces in a row. A no-break space stays: it is
# how some languages write numbers.
_SPACE = "[ \t\r\n\v\f\x1c-\x1f\x85\u2028\u2029]"
_BREAKS = re.compile(f"{_SPACE}{{2,}}|(?! ){_SPACE}")
# A component with nothing beside these says nothing, and Meta refuses an empty list.
_BARE = {"type", "parameters"}
# Meta's deepest, a parameter of a card, has eight.
_DEEPEST = 32

Parameters = Mapping[str, Any]
Render = Callable[[Parameters], Any]


class TemplateError(ValueError):
    """A template that cannot be compiled; the text says where."""


class MissingValue(LookupError):  # noqa: N818  # what happened, in the words of the report
    """A recipient has no value for a column that the template names, or an empty one alone."""

    def __init__(self, column: str) -> None:
        super().__init__(f"no value for column {column!r}")
        self.column = column


def column_key(name: str) -> str:
    """How a column is matched: case and surplus space do not matter."""
    return " ".join(name.split()).casefold()


def flatten(text: str) -> str:
    """Text as Meta takes it in a parameter: one line, single spaces, none at the ends."""
    return _BREAKS.sub(" ", text).strip(" ")


def is_blank(text: str) -> bool:
    """Whether Meta would refuse the text as none."""
    return not text or text.isspace()


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """`columns` are the keys that `render` needs, in the order of the template.

    True: a text of its own, which Meta refuses when it is empty.
    """

    columns: Mapping[str, bool]
    _render: Render

    def render(self, parameters: Parameters) -> dict[str, Any]:
        """The template object of one message; its parts without variables are shared: only read.

        Raises `MissingValue`. Values are data: a placeholder inside one stays as it is.
        """
        rendered: dict[str, Any] = self._render(parameters)
        return rendered


def compile_template(template: Mapping[str, Any]) -> CompiledTemplate:
    """Compile `{name, language, components}`; raises `TemplateError`."""
    language = template["language"]
    wire: dict[str, Any] = {
        "name": template["name"],
        "language": {"code": language} if isinstance(language, str) else language,
    }
    _check_depth(template.get("components"), _DEEPEST)
    components = _without_bare(template.get("components") or [])
    if components:
        wire["components"] = components
    columns: dict[str, bool] = {}
    render = _compile(wire, columns)
    return CompiledTemplate(columns, render if callable(render) else lambda _: render)


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if left == 0:
        raise TemplateError(f"components are nested more than {_DEEPEST} levels deep")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def _without_bare(components: list[Any]) -> list[Any]:
    return [_cleaned(one) for one in components if not _is_bare(one)]


def _is_bare(component: Any) -> bool:
    return isinstance(component, dict) and (
        component.keys() <= _BARE and not component.get("parameters")
    )


def _cleaned(component: Any) -> Any:
    """Cards of a carousel hold components of their own."""
    if not isinstance(component, dict):
        return component
    kept = {key: value for key, value in component.items() if key not in ("cards", "components")}
    for key in ("cards", "components"):
        if isinstance(component.get(key), list):
            kept[key] = _without_bare(component[key])
    return kept


def _compile(value: Any, columns: dict[str, bool]) -> Any:
    """The value itself when it is the same for everybody, else a function of the parameters."""
    if isinstance(value, str):
        return _compile_text(value, columns)
    if isinstance(value, dict):
        return _compile_dict(value, columns)
    if isinstance(value, list):
        return _compile_list(value, columns)
    return value


def _compile_dict(value: dict[str, Any], columns: dict[str, bool]) -> Any:
    parts = {key: _compile(item, columns) for key, item in value.items()}
    if isinstance(parts.get("text"), str):
        parts["text"] = flatten(parts["text"])
    moving = [(key, part) for key, part in parts.items() if callable(part)]
    if not moving:
        return parts

    def render(parameters: Parameters) -> dict[str, Any]:
        filled = parts.copy()
        for key, part in moving:
            filled[key] = part(parameters)
        return filled

    return render


def _compile_list(value: list[Any], columns: dict[str, bool]) -> Any:
    parts = [_compile(item, columns) for item in value]
    moving = [(place, part) for place, part in enumerate(parts) if callable(part)]
    if not moving:
        return parts

    def render(parameters: Parameters) -> list[Any]:
        filled = parts.copy()
        for place, part in moving:
            filled[place] = part(parameters)
        return filled

    return render


def _compile_text(text: str, columns: dict[str, bool]) -> Any:
    # Splitting by the one group gives fixed text at even places and column names at odd ones.
    pieces = _PLACEHOLDER.split(text)
    fixed, names = pieces[::2], [column_key(name) for name in pieces[1::2]]
    if any("{{" in piece for piece in fixed) or "" in names:
        raise TemplateError(f"a placeholder is {{{{column}}}}; this is not one: {text[:80]!r}")
    if not names:
        return text
    alone = len(names) == 1 and not "".join(fixed).strip()
    for name in names:
        columns[name] = columns.get(name, False) or alone
    first, pairs = fixed[0], list(zip(names, fixed[1:], strict=True))

    def render(parameters: Parameters) -> str:
        filled = [first]
        for name, following in pairs:
            filled += (_value(parameters, name), following)
        told = flatten("".join(filled))
        if is_blank(told):
            raise MissingValue(names[0])
        return told

    return render


def _value(parameters: Parameters, name: str) -> str:
    value = parameters.get(name)
    if value is None:
        raise MissingValue(name)
    return value if isinstance(value, str) else str(value)
