"""Checks the arguments of a tool call against the tool's schema before anything runs. Pure."""

from __future__ import annotations

from typing import Any

from ..errors import ToolError

_NAMES = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def check_arguments(schema: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """The arguments with obvious spellings put right ("60" for 60, "true" for true, null for absent).

    `schema` is the tool's `parameters` object. Raises ToolError naming every argument that is missing or of the wrong
    type; unknown ones are left for the tool to ignore.
    """
    wanted: dict[str, Any] = schema.get("properties", {})
    out: dict[str, Any] = {}
    faults: list[str] = []
    for name, value in args.items():
        if value is None:
            continue
        if name not in wanted:
            out[name] = value
            continue
        fixed = _fit(wanted[name], value)
        if fixed is None:
            expected = _NAMES.get(wanted[name].get("type"), wanted[name].get("type"))
            faults.append(f"{name} must be {expected}, not {_shown(value)}")
        elif "enum" in wanted[name] and fixed not in wanted[name]["enum"]:
            faults.append(f"{name} must be one of {', '.join(wanted[name]['enum'])}, not {_shown(value)}")
        out[name] = fixed
    faults += [f"{name} is missing" for name in schema.get("required", []) if name not in out]
    if faults:
        raise ToolError(f"not run: {'; '.join(faults)}")
    return out


def _fit(rule: dict[str, Any], value: Any) -> Any:
    """The value as the type the rule wants, or None when it is something else."""
    kind = rule.get("type")
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
    if kind in ("integer", "number"):
        return _number(value, whole=kind == "integer")
    if kind == "array":
        return value if isinstance(value, list) else None
    return value


def _number(value: Any, whole: bool) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None
    if number.is_integer():
        return int(number)
    return None if whole else number


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
