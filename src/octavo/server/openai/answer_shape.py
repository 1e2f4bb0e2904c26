"""What shape an answer must have, in all the spellings that there are for it."""

from octavo.errors import InvalidRequestError
from octavo.request.structured import StructuredSpec
from octavo.server.openai.generation_body import GenerationBody
from octavo.server.openai.response_format import StructuredOutputs


def answer_shape(body: GenerationBody) -> StructuredSpec | None:
    """The shape that a request asks for, in whichever of its fields.

    Raises:
        InvalidRequestError: more than one field asks for a shape, or one does it wrongly.
    """
    asked = [spec for spec in (_response_format(body), _structured_outputs(body), *_guided(body)) if spec is not None]
    if len(asked) > 1:
        problem = f"an answer has one shape, but {asked[0].field} asks for one, too"
        raise InvalidRequestError(asked[1].field, str(asked[1].kind), problem)
    return asked[0] if asked else None


def _response_format(body: GenerationBody) -> StructuredSpec | None:
    return None if body.response_format is None else body.response_format.spec()


def _structured_outputs(body: GenerationBody) -> StructuredSpec | None:
    return None if body.structured_outputs is None else body.structured_outputs.spec()


def _guided(body: GenerationBody) -> list[StructuredSpec]:
    """vLLM's older fields."""
    given = {
        "guided_json": StructuredOutputs(json=body.guided_json),
        "guided_regex": StructuredOutputs(regex=body.guided_regex),
        "guided_choice": StructuredOutputs(choice=body.guided_choice),
        "guided_grammar": StructuredOutputs(grammar=body.guided_grammar),
    }
    return [shape.spec(field) for field, shape in given.items() if getattr(body, field) is not None]
