"""What every setting is compared with: the same requests alone."""

from dataclasses import dataclass
from functools import cached_property
from typing import get_args, get_type_hints

import pytest

from octavo import LLM
from octavo._native import resolve_isa
from octavo.config import EngineConfig, ExecutionConfig
from octavo.engine.words import load_words
from octavo.hub import resolve
from tests.equality.http import SeenAnswer
from tests.equality.settings import Alone, AloneUncached, Fields, Setting
from tests.equality.transcript import Answer, Transcripts, assert_same
from tests.equality.workload import Workload

INSTRUCTION_SETS: tuple[str, ...] = tuple(
    isa for isa in get_args(get_type_hints(ExecutionConfig)["isa"]) if isa != "auto"
)
"""Every kernel path there is (the first choice is `auto`), whether or not this processor has it."""


@dataclass(frozen=True)
class Baseline:
    """A workload on a model, answered one by one."""

    model: str
    fields: Fields
    """Of the engine, for the baseline and for all that is compared with it."""
    workload: Workload
    answers: dict[str, Answer]
    isa: str
    """What it ran on."""

    @classmethod
    def of(cls, model: str, fields: Fields, workload: Workload, alone: Alone | AloneUncached) -> "Baseline":
        """Runs the workload alone."""
        with LLM(model, **fields) as llm:
            isa = llm.info.isa
        return cls(model, fields, workload, alone.answers(model, fields, workload), isa)

    @cached_property
    def transcripts(self) -> Transcripts:
        """What must come out in every setting inside Python."""
        return {name: answer.transcript() for name, answer in self.answers.items()}

    @cached_property
    def seen_over_http(self) -> Transcripts:
        """What must be seen over HTTP."""
        tokenizer = load_words(EngineConfig.from_fields({"model": self.model}), resolve(self.model)).tokenizer
        assert tokenizer is not None
        return {
            request.name: SeenAnswer.of(self.answers[request.name], request.params, tokenizer.token_bytes).transcript()
            for request in self.workload
        }

    def check(self, setting: Setting) -> None:
        """Runs the workload in a setting; fails if anything comes out otherwise."""
        assert_same(self.transcripts, setting.run(self.model, self.fields, self.workload))


def need_isa(isa: str, other: str) -> None:
    """Skips a test that compares two instruction sets where there is nothing to compare."""
    if isa == other:
        pytest.skip(f"{isa} is what the baseline runs on")
    try:
        resolve_isa(isa)
    except ValueError:
        pytest.skip(f"this processor has no {isa}")
