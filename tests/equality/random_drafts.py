"""Drafts by chance: any number of them at any price, for requests that ask for anything at once."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo import LLM
from octavo.request.reasoning import ReasoningSpec
from octavo.request.repetition import RepetitionDetection
from octavo.scheduling.draft_counts import Candidate, PlannedDrafts
from tests.equality.random_settings import CHOICES
from tests.equality.settings import NOTHING_FORESEEN, Fields, Setting, Streamed, crowd
from tests.equality.transcript import Transcript, Transcripts
from tests.equality.workload import LIST, PERSON, STOPS, Request, Workload, greedy, regex, schema, shuffled

MOST_DRAFTS = 7
"""Of a request in a step."""
MAX_MODEL_LEN = 352
"""As much as the longest request needs."""


class RandomDraftCounts:
    """`DraftCounts` that plans anything. Prices are of any size, as the chances of small random models are small."""

    def __init__(self, seed: str, most_per_step: int) -> None:
        self.most_per_step = most_per_step
        self._chance = random.Random(seed)

    @property
    def is_curious(self) -> bool:
        """See `DraftCounts`."""
        return self._chance.random() < 0.5

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """See `DraftCounts`."""
        return self._chance.random() < 0.9

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> PlannedDrafts:
        """See `DraftCounts`."""
        counts = []
        for _, most in candidates:
            counts.append(self._chance.randint(0, min(most, budget, MOST_DRAFTS)))
            budget -= counts[-1]
        return PlannedDrafts(counts, self._chance.choice((0.0, 0.0, 1.0, *[10 ** -self._chance.uniform(0, 3)] * 4)))

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`."""
        assert num_planned >= max(1, num_drafted) and num_drafted >= num_right >= 0

    def measured(self, num_tokens: int, num_requests: int, num_drafts: int, seconds: float) -> None:
        """See `DraftCounts`."""
        assert num_tokens >= num_requests + num_drafts

    def forget(self, request_id: str) -> None:
        """See `DraftCounts`."""


# ---- requests

DETECTION = RepetitionDetection(max_pattern_size=3, min_count=2)
Options = dict[str, object]


def random_workload(seed: str, vocab_size: int, eos_ids: Sequence[int], count: int = 16) -> Workload:
    """Requests that share beginnings, and repeat themselves now and then; the same for the same seed."""
    chance = random.Random(seed)
    text = [chance.randrange(8, vocab_size) for _ in range(160)]
    return tuple(_random_request(f"{seed} {i}", chance, text, eos_ids[0]) for i in range(count))


def _random_request(name: str, chance: random.Random, text: Sequence[int], eos: int) -> Request:
    start = text[: chance.choice((1, 3, 16, 17, 31, 32, 48, 64, 65, 100, 160))]
    tail = [chance.choice(text) for _ in range(chance.choice((0, 1, 2, 9, 30)))] * chance.choice((1, 1, 3))
    options: Options = {}
    for choices in _options(chance, text, eos):
        options |= chance.choice(choices)
    return Request(name, (*start, *tail), greedy(chance.choice((1, 5, 20, 40, 60, 90)), **options))


def _options(chance: random.Random, text: Sequence[int], eos: int) -> list[list[Options]]:
    seed, near = chance.randrange(2**32), chance.sample(sorted(set(text)), 12)
    drawn: Options = {"temperature": chance.choice((0.3, 0.9, 1.6)), "seed": seed}
    reasoning = ReasoningSpec(
        ends=tuple((i,) for i in range(100, 160)), is_open=True, budget=chance.choice((-1, 4)), forced_end=(101, 102)
    )
    return [
        [{}, {}, {}, drawn, drawn, drawn | {"top_k": 5}, drawn | {"top_p": 0.6}, drawn | {"min_p": 0.05}],
        [{}, {}, {}, {"n": 2}, {"n": 3}],
        [{}, {}, {"repetition_penalty": 1.3}, {"presence_penalty": 0.7}, {"frequency_penalty": -0.6}],
        [
            {},
            {},
            {"stop": STOPS},
            {"stop": STOPS[4:], "include_stop_str_in_output": True},
            {"stop_token_ids": near[:3]},
        ],
        [{}, {}, {"min_tokens": 1}, {"ignore_eos": False}, {"repetition_detection": DETECTION}],
        [{}, {}, {}, {"bad_words_token_ids": ((near[0],), (near[1], near[2]))}, {"allowed_token_ids": tuple(near)}],
        [{}, {}, {"logit_bias": {near[0]: 4.0, near[1]: -100.0, eos: 5.0}}, {"logit_bias": dict.fromkeys(near, 9.0)}],
        [{}, {"logprobs": 0}, {"logprobs": 3}, {"logprobs": 1, "logprob_token_ids": tuple(sorted(near[:4]))}],
        [{}, {}, {}, {}, {"prompt_logprobs": 2}],
        [{}, {}, {}, {}, {}, {"structured_outputs": regex("[a-z ]{10,40}")}, {"structured_outputs": schema(PERSON)}],
        [{}, {}, {}, {}, {}, {"structured_outputs": schema(LIST)}, {"reasoning": reasoning}],
    ]


# ---- settings


@dataclass(frozen=True)
class Rounds:
    """All requests at once, again and again, over what the rounds before have left; all rounds are compared."""

    fields: Fields
    restarts: bool = False
    """Whether each round has an engine of its own; what is left lies on disk."""
    times: int = 2

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        seen: dict[str, Transcript] = {}
        for i in range(self.times if self.restarts else 1):
            with LLM(model, **{**fields, **self.fields}) as llm:
                for j in range(1 if self.restarts else self.times):
                    for name, transcript in crowd(llm, shuffled(workload) if (i + j) % 2 else workload).items():
                        if seen.setdefault(name, transcript) != transcript:
                            seen[name] += transcript
        return seen


def random_drafting(seed: str, count: int, folder: Path, *, num_groups: int = 1) -> Iterator[Setting]:
    """So many settings with pools that are small or large, and what is behind them for blocks without room.

    Args:
        folder: for what is kept on disk.
        num_groups: of blocks; a pool holds at least one request whole.
    """
    chance = random.Random(seed)
    for i in range(count):
        fields: dict[str, object] = {name: chance.choice(values) for name, values in CHOICES.items()}
        fields["max_model_len"] = MAX_MODEL_LEN
        if chance.random() < 0.6:
            num_tokens = chance.choice((1, 1, 1.3, 3)) * MAX_MODEL_LEN
            fields["num_kv_blocks"] = 2 + num_groups * int(num_tokens // int(str(fields["block_size"])) + 1)
            fields |= {**NOTHING_FORESEEN, "max_num_seqs": chance.choice((3, 8, 64))}
        yield _setting(chance, fields, folder / f"{seed} {i}")


def _setting(chance: random.Random, fields: dict[str, object], folder: Path) -> Setting:
    tiers: Sequence[Fields] = ({}, {}, {"kv_host_memory_bytes": 2**18}, {"kv_host_memory_bytes": 2**26})
    disk = {"kv_disk_path": str(folder), "kv_disk_size_bytes": 2**26}
    if not fields["enable_prefix_caching"]:
        return chance.choice((Rounds(fields), Streamed(fields)))
    fields |= chance.choice(tiers)
    return chance.choice(
        (Rounds(fields, times=3), Rounds(fields), Streamed(fields), Rounds(fields | disk, restarts=True))
    )
