"""What front and worker say to each other: a request, and a trace or faults in answer. Plain JSON, checked on arrival."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from fullstep.errors import Fault
from fullstep.ledger import Trace

Tree = dict[str, Any]
"""a table of plain JSON values"""


class WireError(ValueError):
    """A message that does not have the form that was agreed on."""


class Request(NamedTuple):
    """What is to be traced: one JSON object on the worker's standard input."""

    worksheet: Tree
    """as it was validated, defaults not filled in"""
    config: Tree
    """the model's Hugging Face config"""
    name: str
    """of the model, for messages"""
    full_depth: bool = False
    """every block is traced, also where equal ones could be repeated"""
    snapshot: str | None = None
    """path of the memory snapshot to write"""


def encode_trace(trace: Trace) -> Tree:
    """A trace as a table of JSON values."""
    tree: Tree = _encode(trace)
    return tree


def decode_trace(tree: object) -> Trace:
    """The trace in such a table.

    Raises:
        WireError: a field is missing, unknown or of the wrong type.
    """
    trace: Trace = _decode(tree, Trace, "trace")
    return trace


def encode_request(request: Request) -> str:
    """A request as one line of JSON."""
    return json.dumps(request._asdict()) + "\n"


def decode_request(text: str) -> Request:
    """The request in a line of JSON.

    Raises:
        WireError: it is not a request.
    """
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"request: {error}") from None
    request: Request = _decode(tree, Request, "request")
    return request


def encode_fault(fault: Fault) -> Tree:
    """A fault as a table of texts."""
    return {"where": fault.where, "found": fault.found, "allowed": fault.allowed, "remedy": fault.remedy}


def decode_faults(trees: object) -> tuple[Fault, ...]:
    """The faults in a list of such tables.

    Raises:
        WireError: there is none, or something else stands among them.
    """
    if not isinstance(trees, list) or not trees:
        raise WireError("no list of faults")
    for tree in trees:
        _check_keys(tree, ("where", "found", "allowed", "remedy"), "fault")
        if not all(isinstance(text, str) for text in tree.values()):
            raise WireError("a fault whose parts are not text")
    return tuple(Fault(**tree) for tree in trees)


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        if fields is None:
            return [_encode(entry) for entry in value]
        return {name: _encode(entry) for name, entry in zip(fields, value, strict=True)}
    return value


def _decode(value: Any, form: Any, where: str) -> Any:
    """The value in the form of a type hint: a named tuple, tuple, choice of words, union with None, dict or plain type."""
    origin, arguments = get_origin(form), get_args(form)
    if origin is tuple:
        return _decode_tuple(value, arguments, where)
    if origin is Literal:
        if type(value) is str and value in arguments:
            return value
    elif NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None else _decode(value, inner, where)
    elif origin is dict:
        if type(value) is dict:
            return value
    elif hasattr(form, "_fields"):
        _check_keys(value, form._fields, where)
        hints = _hints(form)
        return form(**{name: _decode(value[name], hints[name], f"{where}.{name}") for name in form._fields})
    elif form is float:
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
    elif type(value) is form:
        return value
    raise WireError(f"{where}: {str(value)[:60]!r} instead of {getattr(form, '__name__', form)}")


def _decode_tuple(value: Any, arguments: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if type(value) is not list:
        raise WireError(f"{where}: {str(value)[:60]!r} instead of a list")
    forms = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
    if len(forms) != len(value):
        raise WireError(f"{where}: {len(value)} entries instead of {len(forms)}")
    return tuple(_decode(entry, form, where) for entry, form in zip(value, forms, strict=True))


def _check_keys(value: object, names: tuple[str, ...], where: str) -> None:
    if not isinstance(value, Mapping) or value.keys() != set(names):
        raise WireError(f"{where}: {str(value)[:60]!r} instead of a table of {', '.join(names)}")


@cache
def _hints(form: type) -> dict[str, Any]:
    return get_type_hints(form)
