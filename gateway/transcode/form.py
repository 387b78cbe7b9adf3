"""Requests that are sent as forms (RFC 7578): which parts they have, and what becomes of them.

An upload is an RPC whose request is a stream. Its first message is the `header`; what of that is
neither in the path nor told by a file's own part is a field of the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gateway.transcode.shape import ContractError
from gateway.transcode.values import text_setter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor, MethodDescriptor

    from gateway.transcode.shape import FieldShape, Shapes
    from gateway.transcode.values import Setter

HEADER: Final = "header"

# By the header's message: the part that holds the file, or the files where it ends with [], and the
# fields beside it.
_FORMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "drover.file.v1.FileHeader": ("file", ("expires_in_seconds",)),
        "drover.skill.v1.SkillHeader": ("files[]", ("display_name",)),
        "drover.skill.v1.SkillVersionHeader": ("files[]", ()),
    }
)


@dataclass(frozen=True, slots=True)
class Form:
    """A form with files: one in a part `part`, or any number in parts that may be named `names`.

    `fields` may stand beside them, in any order; `setters` read their text into the header.
    """

    part: str
    names: frozenset[str]
    many: bool
    fields: Mapping[str, FieldShape]
    setters: Mapping[str, Setter]

    @classmethod
    def of(cls, header: Descriptor, shapes: Shapes) -> Form:
        """The form of an upload with this header. Raises `ContractError` for one without."""
        if header.full_name not in _FORMS:
            msg = f"{header.full_name}: nothing is known of its form"
            raise ContractError(msg)
        part, names = _FORMS[header.full_name]
        shape = shapes.of(header)
        fields = {name: shape.field(name) for name in names}
        bare = part.removesuffix("[]")
        return cls(
            part=part,
            names=frozenset({part, bare}),
            many=bare != part,
            fields=fields,
            setters={name: text_setter(field) for name, field in fields.items()},
        )


def header_of(method: MethodDescriptor) -> Descriptor:
    """The first message of an upload. Raises `ContractError` if there is none."""
    field = method.input_type.fields_by_name.get(HEADER)
    if field is None or field.message_type is None:
        msg = f"{method.full_name}: an upload begins with a header"
        raise ContractError(msg)
    return field.message_type
