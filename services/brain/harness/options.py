"""What a request asks of the model beside the conversation, as far as the model has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_UNSPECIFIED,
    MODEL_SPEED_FAST,
    EffortLevel,
)
from services.brain.domain.content import quoted

if TYPE_CHECKING:
    from catalogue.models import Model
    from drover.agent.v1.model_pb2 import ModelConfig

MAX_OUTPUT_TOKENS: Final = 32_000
"""Default of `max_tokens`, where the model writes as many."""

FAST_MODE_BETA: Final = "fast-mode-2026-02-01"


def head(wanted: ModelConfig, known: Model, max_output_tokens: int, *, think: bool = True) -> bytes:
    """The beginning of a request's JSON: the model, and how it is to work.

    `known` is what the catalogue knows of it. Thinking is asked for where the model decides by
    itself how long to think (`think` says whether at all). Effort `high` is what models do by
    themselves, so it is not said. Of a model that is not known nothing is asked but what the agent
    says: any server that speaks the Messages API serves.
    """
    parts = [
        b'{"model":%b,"max_tokens":%d,"stream":true'
        % (quoted(wanted.id), min(max_output_tokens, known.max_output_tokens))
    ]
    if think and known.adaptive_thinking:
        parts.append(b',"thinking":{"type":"adaptive"}')
    if effort := _effort(wanted, known):
        parts.append(b',"output_config":{"effort":%b}' % quoted(effort))
    if _is_fast(wanted, known):
        parts.append(b',"speed":"fast"')
    if wanted.inference_geo:
        parts.append(b',"inference_geo":%b' % quoted(wanted.inference_geo))
    return b"".join(parts)


def betas(wanted: ModelConfig, known: Model) -> tuple[str, ...]:
    """The values of the beta header that `head` needs."""
    return (FAST_MODE_BETA,) if _is_fast(wanted, known) else ()


def _effort(wanted: ModelConfig, known: Model) -> str:
    if wanted.effort.type in (EFFORT_LEVEL_UNSPECIFIED, EFFORT_LEVEL_HIGH):
        return ""
    level = EffortLevel.Name(wanted.effort.type).removeprefix("EFFORT_LEVEL_").lower()
    return "" if known.known and level not in known.efforts else level


def _is_fast(wanted: ModelConfig, known: Model) -> bool:
    if wanted.speed != MODEL_SPEED_FAST:
        return False
    return not known.known or known.fast_price is not None
