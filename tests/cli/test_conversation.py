"""A conversation at the terminal, with a scripted model."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from octavo.cli.chat import _converse
from octavo.cli.conversation import Conversation
from octavo.engine.llm import LLM
from octavo.engine.words import Words
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.params import SamplingParams
from octavo.text.chat import ChatEncoder
from octavo.text.template import ChatTemplate
from tests.engine.scripted import byte_tokenizer, says, scripted_llm

TEMPLATE = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}<a>"
PARAMS = SamplingParams(temperature=0, max_tokens=None)


def talking(llm: LLM, system: str = "") -> Conversation:
    """A conversation over a scripted engine, with a template of its own."""
    tokenizer = byte_tokenizer()
    llm._words = Words(tokenizer, ChatEncoder(tokenizer, ChatTemplate(TEMPLATE)), {})
    return Conversation(llm, PARAMS, system)


def recording(seen: list[str], answer: str) -> LLM:
    """A model that notes each prompt and says the same every time."""
    speak = says(answer)

    def script(token_ids: Sequence[int], num_prompt: int, params: SamplingParams) -> int:
        if len(token_ids) == num_prompt:
            seen.append(bytes(token_ids).decode())
        return speak(token_ids, num_prompt, params)

    return scripted_llm(script, num_blocks=80)


def test_answers_become_history_until_reset() -> None:
    seen: list[str] = []
    talk = talking(recording(seen, "yes"), system="be kind")
    assert "".join(talk.ask("one?")) == "yes"
    assert "".join(talk.ask("two?")) == "yes"
    talk.reset()
    assert "".join(talk.ask("three?")) == "yes"
    assert seen == ["<s>be kind<u>one?<a>", "<s>be kind<u>one?<a>yes<u>two?<a>", "<s>be kind<u>three?<a>"]


def test_a_broken_off_answer_is_forgotten() -> None:
    seen: list[str] = []
    talk = talking(recording(seen, "a long answer"))
    answer = talk.ask("one?")
    next(answer)
    answer.close()
    assert "".join(talk.ask("two?")) == "a long answer"
    assert seen[1] == "<u>two?<a>"


def test_stats() -> None:
    talk = talking(recording([], "yes"))
    assert talk.stats() == "no answer yet"
    list(talk.ask("hm?"))
    assert talk.stats().startswith("9 prompt tokens (0 cached), 4 answer tokens, first after ")


def test_stats_tell_of_drafts() -> None:
    talk = talking(recording([], "yes"))
    list(talk.ask("hm?"))
    assert talk._last is not None and "drafted" not in talk.stats()
    talk._last = msgspec.structs.replace(talk._last, num_drafts=2, num_draft_tokens=9, num_accepted_draft_tokens=7)
    assert talk.stats().endswith(", 7 of 9 drafted tokens right")


def test_a_failure_is_raised() -> None:
    talk = talking(scripted_llm(says("yes"), num_blocks=80, faults=lambda request_id, computed: "NaN"))
    with pytest.raises(RequestFailedError, match="NaN"):
        list(talk.ask("hm?"))


def test_a_full_context_says_so() -> None:
    talk = talking(recording([], "yes"))
    with pytest.raises(InvalidRequestError, match="256"):
        list(talk.ask("x" * 300))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Makes `input()` give these lines, then the end of input."""

    def type_in(lines: list[str]) -> None:
        waiting = iter(lines)

        def read(prompt: str) -> str:
            try:
                return next(waiting)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", read)

    return type_in


def test_the_terminal_loop(typed: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    talk = talking(recording(seen, "yes"))
    typed(["", "one?", "/stats", "/reset", "/nonsense", "x" * 300, "two?", "/quit", "never read"])
    _converse(talk)
    printed = capsys.readouterr()
    assert printed.out.count("yes\n") == 2
    assert "prompt tokens" in printed.out
    assert "unknown command. /reset forgets" in printed.out
    assert "(/reset starts over)" in printed.err
    assert seen == ["<u>one?<a>", "<u>two?<a>"]


def test_the_end_of_input_ends_the_loop(typed: Callable[[list[str]], None]) -> None:
    typed([])
    _converse(talking(recording([], "yes")))
