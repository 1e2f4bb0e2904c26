"""Harmony, the format of gpt-oss: messages on channels.

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`; a header may also name a
recipient (`to=functions.NAME`), in front of the channel or behind it, and then the message is a call.

Source: https://github.com/openai/harmony, docs/format.md.
"""

import re

from octavo.server.reasoning.family import ReasoningMarkers
from octavo.server.reasoning.part import ReasoningPart
from octavo.server.tools.families.harmony import CALL, ENDS, MESSAGE
from octavo.server.tools.reader import MarkerSet, Parsing, Sink, TextReader

START, CHANNEL = "<|start|>", "<|channel|>"
_OPENERS = MarkerSet((START, CHANNEL))
_MESSAGE = MarkerSet((MESSAGE,))
_ENDS = MarkerSet((*ENDS, START, CHANNEL))
_RECIPIENT = re.compile(r"\bto=([^\s<>]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*([a-z]+)")


class HarmonyReasoning:
    """The family.

    `analysis` is reasoning, `final` is content, and so is `commentary` without a recipient (what the model tells the
    user before it calls). A header that is cut off is dropped: it is no text.
    """

    name = "harmony"
    forced_end = "<|end|><|start|>assistant<|channel|>final<|message|>"
    markers: ReasoningMarkers | None = ReasoningMarkers(
        begins=(f"{CHANNEL}analysis{MESSAGE}",),
        ends=(forced_end,),
        ends_before_calls=(f"<|end|>{START}assistant",),
        reopens=True,
    )

    def recognises(self, template: str) -> bool:
        """See ReasoningFamily."""
        return CHANNEL in template and MESSAGE in template

    def opened_by(self, prompt: str) -> str:
        """The answer always begins with a header."""
        return ""

    def separate(self, reader: TextReader, reasoning: ReasoningPart, content: Sink, opened: str) -> Parsing[None]:
        """See ReasoningFamily."""
        yield from reader.space()
        opener = yield from reader.accept("to=")
        thoughts, answer = _Messages(reasoning.add), _Messages(content)
        while opener or (opener := (yield from reader.until(_OPENERS, answer.pass_on))):
            header = [opener]
            if not (yield from reader.until(_MESSAGE, header.append)):
                return
            head = "".join(header)
            if _is_analysis(head):
                reasoning.begin(reader.position)
            opener = yield from _message(reader, head, thoughts if _is_analysis(head) else answer)
            reasoning.end(reader.position)


def _is_analysis(header: str) -> bool:
    channel = _CHANNEL_NAME.search(header)
    return channel is not None and channel[1] == "analysis" and _RECIPIENT.search(header) is None


def _message(reader: TextReader, header: str, messages: "_Messages") -> Parsing[str]:
    """Passes a message on; returns the opener of the next one if it follows without an end."""
    recipient = _RECIPIENT.search(header)
    if recipient is not None:
        return (yield from _call(reader, recipient[1], messages.pass_on))
    messages.begin()
    end = yield from reader.until(_ENDS, messages.pass_on)
    return end if end in (START, CHANNEL) else ""


def _call(reader: TextReader, recipient: str, sink: Sink) -> Parsing[str]:
    """Passes a call on, in the one order of its header that the tool family reads."""
    sink(f"{CALL}{recipient}{MESSAGE}")
    end = yield from reader.until(_ENDS, sink)
    if end in (START, CHANNEL):
        return end
    sink(end)
    return ""


class _Messages:
    """The messages of one kind, a line break between them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_text = False
        self._is_new = False

    def begin(self) -> None:
        """Another message."""
        self._is_new = self._has_text

    def pass_on(self, text: str) -> None:
        """More text."""
        if text:
            self._sink(f"\n{text}" if self._is_new else text)
            self._has_text, self._is_new = True, False
