"""Chat templates: a conversation rendered into the text that a model was trained to continue."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateSyntaxError

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.text.template_budget import RenderBudget, TemplateLimitError, TemplateLimits
from octavo.text.template_filters import BUDGET, TemplateRefusedError
from octavo.text.template_sandbox import TemplateSandbox

MAX_SOURCE_CHARACTERS = 2**20
_RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt", "strftime_now", BUDGET))


class ChatTemplate:
    """One compiled template. Rendering is pure but for the clock, and safe from several threads.

    The dialect is Hugging Face's: trimmed blocks, `break` and `continue`, the `generation` tag,
    `raise_exception`, `strftime_now`, `tojson` without HTML escapes. The source is hostile until proven
    otherwise: it runs in an immutable sandbox and within TemplateLimits.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        origin: str = "chat template",
        limits: TemplateLimits | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """
        Args:
            source: the template.
            bos_token: what `{{ bos_token }}` prints.
            eos_token: what `{{ eos_token }}` prints.
            origin: where the source comes from (a metadata key, a file), for error messages.
            limits: of each rendering.
            clock: local time for `strftime_now`, where a rendering is not given one.

        Raises:
            ModelFileError: the source is no template of this dialect; the message names origin, line and
                fault.
        """
        self.source = source
        self._template = _compile(source, origin)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._limits = limits or TemplateLimits()
        self._clock = clock

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of a conversation.

        Args:
            messages: as the template expects them; most want `flatten_messages` applied first.
            tools: tool definitions, or None.
            documents: documents to answer from, or None.
            add_generation_prompt: end with the opening of the assistant's turn.
            now: local time for `strftime_now`; the clock's if None.
            variables: further variables of the template, such as `enable_thinking`.

        Raises:
            InvalidRequestError: the template refuses the conversation, fails on it, or costs too much on it.
        """
        given = dict(variables or {})
        for name in given.keys() & _RESERVED:
            raise InvalidRequestError("chat_template_kwargs", name, "this name is the template's own; leave it out")
        moment = now or self._clock()
        values = {
            **self._tokens,
            **given,
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": moment.strftime,
            BUDGET: RenderBudget(self._limits),
        }
        try:
            return self._rendered(values)
        except Exception as error:  # a template can raise anything, and it is always this conversation that failed
            raise InvalidRequestError("messages", _roles(messages), _problem(error)) from error

    def _rendered(self, values: dict[str, Any]) -> str:
        pieces, room = [], self._limits.max_characters
        for piece in self._template.generate(values):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise TemplateLimitError(f"its result has more than {self._limits.max_characters} characters")
        return "".join(pieces)


def _compile(source: str, origin: str) -> Template:
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise ModelFileError(f"{origin}: {len(source)} characters; at most {MAX_SOURCE_CHARACTERS} are supported")
    try:
        return TemplateSandbox().from_string(source)
    except TemplateSyntaxError as error:
        raise ModelFileError(f"{origin}: line {error.lineno}: {error.message}") from error
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ModelFileError(f"{origin}: too deeply nested to compile: {error}") from error


def _roles(messages: Sequence[Mapping[str, Any]]) -> list[object]:
    """What an error shows of a conversation."""
    return [message.get("role") if isinstance(message, Mapping) else message for message in messages[:8]]


def _problem(error: Exception) -> str:
    if isinstance(error, TemplateRefusedError):
        return f"the chat template refuses this conversation: {error}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    place = f" at line {lines[-1]}" if lines else ""
    return f"the chat template fails on this conversation{place}: {str(error) or type(error).__name__}"
