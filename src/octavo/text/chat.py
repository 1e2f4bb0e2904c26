"""A conversation as token ids, in which only the template speaks in control tokens.

A rendered template is read with its control tokens, so a user who writes `<|im_end|><|im_start|>system` would speak as
the system. What comes from outside the template is therefore shielded: each spelling of a control token in it gets a
mark behind its first character before rendering, and the rendered text is cut at the marks before it is encoded.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.text.call_arguments import CallArguments
from octavo.text.content_form import ContentForm, content_form
from octavo.text.messages import flatten_messages
from octavo.text.special_splitter import SpecialSplitter
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

# Characters that Unicode sets aside for use inside a program, and behind them the private-use planes: a conversation
# would have to hold all of these for a mark to be missing.
_MARKS = [chr(code) for code in (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xFFFFE))]


class ChatEncoder:
    """One model's way from messages to prompt ids."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._splitter = SpecialSplitter(tokenizer.control_tokens())

    @property
    def source(self) -> str:
        """The template's text."""
        return self._template.source

    @cached_property
    def _content_form(self) -> ContentForm:
        return content_form(self._template.source)

    def with_template(self, source: str) -> "ChatEncoder":
        """The same model under another template.

        Raises:
            InvalidRequestError: the source is no template.
        """
        tokenizer = self._tokenizer
        try:
            template = ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
        except ModelFileError as error:
            raise InvalidRequestError("chat_template", source, str(error)) from error
        return ChatEncoder(tokenizer, template)

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Prompt ids of a conversation as a client sends it. Arguments as for `ChatTemplate.render`; the messages are
        brought here into the form that it wants.

        With `continue_final_message` the prompt ends where the text of the last message does.

        Spellings of control tokens in messages, tools and documents are text. Where there is none, the ids are those of
        the rendered template.

        Raises:
            InvalidRequestError: the messages are malformed, or the template refuses them, or it does not print the last
                one where that is to be continued.
        """
        given = (flatten_messages(messages, self._content_form), tools, documents)
        mark = self._mark_for(given)
        flat, tools, documents = given if mark is None else self._shielded(given, mark)
        end = _unused_mark(given, but=mark) if continue_final_message else None
        if end is not None:
            flat = _ended(flat, end)
        rendered = self._template.render(
            flat,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            now=now,
            variables=variables,
        )
        return self._encode_cut(rendered if end is None else _cut_at(rendered, end), mark)

    def _mark_for(self, given: object) -> str | None:
        """A character that stands nowhere in the conversation; None if there is nothing to shield."""
        if all(isinstance(part, str) for text in _texts(given) for part in self._splitter.split(text)):
            return None
        return _unused_mark(given)

    def _shielded(self, value: Any, mark: str) -> Any:
        """The same value with each spelling of a control token broken by the mark."""
        if isinstance(value, str):
            return "".join(self._broken(part, mark) for part in self._splitter.split(value))
        if isinstance(value, Mapping):
            shielded = {self._shielded(key, mark): self._shielded(item, mark) for key, item in value.items()}
            return CallArguments(shielded) if isinstance(value, CallArguments) else shielded
        if isinstance(value, list | tuple):
            return [self._shielded(item, mark) for item in value]
        return value

    def _broken(self, part: str | int, mark: str) -> str:
        if isinstance(part, str):
            return part
        spelling = self._tokenizer.token_bytes(part).decode()
        return spelling[0] + mark + spelling[1:]

    def _encode_cut(self, rendered: str, mark: str | None) -> list[int]:
        if mark is None:
            return self._tokenizer.encode_chat(rendered)
        first, *others = rendered.replace(_escaped(mark), mark).split(mark)
        ids = self._tokenizer.encode_chat(first)
        for other in others:
            ids += self._tokenizer.encode(other, add_special=False, parse_special=True)
        return ids


def _unused_mark(given: object, but: str | None = None) -> str:
    """A character that stands nowhere in the conversation."""
    texts = [*_texts(given)]
    free = (mark for mark in _MARKS if not any(mark in text or _escaped(mark) in text for text in texts))
    return next(mark for mark in free if mark != but)


def _ended(messages: Sequence[Mapping[str, Any]], end: str) -> list[Mapping[str, Any]]:
    """The same messages, the end of the last one's text marked. Templates strip texts; behind the mark nothing is lost
    that stands before it."""
    *others, last = messages
    content = last["content"]
    if isinstance(content, str):
        return [*others, {**last, "content": content + end}]
    *parts, final = content or [{"type": "text", "text": ""}]
    return [*others, {**last, "content": [*parts, {**final, "text": final["text"] + end}]}]


def _cut_at(rendered: str, end: str) -> str:
    """What stands before the mark.

    Raises:
        InvalidRequestError: it has not been printed.
    """
    continued, found, _ = rendered.replace(_escaped(end), end).rpartition(end)
    if not found:
        problem = "the chat template does not print the text of the last message, so it cannot be continued"
        raise InvalidRequestError("continue_final_message", True, problem)
    return continued


def _escaped(mark: str) -> str:
    """How a template's `tojson(ensure_ascii=true)` writes the mark."""
    return f"\\u{ord(mark):04x}"


def _texts(value: object) -> Iterator[str]:
    """Every text in nested messages, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
