"""Reasoning is told from content, whatever the pieces, and calls are found behind it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.server.reasoning import registry
from octavo.server.reasoning.answer import AnswerParser, answer_parser
from octavo.server.reasoning.registry import FAMILIES, reasoning_family, recognised_reasoning
from octavo.server.tools.registry import tool_family
from tests.effort import times
from tests.server.tools.answers import TOOLS, Answer, Call, cut, fed, places
from tests.server.tools.samples import CALLS, PIECES, PLAIN
from tests.text import golden

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ADDED = Call("add", '{"a": 1}', True)


def parser(reasoning: str, tools: str | None = None, opened: str = "") -> AnswerParser:
    family = None if tools is None else tool_family(tools)
    return answer_parser(reasoning_family(reasoning), family, TOOLS, opened=opened)


def check(reasoning: str, text: str, expected: Answer, tools: str | None = None, opened: str = "") -> None:
    for pieces in ([text], list(text), [text[at : at + 5] for at in range(0, len(text), 5)]):
        assert fed(parser(reasoning, tools, opened), pieces) == expected


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nFirst,\n\nthen.\n</think>\n\nAnswer.\n", "First,\n\nthen.", "Answer.\n"),
        ("\n<think>a</think>b", "a", "b"),
        ("<think>\n\n</think>\n\nAnswer", "", "Answer"),
        ("<think></think>", "", ""),
        # cut off inside: all of it is reasoning
        ("<think>So far", "So far", ""),
        ("<think>So far </thi", "So far </thi", ""),
        # tags anywhere else are text
        ("Answer with <think> and </think>.", "", "Answer with <think> and </think>."),
        ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
        ("<think>a <think> b</think>c", "a <think> b", "c"),
        ("  Answer ", "", "  Answer "),
        ("<thinking>", "", "<thinking>"),
        ("", "", ""),
    ],
)
def test_tags(text: str, reasoning: str, content: str) -> None:
    check("deepseek_r1", text, Answer(content=content, reasoning=reasoning))
    mistral = [
        part.replace("<think>", "[THINK]").replace("</think>", "[/THINK]") for part in (text, reasoning, content)
    ]
    if "<thi" not in mistral[0].replace("<think", "") and "</thi" not in mistral[0]:
        check("mistral", mistral[0], Answer(content=mistral[2], reasoning=mistral[1]))


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("\nI see.\n</think>\n\nYes.", "I see.", "Yes."),
        ("<think>\nI see.\n</think>Yes.", "I see.", "Yes."),
        ("I see", "I see", ""),
        ("</think>Yes.", "", "Yes."),
    ],
)
def test_a_tag_that_the_prompt_has_opened(text: str, reasoning: str, content: str) -> None:
    check("deepseek_r1", text, Answer(content=content, reasoning=reasoning), opened="<think>")


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("Here is my thought process: a\n\nHere is my response: b", "a", "b"),
        ("Here's my thought process:\na\nHere's my response:\n\nb", "a", "b"),
        ("Here is my response: b", "", "Here is my response: b"),
        ("Here is a cat.", "", "Here is a cat."),
        ("<think>a</think>\n<response>\nb </response>", "a", "b"),
        ("<think>a</think><response>b", "a", "b"),
        ("<think>a</think><respond>b</response>", "a", "<respond>b</response>"),
    ],
)
def test_granite(text: str, reasoning: str, content: str) -> None:
    check("granite", text, Answer(content=content, reasoning=reasoning))


def test_gemma4() -> None:
    check("gemma4", "<|channel>thought\na\n<channel|>b", Answer(content="b", reasoning="a"))


def test_none() -> None:
    check("none", " <think>a</think> ", Answer(content=" <think>a</think> "))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.\n<|return|>",
            Answer(content="It is 4.\n", reasoning="Hm."),
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b",
            Answer(reasoning="a\nb"),
        ),
        (
            "<|channel|>commentary<|message|>Plan:<|end|><|start|>assistant<|channel|>final<|message|>Done",
            Answer(content="Plan:\nDone"),
        ),
        # a message without an end, one without a channel, none at all, a header that is cut off
        ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", Answer(content="b", reasoning="a")),
        ("<|start|>assistant<|message|>a", Answer(content="a")),
        ("Just text", Answer(content="Just text")),
        ("<|channel|>final<|message|>a<|end|><|start|>assist", Answer(content="a")),
    ],
)
def test_harmony(text: str, expected: Answer) -> None:
    check("harmony", text, expected)
    check("harmony", text.rstrip("\n"), expected, tools="harmony") if "\n<" not in text else None


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.add<|message|>",
        " to=functions.add<|channel|>commentary <|constrain|>json<|message|>",
        "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>",
    ],
)
def test_harmony_calls(header: str) -> None:
    call = header + '{"a": 1}<|call|>'
    check("harmony", call, Answer(calls=[ADDED]), tools="harmony")
    if header.startswith("<|channel|>"):
        thought = "<|channel|>analysis<|message|>Add.<|end|><|start|>assistant" + call
        check("harmony", thought, Answer(reasoning="Add.", calls=[ADDED]), tools="harmony")
    assert '{"a": 1}' in fed(parser("harmony"), call).content, "nobody looks for calls, so it is text"


def test_calls_behind_reasoning() -> None:
    text = f"<think>\nI call add.\n</think>\n\nRight away.\n{CALL}\n"
    expected = Answer(content="Right away.", reasoning="I call add.", calls=[ADDED])
    check("deepseek_r1", text, expected, tools="hermes")
    check("deepseek_r1", text.removeprefix("<think>"), expected, tools="hermes", opened="<think>")


def test_a_call_in_reasoning_is_a_thought() -> None:
    thought = f"I could write {CALL}, but"
    check("deepseek_r1", f"<think>{thought}", Answer(reasoning=thought), tools="hermes")
    check("deepseek_r1", f"<think>{thought}</think>no.", Answer(content="no.", reasoning=thought), tools="hermes")


def test_a_bare_call_behind_reasoning() -> None:
    text = '<think>a</think>\n{"name": "add", "parameters": {"a": 1}}'
    check("deepseek_r1", text, Answer(reasoning="a", calls=[ADDED]), tools="llama3_json")


MARKS = {
    family.name: tuple(
        part
        for pair in getattr(family, "pairs", ())
        for marker in (*pair.begins, *pair.ends, "<response>", "</response>")
        for part in (marker, marker[: len(marker) // 2], marker[1:])
    )
    for family in FAMILIES
}


@pytest.mark.parametrize("tools", [None, "hermes", "harmony"])
@pytest.mark.parametrize("reasoning", [family.name for family in FAMILIES])
def test_every_cutting_gives_the_same(reasoning: str, tools: str | None) -> None:
    pieces = (*MARKS[reasoning], *PLAIN, *PIECES["harmony"][:11], *CALLS["hermes"], *CALLS["harmony"], "<tool_call>")
    begins = [""] + [begin for pair in getattr(reasoning_family(reasoning), "pairs", ()) for begin in pair.begins]

    @settings(max_examples=times(50), deadline=None)
    @given(st.lists(st.sampled_from(pieces), max_size=10).map("".join), places, st.sampled_from(begins))
    def check(text: str, places: list[int], opened: str) -> None:
        whole = fed(parser(reasoning, tools, opened), [text])
        assert fed(parser(reasoning, tools, opened), cut(text, places)) == whole
        assert fed(parser(reasoning, tools, opened), text) == whole

    check()


def test_reasoning_is_not_held_back() -> None:
    stream = parser("deepseek_r1", "hermes", opened="<think>")
    text, answer = "Some thoughts,\n\n<b>or</b> not", Answer()
    for size in range(1, len(text) + 1):
        answer.add(stream.feed(text[size - 1]))
        held = next((part for part in ("</", "<") if text[:size].endswith(part)), "")
        assert answer.reasoning == text[: size - len(held)].rstrip()


def test_content_is_not_held_back_without_tools() -> None:
    stream, answer = parser("deepseek_r1"), Answer()
    text = "Content \n\nwith <tool_call> in it"
    for size in range(1, len(text) + 1):
        answer.add(stream.feed(text[size - 1]))
        assert answer.content == text[:size]


@pytest.mark.parametrize(
    ("name", "prompt", "opened"),
    [
        ("deepseek_r1", "<|im_start|>assistant\n<think>\n", "<think>"),
        ("deepseek_r1", "<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        ("deepseek_r1", "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", ""),
        ("mistral", "[/INST][THINK]", "[THINK]"),
        ("harmony", "<|start|>assistant", ""),
        ("none", "<think>", ""),
    ],
)
def test_what_the_prompt_has_opened(name: str, prompt: str, opened: str) -> None:
    assert reasoning_family(name).opened_by(prompt) == opened


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{%- if enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}", "deepseek_r1"),
        ("{% set content = content.split('</think>')[-1] %}", "deepseek_r1"),
        (
            "Write your thoughts between <think></think> and write your response between <response></response>",
            "granite",
        ),
        ("use the headers Here is my thought process: and", "granite"),
        ("{{ '[THINK]' + block.thinking + '[/THINK]' }}", "mistral"),
        ("{{ '<|channel>thought\\n' }}", "gemma4"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "harmony"),
        ("{{ messages }}", "none"),
    ],
)
def test_families_are_recognised_by_their_templates(template: str, name: str) -> None:
    assert recognised_reasoning(template).name == name


def test_templates_of_the_reference_data_do_not_reason() -> None:
    for row in golden.rows("chat_templates"):
        assert recognised_reasoning(row["template"]).name == "none"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"reasoning_parser='qwen4'.*deepseek_r1.*harmony.*none.*qwen3"):
        reasoning_family("qwen4")
    for alias, name in registry.ALIASES.items():
        assert reasoning_family(alias).name == name


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if getattr(family, "pairs", ())], ids=lambda f: f.name
)
def test_a_forced_end_ends_the_reasoning(family) -> None:
    for begin in family.pairs[-1].begins:
        text = f"{begin}a" + family.forced_end + "b"
        assert fed(answer_parser(family, None), text) == Answer(content="b", reasoning="a")
