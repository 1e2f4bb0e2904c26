"""What the engine is told of a model's reasoning: its markers as token ids."""

from collections.abc import Sequence
from itertools import product

from octavo.errors import InvalidRequestError
from octavo.request.reasoning import Marker, ReasoningSpec
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.context import ServerContext
from octavo.server.conversation.rendering import prompt_end
from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.serving_engine import TextCodec

_FIELD = "thinking_token_budget"
_NEIGHBOURS = ("", "a", " ", "\n", ".", "\n\n")
"""What may stand around a marker; a tokenizer without a token of its own for it melts some of them into it."""


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
        InvalidRequestError: a budget for a model whose reasoning is not marked, or not so that tokens tell.
    """
    markers, limit = family.markers, -1 if budget is None else budget
    if markers is None:
        if limit != -1:
            problem = "this model's reasoning has no markers to count from; name its format with --reasoning-parser"
            raise InvalidRequestError("thinking_token_budget", budget, problem)
        return None
    if limit == -1 and shape is None:
        return None
    if limit != -1:
        _check_told_by_tokens(tokenizer, family, limit)
    calls = shape is not None and shape.kind is StructuredKind.CALLS
    return ReasoningSpec(
        begins=_ids(tokenizer, markers.begins),
        ends=_ids(tokenizer, (markers.ends_before_calls if calls else ()) or markers.ends),
        is_open=is_open,
        reopens=markers.reopens,
        budget=limit,
        forced_end=_marker(tokenizer, family.forced_end),
    )


def budget_of_prompts(
    server: ServerContext, prompts: Sequence[list[int]], *, shape: StructuredSpec | None, budget: int | None
) -> ReasoningSpec | None:
    """The same for texts that no template has made; all must end inside reasoning or all outside it.

    Raises:
        InvalidRequestError: they differ in that; or as of `reasoning_spec`.
    """
    engine, tokenizer = server.engine, server.engine.tokenizer
    if tokenizer is None:
        raise InvalidRequestError(_FIELD, budget, "this server runs without a tokenizer, so it knows no markers")
    family = server.dialects.of("" if engine.template is None else engine.template.source).reasoning
    opened = {bool(family.opened_by(prompt_end(tokenizer, token_ids))) for token_ids in prompts}
    if len(opened) > 1:
        problem = "some of the prompts end inside reasoning and some do not; send them one by one"
        raise InvalidRequestError(_FIELD, budget, problem)
    return reasoning_spec(tokenizer, family, is_open=opened.pop(), shape=shape, budget=budget)


def _check_told_by_tokens(tokenizer: TextCodec, family: ReasoningFamily, budget: int) -> None:
    """Refuses a budget where the engine could miss an end: it would then write another one into the answer."""
    markers = family.markers
    if markers is None or len(markers.begins) > 1:
        problem = f"models of the family {family.name!r} mark reasoning in more than one way, which tokens do not tell"
        raise InvalidRequestError(_FIELD, budget, problem)
    for text in (*markers.begins, *markers.ends):
        if not _is_told_anywhere(tokenizer, text):
            problem = f"this model's tokenizer has no token of its own for {text!r}, so tokens do not tell it"
            raise InvalidRequestError(_FIELD, budget, problem)


def _is_told_anywhere(tokenizer: TextCodec, text: str) -> bool:
    """Whether a marker has the same token ids whatever stands around it."""
    ids = list(_marker(tokenizer, text))
    around = [
        tokenizer.encode(before + text + behind, add_special=False, parse_special=True)
        for before, behind in product(_NEIGHBOURS, repeat=2)
    ]
    return all(any(each[at : at + len(ids)] == ids for at in range(len(each))) for each in around)


def _ids(tokenizer: TextCodec, texts: tuple[str, ...]) -> tuple[Marker, ...]:
    return tuple(_marker(tokenizer, text) for text in texts)


def _marker(tokenizer: TextCodec, text: str) -> Marker:
    return tuple(tokenizer.encode(text, add_special=False, parse_special=True))
