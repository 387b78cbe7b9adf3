"""What the API takes of any object, by the official client's models of it.

They are generated from the API's own description: fields, their types, and which are required.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes.client import models
from pydantic import ValidationError

_MANY = re.compile(r"List\[(\w+)\]|Dict\[str, (\w+)\]")


def faults(given: dict[str, Any]) -> list[str]:
    """Where an object is not what its kind is: wrong types, missing fields."""
    try:
        _model(f"V1{given['kind']}").model_validate(given, strict=False)
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return []


def unknown(given: dict[str, Any]) -> list[str]:
    """The fields of an object that its kind does not have, which the API would drop or refuse."""
    return list(_unknown(f"V1{given['kind']}", given, given["kind"]))


def _unknown(name: str, given: Any, place: str) -> Iterator[str]:
    if many := _MANY.fullmatch(name):
        items = given.items() if isinstance(given, dict) else enumerate(given)
        for key, item in items:
            yield from _unknown(many[1] or many[2], item, f"{place}.{key}")
    elif (model := _model(name)) is not None:
        fields = {wire: field for field, wire in model.attribute_map.items()}
        for wire, value in given.items():
            if wire not in fields:
                yield f"{place}.{wire}"
            else:
                yield from _unknown(model.openapi_types[fields[wire]], value, f"{place}.{wire}")


def _model(name: str) -> Any:
    return getattr(models, name, None)
