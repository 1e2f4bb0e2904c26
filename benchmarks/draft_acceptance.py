"""How many drafts of each proposer would have been right: greedy answers are made once without drafts, then replayed.

Usage: python benchmarks/draft_acceptance.py [--model NAME ...] [--max-tokens 320] [--json FILE]

Numbers are tokens per step, 1 + drafts accepted, for at most 2, 4, 8 and 16 drafts: what speculation would gain if a
step with drafts took as long as one without. In brackets: drafts run per token gained, for 16. No time is measured.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draft_workloads import WORKLOADS, Workload

from octavo import LLM, SamplingParams
from octavo.decoding.speculation.chains import BestDraft, FirstDraft
from octavo.decoding.speculation.grammar import GrammarProposer
from octavo.decoding.speculation.ngram import NgramProposer
from octavo.decoding.speculation.proposer import Proposer
from octavo.decoding.speculation.shared_texts import SharedSuffixProposer
from octavo.decoding.speculation.suffix import SuffixProposer
from octavo.decoding.structured.backend import CompiledGrammar
from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend
from octavo.decoding.structured.vocabulary import grammar_vocabulary
from octavo.execution.loader.gguf import open_gguf
from octavo.hub import find_cached
from octavo.text.tokenizer import from_gguf

DRAFT_COUNTS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Answer:
    """One greedy answer."""

    workload: Workload
    prompt: list[int]
    output: list[int]
    grammar: CompiledGrammar | None
    eos_ids: tuple[int, ...]


@dataclass
class Known:
    """A request as proposers see it."""

    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    tenant: str = ""
    cache_salt: str | None = None


class Shape:
    """The grammar of the answer that is being replayed."""

    def __init__(self, answer: Answer) -> None:
        self._matcher = None if answer.grammar is None else answer.grammar.matcher(answer.eos_ids)

    def forced_tokens(self, slot: int) -> list[int]:
        return [] if self._matcher is None else self._matcher.forced_tokens()

    def allowed(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The drafts up to the first that the grammar forbids, as the sampler of guided answers cuts them."""
        if self._matcher is None:
            return token_ids
        probe = self._matcher.clone()
        return list(itertools.takewhile(probe.accept, token_ids))

    def follow(self, token_ids: Sequence[int]) -> None:
        if self._matcher is not None and not all(self._matcher.accept(token_id) for token_id in token_ids):
            raise SystemExit("an answer is not of its shape")


PROPOSERS: dict[str, Callable[[Shape], Proposer]] = {
    "ngram 1..3": lambda shape: NgramProposer(1, 3),
    "ngram 2..5": lambda shape: NgramProposer(2, 5),
    "ngram 3..8": lambda shape: NgramProposer(3, 8),
    "suffix, chance 0.05": lambda shape: SuffixProposer(0.05),
    "suffix, chance 0.1": lambda shape: SuffixProposer(0.1),
    "suffix, chance 0.2": lambda shape: SuffixProposer(0.2),
    "suffix, chance 0.35": lambda shape: SuffixProposer(0.35),
    "suffix, chance 0.5": lambda shape: SuffixProposer(0.5),
    "grammar": GrammarProposer,
    "best of grammar, ngram": lambda shape: BestDraft((GrammarProposer(shape), NgramProposer())),
    "first of grammar, suffix": lambda shape: FirstDraft((GrammarProposer(shape), SuffixProposer())),
    "best of grammar, suffix": lambda shape: BestDraft((GrammarProposer(shape), SuffixProposer())),
}


@dataclass
class Tally:
    """Of some replays."""

    steps: int = 0
    tokens: int = 0
    drafts: int = 0

    def add(self, other: "Tally") -> None:
        self.steps += other.steps
        self.tokens += other.tokens
        self.drafts += other.drafts

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / max(1, self.steps)

    @property
    def drafts_per_gain(self) -> float:
        return self.drafts / max(1, self.tokens - self.steps)


def replay(proposer: Proposer, shape: Shape, answer: Answer, most: int) -> Tally:
    """Steps of one answer, from its first token on, which the prompt's own step yields."""
    output, tally = answer.output, Tally()
    proposer.add(0, Known(list(answer.prompt), len(answer.prompt), SamplingParams()))
    known = 0
    while known < len(output):
        room = min(most, len(output) - known - 1) if known else 0
        draft = shape.allowed(proposer.propose((0,), (room,))[0].token_ids) if room else ()
        right = next((i for i, token in enumerate(draft) if token != output[known + i]), len(draft))
        new = output[known : known + right + 1]
        proposer.extend(0, new)
        shape.follow(new)
        if known:
            tally.add(Tally(1, len(new), len(draft)))
        known += len(new)
    proposer.remove(0)
    return tally


def answers_of(model: str, max_tokens: int) -> list[Answer]:
    """Greedy answers to all questions, made without drafts."""
    path = find_cached(model)
    if path is None:
        raise SystemExit(f"{model} is not here: octavo pull {model}")
    tokenizer = from_gguf(dict(open_gguf([path]).metadata))
    backend = LLGuidanceBackend(grammar_vocabulary(tokenizer))
    answers = []
    with LLM(model, max_model_len=4096, speculation="off") as llm:
        for workload in WORKLOADS:
            spec = workload.spec()
            params = SamplingParams(temperature=0, max_tokens=max_tokens, structured_outputs=spec)
            prompts = [llm.render_chat([{"role": "user", "content": text}]) for text in workload.questions]
            for prompt, made in zip(prompts, llm.generate(prompts, params), strict=True):
                grammar = None if spec is None else backend.compile(spec)
                output = list(made.outputs[0].token_ids)
                answers.append(Answer(workload, prompt, output, grammar, tuple(tokenizer.eos_ids)))
    return answers


def study(answers: Sequence[Answer]) -> dict[str, dict[str, dict[int, Tally]]]:
    """Proposer -> workload -> most drafts -> what came of it."""
    result: dict[str, dict[str, dict[int, Tally]]] = {}
    for name, make in PROPOSERS.items():
        by_workload = result[name] = {w.name: {most: Tally() for most in DRAFT_COUNTS} for w in WORKLOADS}
        for answer in answers:
            for most, tally in by_workload[answer.workload.name].items():
                shape = Shape(answer)
                tally.add(replay(make(shape), shape, answer, most))
    result["shared, asked again"] = asked_again(answers)
    return result


def asked_again(answers: Sequence[Answer]) -> dict[str, dict[int, Tally]]:
    """The shared automaton where all answers have been given before, on the way back through them."""
    by_workload = {w.name: {most: Tally() for most in DRAFT_COUNTS} for w in WORKLOADS}
    for most in DRAFT_COUNTS:
        proposer = SharedSuffixProposer()
        for answer in answers:
            replay(proposer, Shape(answer), answer, most)
        for answer in answers:
            by_workload[answer.workload.name][most].add(replay(proposer, Shape(answer), answer, most))
    return by_workload


def table(result: dict[str, dict[str, dict[int, Tally]]]) -> str:
    """Markdown: per workload, tokens per step for each K, and drafts per token gained for the last."""
    lines = ["| proposer | " + " | ".join(w.name for w in WORKLOADS) + " |", "|---" * (1 + len(WORKLOADS)) + "|"]
    for name, by_workload in result.items():
        cells = [
            " ".join(f"{tally.tokens_per_step:.2f}" for tally in by_workload[w.name].values())
            + f" ({by_workload[w.name][DRAFT_COUNTS[-1]].drafts_per_gain:.1f})"
            for w in WORKLOADS
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_json(result: dict[str, dict[str, dict[int, Tally]]]) -> object:
    return {
        name: {work: {str(most): vars(tally) for most, tally in by.items()} for work, by in by_workload.items()}
        for name, by_workload in result.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["qwen2.5-coder-0.5b", "smollm2-135m"])
    parser.add_argument("--max-tokens", type=int, default=320)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    for model in options.model:
        answers = answers_of(model, options.max_tokens)
        result = study(answers)
        lengths = ", ".join(f"{answer.workload.name} {len(answer.output)}" for answer in answers)
        print(f"{model}; tokens of the answers: {lengths}\n\n{table(result)}\n", flush=True)
        results[model] = as_json(result)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
