"""The Python API over real scheduling and text handling, with scripted tokens."""

import numpy as np
import pytest

from octavo import SamplingParams
from octavo.config import EngineConfig
from octavo.errors import ConfigError, InvalidRequestError
from octavo.request.outputs import FinishReason
from octavo.request.repetition import RepetitionDetection
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.engine.scripted import EOS, says, scripted_llm


def greedy(**params: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 64, **params})  # type: ignore[arg-type]


def test_an_answer_ends_at_end_of_text_without_spelling_it() -> None:
    (output,) = scripted_llm(says("Paris.")).generate("capital?", greedy())
    (choice,) = output.outputs
    assert choice.text == "Paris."
    assert choice.token_ids == (*b"Paris.", EOS)
    assert (choice.finish_reason, choice.stop_reason) == (FinishReason.STOP, None)
    assert output.prompt_token_ids == tuple(b"capital?")


def test_length_ends_an_answer() -> None:
    (output,) = scripted_llm(says("Paris.")).generate("capital?", greedy(max_tokens=3))
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("Par", FinishReason.LENGTH)


def test_end_of_text_on_the_last_allowed_token_is_a_stop() -> None:
    (output,) = scripted_llm(says("Paris.")).generate("capital?", greedy(max_tokens=7))
    assert output.outputs[0].finish_reason is FinishReason.STOP


@pytest.mark.parametrize(("include", "text"), [(False, "The "), (True, "The END")])
def test_a_stop_string_ends_text_ids_and_usage_at_the_token_that_completes_it(include: bool, text: str) -> None:
    llm = scripted_llm(says("The END and more"))
    (output,) = llm.generate("x", greedy(stop=("END",), include_stop_str_in_output=include))
    (choice,) = output.outputs
    assert choice.text == text
    assert choice.token_ids == tuple(b"The END")
    assert (choice.finish_reason, choice.stop_reason) == (FinishReason.STOP, "END")
    assert llm.load().num_running == 0


def test_a_stop_token_gives_its_id_as_the_reason() -> None:
    (output,) = scripted_llm(says("ab|cd")).generate("x", greedy(stop_token_ids=(ord("|"),)))
    (choice,) = output.outputs
    assert (choice.text, choice.stop_reason) == ("ab", ord("|"))


def test_ignore_eos_runs_to_the_length() -> None:
    (output,) = scripted_llm(says("ab")).generate("x", greedy(ignore_eos=True, max_tokens=5))
    assert output.outputs[0].token_ids == (*b"ab", EOS, EOS, EOS)
    assert output.outputs[0].text == "ab"


def test_streamed_deltas_concatenate_to_the_whole_and_never_split_a_character() -> None:
    text = "naïve 日本語 😀 done"
    llm = scripted_llm(says(text))
    deltas = [delta.choice.text for delta in llm.stream("x", greedy())]
    assert "".join(deltas) == text == llm.generate("x", greedy())[0].outputs[0].text
    assert all("\ufffd" not in delta for delta in deltas)
    assert all(deltas[:-1])  # nothing empty but possibly the last


def test_leaving_a_stream_early_frees_everything() -> None:
    llm = scripted_llm(says("a long answer"))
    stream = llm.stream("x", greedy())
    assert next(stream).choice.text == "a"
    stream.close()
    load = llm.load()
    assert (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)


def test_outputs_stand_in_the_order_of_prompts_and_a_batch_equals_alone() -> None:
    prompts = [f"prompt {i} {'x' * (i * 7 % 23)}" for i in range(20)]
    params = SamplingParams(temperature=1, seed=7, max_tokens=12, ignore_eos=True)
    together = scripted_llm(num_blocks=40, max_num_seqs=8).generate(prompts, params)
    alone = [scripted_llm().generate(prompt, params)[0] for prompt in prompts]
    assert [o.prompt for o in together] == prompts
    assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in alone]


def test_more_prompts_than_the_queue_holds_are_fed_as_it_empties() -> None:
    llm = scripted_llm(says("ok"), max_num_queued_reqs=2, max_num_seqs=2)
    outputs = llm.generate(["p"] * 30, greedy())
    assert [o.outputs[0].text for o in outputs] == ["ok"] * 30


def test_choices_of_n_differ_and_choice_0_equals_n_of_1() -> None:
    params = SamplingParams(temperature=1, seed=3, max_tokens=8, ignore_eos=True)
    one = scripted_llm().generate("x", params)[0].outputs
    three = scripted_llm().generate("x", params.replace(n=3))[0].outputs
    assert three[0].token_ids == one[0].token_ids
    assert len({choice.token_ids for choice in three}) == 3
    assert [choice.index for choice in three] == [0, 1, 2]


def test_a_fault_of_one_request_never_touches_another() -> None:
    def faults(request_id: str, num_computed: int) -> str | None:
        return "broken cell" if request_id == "local-1" and num_computed > 6 else None

    prompts = ["first", "second", "third"]
    outputs = scripted_llm(says("fine"), faults=faults).generate(prompts, greedy())
    reasons = [o.outputs[0].finish_reason for o in outputs]
    assert reasons == [FinishReason.STOP, FinishReason.ERROR, FinishReason.STOP]
    assert outputs[1].outputs[0].error == "broken cell"
    assert [outputs[i].outputs[0].text for i in (0, 2)] == ["fine", "fine"]


def test_the_ledger_accounts_for_every_token() -> None:
    llm = scripted_llm(says("abc"))
    llm.generate("0123456789", greedy())
    (stats,) = llm.generate("0123456789", greedy())[0].ledger
    assert stats is not None
    assert stats.num_prompt_tokens == 10
    assert stats.num_output_tokens == 4
    assert stats.num_cached_tokens == 9
    assert stats.num_computed_tokens == 10 + 3 - 9
    assert stats.num_steps == 4
    assert stats.arrival_s < (stats.first_scheduled_s or 0) < (stats.first_token_s or 0) < (stats.finished_s or 0)


def test_logprobs_follow_the_tokens_that_count() -> None:
    (output,) = scripted_llm(says("The END and more")).generate("x", greedy(stop=("END",), logprobs=2))
    (choice,) = output.outputs
    assert choice.logprobs is not None
    assert [row.token_ids[0] for row in choice.logprobs] == list(choice.token_ids)


def test_prompt_logprobs_have_one_entry_per_prompt_token() -> None:
    (output,) = scripted_llm(says("ok")).generate("hello", greedy(prompt_logprobs=1))
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [row.token_ids[0] for row in output.prompt_logprobs[1:] if row] == list(b"ello")


@pytest.mark.parametrize(
    ("prompt", "params", "field"),
    [
        ("", {}, "prompt"),
        ([], {}, "prompt"),
        ([257], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([True], {}, "prompt"),
        ("x" * 256, {}, "prompt"),
        ("x" * 200, {"max_tokens": 57}, "max_tokens"),
        ("x", {"logit_bias": {257: 1.0}}, "logit_bias"),
        ("x", {"stop_token_ids": (-1,)}, "stop_token_ids"),
        ("x", {"logprobs": 21}, "logprobs"),
        (b"bytes", {}, "prompt"),
        (None, {}, "prompt"),
        ([None], {}, "prompt"),
        ("x", {"allowed_token_ids": (5,), "stop_token_ids": (5,), "min_tokens": 1}, "allowed_token_ids"),
        ("x", {"allowed_token_ids": (ord("a"), EOS), "bad_words": ("a",), "min_tokens": 1}, "allowed_token_ids"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(prompt: object, params: dict[str, object], field: str) -> None:
    llm = scripted_llm(says("ok"))
    with pytest.raises(InvalidRequestError) as caught:
        llm.generate([prompt], greedy(**params))  # type: ignore[list-item]
    assert caught.value.field == field


def test_max_tokens_none_is_the_rest_of_the_context() -> None:
    (output,) = scripted_llm(says("a" * 500), num_blocks=80).generate("x" * 200, greedy(max_tokens=None))
    assert len(output.outputs[0].token_ids) == 56
    assert output.outputs[0].finish_reason is FinishReason.LENGTH


def test_generations_of_one_llm_may_interleave() -> None:
    llm = scripted_llm(says("one two three"), num_blocks=64)
    first = llm.stream("a", greedy())
    second = llm.stream("b", greedy(stop=("two",)))
    texts = [next(first).choice.text, next(second).choice.text]
    (whole,) = llm.generate("c", greedy())
    texts[1] += "".join(delta.choice.text for delta in second)
    texts[0] += "".join(delta.choice.text for delta in first)
    assert [*texts, whole.outputs[0].text] == ["one two three", "one ", "one two three"]
    assert (llm.load().num_running, llm.load().num_free_blocks) == (0, llm.load().num_blocks)


def test_a_stream_left_while_another_rests_takes_nothing_along() -> None:
    llm = scripted_llm(says("one two three"), num_blocks=64)
    resting, left = llm.stream("a", greedy()), llm.stream("b", greedy())
    text = next(resting).choice.text
    for _ in range(3):
        next(left)
    left.close()  # type: ignore[attr-defined]
    assert text + "".join(delta.choice.text for delta in resting) == "one two three"
    assert (llm.load().num_running, llm.load().num_free_blocks) == (0, llm.load().num_blocks)


def test_blanks_can_be_bad_words() -> None:
    (output,) = scripted_llm(says("ok")).generate("x", greedy(bad_words=(" ", "\n")))
    assert output.outputs[0].text == "ok"


def test_token_ids_may_be_numpy_integers() -> None:
    ids = np.frombuffer(b"capital?", np.uint8)
    one, many = scripted_llm(says("a")).generate(ids, greedy()), scripted_llm(says("a")).generate([ids], greedy())  # type: ignore[arg-type]
    assert one[0].prompt_token_ids == many[0].prompt_token_ids == tuple(b"capital?")


@pytest.mark.parametrize("prompts", [None, 7, b"text"])
def test_prompts_of_another_kind_are_refused(prompts: object) -> None:
    with pytest.raises(InvalidRequestError, match="prompts="):
        scripted_llm(says("a")).generate(prompts)  # type: ignore[arg-type]


def test_parameters_of_another_kind_are_refused() -> None:
    for wrong in ({"temperature": 0}, [{"temperature": 0}]):
        with pytest.raises(InvalidRequestError, match="must be SamplingParams"):
            scripted_llm(says("a")).generate("x", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("threads", "2"), ("max_model_len", 1.5), ("isa", "x"), ("model", 5)])
def test_settings_of_another_type_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        EngineConfig.from_fields({name: value})


def test_an_answer_of_a_given_shape_is_refused_by_the_field_that_asks_for_it() -> None:
    spec = StructuredSpec(kind=StructuredKind.JSON_OBJECT, field="response_format")
    (output,) = scripted_llm(says("x")).generate("x", greedy(structured_outputs=spec))
    assert output.outputs[0].finish_reason is FinishReason.ERROR
    assert (output.outputs[0].error or "").startswith("response_format: this engine has no tokenizer")


def test_an_answer_that_repeats_itself_is_ended_and_says_so() -> None:
    detection = RepetitionDetection(min_pattern_size=3, max_pattern_size=4, min_count=3)
    with scripted_llm(says("well, " + "ha ha " * 20)) as llm:
        (output,) = llm.generate("hm", SamplingParams(max_tokens=100, repetition_detection=detection))
    answer = output.outputs[0]
    assert (answer.text, answer.finish_reason) == ("well, ha ha ha", FinishReason.REPETITION)
    assert answer.stop_reason == "repetition_detected"
