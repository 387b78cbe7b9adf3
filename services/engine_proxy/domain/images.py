"""Which of the engine's images may be looked at and run."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from services.engine_proxy.domain.container import LAYER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What is made of a sandbox's container, and what names an image by its content: it shows in the
# image itself whose it is.
_ASKED: Final = re.compile("sha256:[0-9a-f]{64}|drover-packages-[0-9a-f]{12}:[A-Za-z0-9_.-]{1,128}")
_LAYERS: Final = "drover-packages-"
_NONE: Final = "<none>"


def is_named(reference: str, patterns: Iterable[str]) -> bool:
    """Whether the operator's patterns allow a name: one without a tag allows every tag.

    One with a tag allows no digest: the engine takes that, whatever the tag is.
    """
    name = _untagged(reference.partition("@")[0])
    return any(fnmatchcase(one, pattern) for one in (reference, name) for pattern in patterns)


def may_be_ours(reference: str) -> bool:
    """Whether the engine is to be asked."""
    return _ASKED.fullmatch(reference) is not None


def is_ours(image: Mapping[str, Any], identity: str) -> bool:
    """Whether an image was made of this proxy's containers, by what the engine says of it."""
    labels = (image.get("Config") or {}).get("Labels") or {}
    return bool(labels.get(LAYER) == identity)


def has_allowed_name(image: Mapping[str, Any], patterns: Iterable[str]) -> bool:
    """Whether one of an image's names is allowed."""
    return any(is_named(name, patterns) for name in image.get("RepoTags") or ())


def is_only_a_layer(image: Mapping[str, Any]) -> bool:
    """Whether nobody gave it another name: who makes an image of a layer gives it its labels."""
    return all(name.startswith((_LAYERS, _NONE)) for name in image.get("RepoTags") or ())


def _untagged(name: str) -> str:
    head, colon, tail = name.rpartition(":")
    return head if colon and "/" not in tail else name
