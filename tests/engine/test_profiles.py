"""Profiles of real models: op times, equal tokens, files."""

import gzip
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, ProfileError
from tests.trace_format import CheckedTrace, checked

PROMPTS = ["The capital of France", "one two three four five six seven eight nine", "x"]
PARAMS = [SamplingParams(temperature=0.8, seed=7, max_tokens=6, ignore_eos=True)] * 3
SMALL = {"threads": 2, "max_model_len": 128, "num_kv_blocks": 100, "enable_prefix_caching": False}


def generated(llm: LLM) -> list[tuple[list[int], object]]:
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in llm.generate(PROMPTS, PARAMS)]


def profiled(llm: LLM) -> CheckedTrace:
    """A profile of the same generation, whose tokens must be the same."""
    plain = generated(llm)
    llm.start_profile()
    assert generated(llm) == plain
    trace = checked(llm.stop_profile().json)
    assert generated(llm) == plain
    return trace


@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "in background"])
def test_every_op_of_every_step_is_there_and_no_token_changes(tiny_model: str, ahead: bool) -> None:
    with LLM(tiny_model, async_scheduling=ahead, max_num_batched_tokens=16, speculation="off", **SMALL) as llm:
        trace = profiled(llm)
    assert len(set(trace.threads)) == (2 if ahead else 1)
    assert trace.about["steps"] == len(trace.steps) >= 6
    assert trace.about["requests"] == len(trace.requests()) == 3
    for step in trace.steps:
        assert [part.name for part in step.inside] == ["apply", "build batch", "forward", "sample"]
        (forward,) = [part for part in step.inside if part.name == "forward"]
        assert [op.event["args"].get("layer") for op in forward.inside if op.name == "attention"] == [0, 1]
        assert forward.inside[-1].name == "linear embed"
        assert step.event["args"]["tokens_out"] == forward.inside[-1].event["args"]["rows"]
    args = [step.event["args"] for step in trace.steps]
    assert sum(one["tokens_out"] for one in args) == 18
    prompt_tokens = sum(events[0]["args"]["prompt_tokens"] for events in trace.requests().values())
    assert sum(one["tokens"] for one in args) >= prompt_tokens + 15
    detail = next(op.event["args"]["detail"] for op in trace.ops if op.name == "linear q+k+v")
    assert detail.startswith("layers.0.attn.q ")
    assert len(trace.named("schedule")) == len(trace.named("update")) == len(trace.steps)


def test_guesses_of_a_draft_model_are_timed_apart(tiny_model: str) -> None:
    with LLM(tiny_model, speculation=f"draft:{tiny_model}", num_speculative_tokens=2, **SMALL) as llm:
        trace = profiled(llm)
    holders = {(part.name, op.event["cat"]) for step in trace.steps for part in step.inside for op in part.inside}
    assert {("forward", "op,model"), ("propose", "op,draft model"), ("follow", "op,draft model")} <= holders
    assert all(name == "forward" for name, category in holders if category == "op,model")
    assert sum(step.event["args"]["draft_tokens"] for step in trace.steps) > 0


def test_the_reference_executor_says_that_it_times_no_ops(tiny_model: str) -> None:
    with LLM(tiny_model, executor="reference", **SMALL) as llm:
        trace = profiled(llm)
    assert trace.ops == [] and len(trace.named("forward")) == len(trace.steps) > 0
    assert trace.about["op_times"].startswith("none: the executor 'reference' does not time its ops")


def test_a_cut_profile_holds_whole_steps(tiny_model: str) -> None:
    with LLM(tiny_model, **SMALL) as llm:
        llm.start_profile(max_events=150)
        generated(llm)
        trace = llm.stop_profile()
    assert trace.about["ended_by"] == "full" and trace.about["events"] <= 150
    assert all(part.inside for step in checked(trace.json).steps for part in step.inside if part.name == "forward")


def test_an_engine_with_a_trace_file_writes_it_at_its_end(tiny_model: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    with LLM(tiny_model, profile=str(file), **SMALL) as llm:
        generated(llm)
        with pytest.raises(ProfileError, match="profile 1 runs"):
            llm.start_profile()
        assert not file.exists()
    trace = checked(gzip.decompress(file.read_bytes()))
    assert trace.about["ended_by"] == "closed" and len(trace.requests()) == 3 and trace.ops


def test_profiles_go_into_the_folder_that_is_given(tiny_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    with LLM(tiny_model, profile=folder, **SMALL) as llm:
        llm.start_profile(max_steps=2)
        generated(llm)
        trace = llm.stop_profile()
    assert trace.path is not None and trace.path.parent == folder
    assert trace.path.read_bytes() == trace.json and len(checked(trace.json).steps) == 2
    assert [path.name for path in folder.iterdir()] == [trace.path.name]


def test_a_folder_that_has_gone_costs_the_file_and_not_the_trace(
    tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "traces"
    with LLM(tiny_model, profile=folder, **SMALL) as llm:
        folder.rmdir()
        llm.start_profile(max_steps=2)
        generated(llm)
        trace = llm.stop_profile()
    assert trace.path is None and len(checked(trace.json).steps) == 2
    assert "the trace cannot be written to" in caplog.text


def test_a_long_name_of_a_model_fits_into_that_of_a_file(tiny_model: str, tmp_path: Path) -> None:
    with LLM(tiny_model, profile=tmp_path, served_model_name=("m/" * 300,), **SMALL) as llm:
        llm.start_profile(max_steps=1)
        trace = llm.stop_profile()
    assert trace.path is not None and trace.path.exists()


def test_a_folder_in_the_place_of_the_file_is_told_at_start(tiny_model: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").mkdir()
    with pytest.raises(ConfigError, match=r"profile=.*is a folder"):
        LLM(tiny_model, profile=tmp_path / "trace.json", **SMALL)


@pytest.mark.parametrize("name", ["missing/trace.json", "missing/folder"])
def test_a_place_that_cannot_be_written_to_is_named_before_the_model_is_loaded(
    tiny_model: str, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"profile=.*missing.*: .*missing.* cannot be written to: No such file"):
        LLM(tiny_model, profile=tmp_path / name, **SMALL)
