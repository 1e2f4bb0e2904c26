"""Ids, one call at most, and what leaves when: nothing too early, nothing late."""

import pytest

from octavo.server.tools.events import AnswerEvent, ContentDelta, ToolCallArgumentsDelta, ToolCallEnd, ToolCallStart
from octavo.server.tools.family import tool_parser
from octavo.server.tools.parser import ToolParser
from octavo.server.tools.registry import tool_family
from tests.server.tools.answers import TOOLS, Answer, Call, fed
from tests.server.tools.samples import CALLS, PIECES

FAMILIES = sorted(PIECES)


def parser(family: str, parallel: bool = True) -> ToolParser:
    return tool_parser(tool_family(family), TOOLS, parallel=parallel, make_id=lambda index: f"call_{index}")


def test_events_of_a_call() -> None:
    stream = parser("hermes")
    events: list[AnswerEvent] = []
    for piece in ("Hi", " <tool_call>", '{"name": "add", "arg', 'uments": ', '{"a": ', "1}", "}</tool", "_call>\n"):
        events += stream.feed(piece)
    assert [*events, *stream.finish()] == [
        ContentDelta("Hi"),
        ToolCallStart(0, "call_0", "add"),
        ToolCallArgumentsDelta(0, '{"a": '),
        ToolCallArgumentsDelta(0, "1}"),
        ToolCallEnd(0, complete=True),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_the_callers(family: str) -> None:
    events = parser(family).feed("".join(CALLS[family]))
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert starts == [ToolCallStart(0, "call_0", "get_weather"), ToolCallStart(1, "call_1", "add")]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_call_at_most_where_parallel_calls_are_off(family: str) -> None:
    text = "".join(CALLS[family])
    answer = fed(parser(family, parallel=False), text)
    assert answer == Answer(calls=[Call("get_weather", '{"city": "Oslo"}', True)])


def emitted_after_each(stream: ToolParser, text: str) -> list[Answer]:
    """What is known after each character."""
    answers, answer = [], Answer()
    for char in text:
        answer.add(stream.feed(char))
        answers.append(Answer(answer.content, "", [Call(c.name, c.arguments, c.complete) for c in answer.calls]))
    return answers


@pytest.mark.parametrize("family", FAMILIES)
def test_ordinary_text_is_not_held_back(family: str) -> None:
    text = "Ordinary text (not a call), 3 > 2.\nNext line:\n\n - é 日本 😀"
    for size, answer in enumerate(emitted_after_each(parser(family), text), 1):
        assert answer.content == text[:size].rstrip()


@pytest.mark.parametrize(
    ("family", "marker"),
    [
        ("hermes", "<tool_call>"),
        ("granite", "<|tool_call|>"),
        ("mistral", "[TOOL_CALLS]"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜>"),
        ("qwen3_coder", "<function="),
        ("pythonic", "<|python_start|>"),
        ("gemma", "```tool_code"),
        ("functiongemma", "<start_function_call>"),
        ("harmony", "<|channel|>commentary to="),
    ],
)
def test_a_marker_is_held_back_exactly_as_long_as_it_may_be_one(family: str, marker: str) -> None:
    for size in range(1, len(marker)):
        stream = parser(family)
        before = f"a {marker[:size]}"
        assert Answer().add(stream.feed(before)).content == "a"
        other = "x" if marker[size] != "x" else "y"
        assert Answer().add(stream.feed(other)).content == f" {marker[:size]}{other}"


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", "<tool_call>x"),
        ("hermes", '<tool_call>{"name": 5'),
        ("hermes", '<tool_call>{"name": "a", "arguments": 5'),
        ("hermes", '{"c'),
        ("hermes", '{"name": "B'),
        ("hermes", '{"name": "get_weather", "ag'),
        ("hermes", "```json\n{]"),
        ("llama3_json", '{"name": "adx'),
        ("mistral", "[TOOL_CALLS] add x"),
        ("pythonic", "[s"),
        ("pythonic", "[add["),
        ("gemma", "```tool_code\nimport "),
        ("functiongemma", "<start_function_call>r"),
        ("qwen3_coder", "<tool_call>\n<functions"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜>x"),
    ],
)
def test_what_can_be_no_call_leaves_at_its_first_wrong_character(family: str, text: str) -> None:
    known = emitted_after_each(parser(family), text)
    assert [answer.content for answer in known[:-1]] == [""] * (len(text) - 1)
    visible = len(text.rstrip())
    assert known[-1].content == text[:visible]


@pytest.mark.parametrize(
    "family", ["hermes", "llama3_json", "granite", "mistral", "deepseek_v3", "deepseek_v31", "harmony"]
)
def test_json_arguments_are_not_held_back(family: str) -> None:
    """From the bracket on every character leaves as it comes, and the call ends with its last one."""
    text = CALLS[family][0]
    begin = text.index('{"city"')
    arguments = '{"city": "Oslo"}'
    known = emitted_after_each(parser(family), text)
    assert known[begin - 1].calls == []
    for size in range(1, len(arguments) + 1):
        expected = Call("get_weather", arguments[:size], True if size == len(arguments) else None)
        assert known[begin + size - 1].calls == [expected]


def test_strings_of_other_syntaxes_are_not_held_back() -> None:
    for family, head in (
        ("qwen3_coder", "<function=get_weather>\n<parameter=city>\n"),
        ("pythonic", '[get_weather(city="'),
        ("functiongemma", "<start_function_call>call:get_weather{city:<escape>"),
    ):
        stream = parser(family)
        answer = Answer().add(stream.feed(head))
        for char in "a long text":
            answer.add(stream.feed(char))
            assert answer.calls[0].arguments.endswith(char), family
