"""What the engine is told of a model's reasoning: its markers as token ids."""

from octavo.errors import InvalidRequestError
from octavo.request.reasoning import Marker, ReasoningSpec
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.serving_engine import TextCodec


def reasoning_spec(
    tokenizer: TextCodec, family: ReasoningFamily, *, is_open: bool, shape: StructuredSpec | None, budget: int | None
) -> ReasoningSpec | None:
    """What an engine needs to know to count a budget, and to have a shape begin behind the reasoning; None if nothing
    depends on that.

    Args:
        is_open: the prompt ends inside reasoning.
        shape: of the answer.
        budget: in tokens; None or -1: any number.

    Raises:
        InvalidRequestError: a budget for a model whose reasoning is not marked.
    """
    markers, limit = family.markers, -1 if budget is None else budget
    if markers is None:
        if limit != -1:
            problem = "this model's reasoning has no markers to count from; name its format with --reasoning-parser"
            raise InvalidRequestError("thinking_token_budget", budget, problem)
        return None
    if limit == -1 and shape is None:
        return None
    calls = shape is not None and shape.kind is StructuredKind.CALLS
    return ReasoningSpec(
        begins=_ids(tokenizer, markers.begins),
        ends=_ids(tokenizer, (markers.ends_before_calls if calls else ()) or markers.ends),
        is_open=is_open,
        reopens=markers.reopens,
        budget=limit,
        forced_end=_marker(tokenizer, family.forced_end),
    )


def _ids(tokenizer: TextCodec, texts: tuple[str, ...]) -> tuple[Marker, ...]:
    return tuple(_marker(tokenizer, text) for text in texts)


def _marker(tokenizer: TextCodec, text: str) -> Marker:
    return tuple(tokenizer.encode(text, add_special=False, parse_special=True))
