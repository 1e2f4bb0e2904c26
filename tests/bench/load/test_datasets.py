"""What is sent: lengths, shared parts, seeds, files and their faults."""

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from octavo.bench.load.datasets import Workload, make_workload
from octavo.bench.load.datasets.common_words import COMMON_WORDS
from octavo.bench.load.datasets.trace import BLOCK_TOKENS, TraceRow, read_trace
from octavo.bench.load.datasets.words import CommonWords, TokenWords, Words
from octavo.bench.load.dialogue import Turn
from octavo.bench.load.settings import LoadSettings
from octavo.bench.load.tokenizer import words_for
from octavo.errors import ConfigError
from tests.real_models import model_path

TRACES = Path(os.environ.get("OCTAVO_TRACES", Path(__file__).parents[4] / "shared" / "traces"))


class LetterPairs:
    """A tokenizer of words: ` xy` is one token, anything else one per character; it puts two tokens before a text."""

    vocab_size = 300

    def decode(self, token_ids: Sequence[int], *, continues: bool = False) -> str:
        return "".join(f" {chr(97 + token // 26 % 26)}{chr(97 + token % 26)}" for token in token_ids)

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        ids = [1 for word in text.split() for _ in range(1 if len(word) == 2 else len(word))]
        return [0, 0, *ids] if add_special else ids


def workload(words: Words | None = None, warm_ups: int = 0, **fields: Any) -> Workload:
    return make_workload(LoadSettings.from_fields(fields).data, words or CommonWords(), warm_ups)


def turns(made: Workload) -> list[Turn]:
    return [turn for dialogue in made.measured for turn in dialogue.turns]


def file(folder: Path, text: str) -> str:
    path = folder / "data"
    path.write_text(text)
    return str(path)


def test_common_words_are_words() -> None:
    assert len(set(COMMON_WORDS)) == len(COMMON_WORDS) > 400
    assert all(word.isalpha() and word.islower() for word in COMMON_WORDS)


@pytest.mark.parametrize("special", [True, False])
def test_lengths_are_those_that_the_server_counts(special: bool) -> None:
    encoder = LetterPairs()
    made = workload(TokenWords(encoder, special), num_prompts=30, input_len=20, range_ratio=0.5, output_len=10)
    counted = [len(encoder.encode(str(turn.prompt), add_special=special)) for turn in turns(made)]
    assert counted == [turn.input_len for turn in turns(made)]
    assert set(counted) <= set(range(10, 31))
    assert len(set(counted)) > 8
    assert {turn.output_len for turn in turns(made)} <= set(range(5, 16))


def test_equal_seeds_give_equal_prompts() -> None:
    first, again, other = (workload(num_prompts=5, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.measured[0] == workload(num_prompts=1, seed=1).measured[0]
    assert turns(first)[0].output_len == 128
    assert len({turn.prompt for turn in turns(first)}) == 5


def test_warm_ups_are_others() -> None:
    made = workload(num_prompts=3, warm_ups=2)
    assert (len(made.measured), len(made.warm_up), made.num_requests) == (3, 2, 3)
    assert not {turn.prompt for turn in turns(made)} & {dialogue.turns[0].prompt for dialogue in made.warm_up}


def test_prefixes_are_shared_by_turns() -> None:
    made = workload(dataset="prefix", num_prompts=6, prefix_len=8, num_prefixes=2, input_len=4)
    split = [str(turn.prompt).split() for turn in turns(made)]
    assert {len(words) for words in split} == {12} == {turn.input_len for turn in turns(made)}
    assert [words[:8] for words in split] == [split[n % 2][:8] for n in range(6)]
    assert split[0][:8] != split[1][:8]
    assert len({tuple(words[8:]) for words in split}) == 6


def test_several_turns() -> None:
    made = workload(dataset="multi-turn", num_prompts=2, turns=3, input_len=4, think_s=1.5)
    assert [len(dialogue.turns) for dialogue in made.measured] == [3, 3]
    assert {dialogue.think_s for dialogue in made.measured} == {1.5}
    assert [turn.input_len for turn in made.measured[0].turns] == [4, None, None]
    assert made.num_requests == 6


SHAREGPT = json.dumps(
    [
        {"conversations": [{"from": "human", "value": f"ab {n}"}, {"from": "gpt", "value": "cd " * (n + 1)}] * 2}
        for n in range(4)
    ]
    + [{"conversations": [{"from": "gpt", "value": "no question"}]}, {"conversations": []}]
)


def test_a_file_of_sharegpts_form(tmp_path: Path) -> None:
    path = file(tmp_path, SHAREGPT)
    made = workload(TokenWords(LetterPairs(), special=True), dataset="sharegpt", dataset_path=path)
    assert {(turn.prompt, turn.output_len, turn.input_len) for turn in turns(made)} == {
        (f"ab {n}", n + 1, 4) for n in range(4)
    }
    assert turns(made) != turns(workload(dataset="sharegpt", dataset_path=path, seed=1))
    unknown = turns(workload(dataset="sharegpt", dataset_path=path))[0]
    assert (unknown.output_len, unknown.input_len) == (128, None)
    talks = workload(dataset="multi-turn", dataset_path=path, turns=2, output_len=7).measured
    assert [len(talk.turns) for talk in talks] == [2] * 4
    assert talks[0].turns[0].output_len == 7
    with pytest.raises(ConfigError, match=r"num_prompts=5: .* has 4 that fit; ask for at most 4"):
        workload(dataset="sharegpt", dataset_path=path, num_prompts=5)
    with pytest.raises(ConfigError, match=r"dataset_path=.* has 0 dialogues with 9 questions each \(`turns`\), so no"):
        workload(dataset="multi-turn", dataset_path=path, turns=9)


def test_azures_csv(tmp_path: Path) -> None:
    rows = "2023-11-16 23:59:59.7500000,20,3\n2023-11-17 00:00:00.2500000+00:00,7,0\n"
    path = file(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    read = read_trace(path)
    assert [(row.at_s - read[0].at_s, row.input_len, row.output_len) for row in read] == [(0.0, 20, 3), (0.5, 7, 1)]
    made = workload(dataset="trace", dataset_path=path)
    assert [len(str(turn.prompt).split()) for turn in turns(made)] == [20, 7]
    assert [turn.output_len for turn in turns(made)] == [3, 1]


def test_mooncakes_jsonl_shares_what_its_blocks_share(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 250, "input_length": 1200, "output_length": 6, "hash_ids": [1, 2, 4]},
        {"timestamp": 3000.5, "input_length": 600, "output_length": 7, "hash_ids": [5]},
    ]
    path = file(tmp_path, "\n".join(map(json.dumps, rows)) + "\n")
    assert read_trace(path)[1] == TraceRow(0.25, 1200, 6, (1, 2, 4))
    encoder = LetterPairs()
    made = workload(TokenWords(encoder, special=True), dataset="trace", dataset_path=path)
    assert [dialogue.at_s for dialogue in made.measured] == [0.0, 0.25, 3.0005]
    assert [len(encoder.encode(str(turn.prompt))) for turn in turns(made)] == [1100, 1200, 600]
    first, second, third = (str(turn.prompt).split() for turn in turns(made))
    assert first[: 2 * BLOCK_TOKENS] == second[: 2 * BLOCK_TOKENS]
    assert first[2 * BLOCK_TOKENS :] != second[2 * BLOCK_TOKENS : len(first)]
    assert first[:20] != third[:20]


CUSTOM = [
    {"prompt": "ab cd", "output_len": 3, "at_s": 0.5, "slo": "chat"},
    {"prompt": [4, 5, 6], "at_s": 1},
    {"messages": [{"role": "user", "content": "x"}], "at_s": 2},
]


def test_lines_of_ones_own(tmp_path: Path) -> None:
    path = file(tmp_path, "\n\n".join(map(json.dumps, CUSTOM)))
    made = workload(TokenWords(LetterPairs(), special=True), dataset="custom", dataset_path=path)
    assert turns(made) == [
        Turn("ab cd", 3, 4),
        Turn((4, 5, 6), 128, 3),
        Turn(({"role": "user", "content": "x"},), 128, None),
    ]
    assert [(dialogue.at_s, dialogue.slo) for dialogue in made.measured] == [(0.5, "chat"), (1, None), (2, None)]


@pytest.mark.parametrize(
    ("dataset", "text", "message"),
    [
        ("custom", '{"prompt": "a"}\n{"prompt"}', "line 2: is no JSON"),
        ("custom", "[]", "line 1: is no JSON object"),
        ("custom", '{"promt": "a"}', "line 1: unknown field 'promt'; known: prompt, messages"),
        ("custom", '{"prompt": ""}', "line 1: must have either prompt"),
        ("custom", '{"prompt": "a", "messages": [{}]}', "line 1: must have either prompt"),
        ("custom", '{"prompt": "a", "output_len": 0}', "line 1: output_len is 0; it must be a whole number of at l"),
        ("custom", '{"prompt": "a", "at_s": "x"}', "line 1: at_s must be seconds"),
        ("custom", '{"prompt": "a"}\n{"prompt": "a", "at_s": 1}', "some lines have at_s and some have not"),
        ("custom", "", "holds no requests"),
        ("trace", "TIMESTAMP,ContextTokens\nx,1\n", "is no trace: neither the columns TIMESTAMP, ContextTokens, Gen"),
        ("trace", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no requests"),
        ("trace", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n", "line 2: TIMESTAMP 'now' is not like 2023"),
        (
            "trace",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,x,1\n",
            "line 2: ContextTokens is 'x'",
        ),
        ("trace", '{"timestamp": 0, "input_length": 5}', "line 1: output_length is None"),
        ("trace", '{"timestamp": "0", "input_length": 5, "output_length": 5}', "line 1: timestamp is '0'"),
        ("trace", '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": 3}', "line 1: hash_ids must"),
        ("sharegpt", "{", "is no JSON"),
        ("sharegpt", "{}", "must be a JSON list"),
        ("sharegpt", "[{}]", "entry 1 has no list of conversations"),
        ("sharegpt", "[]", "has 0"),
    ],
)
def test_faults_of_files_name_their_place(tmp_path: Path, dataset: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        workload(dataset=dataset, dataset_path=file(tmp_path, text))
    assert message in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file or directory\)"):
        workload(dataset="custom", dataset_path=str(tmp_path / "none"))
    (tmp_path / "latin").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(ConfigError, match="byte 12 is not UTF-8"):
        workload(dataset="custom", dataset_path=str(tmp_path / "latin"))


def test_tokenizers_of_which_no_prompts_can_be_made() -> None:
    class NoWords(LetterPairs):
        vocab_size = 20

    with pytest.raises(ConfigError, match="has only 20 lower-case words"):
        TokenWords(NoWords(), special=True).draw(Random(1), 1)

    class Merging(LetterPairs):
        def encode(self, text: str, *, add_special: bool = True) -> list[int]:
            return super().encode(text, add_special=add_special)[: 3 if len(text) < 12 else 4]

    with pytest.raises(ConfigError, match="reads 9 words of one token each as 4 tokens"):
        TokenWords(Merging(), special=False).prompt(["ab"] * 9)


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"])
def test_real_tokenizers_count_what_was_asked(model: str) -> None:
    settings = LoadSettings.from_fields({"tokenizer": str(model_path(model)), "num_prompts": 4, "input_len": 300})
    words = words_for(settings)
    made = make_workload(settings.data, words, 0)
    for turn in turns(made):
        assert words.count(str(turn.prompt)) == 300 - words.at_start() == len(str(turn.prompt).split())
        assert turn.input_len == 300
    assert words.at_start() == (model == "gemma3-270m")


@pytest.mark.parametrize(
    ("name", "rows", "input_tokens", "duration_s"),
    [
        ("azure2023_code.csv", 8819, None, 3400),
        ("azure2023_conv.csv", 19366, None, 3400),
        ("mooncake_conversation_trace.jsonl", 12031, 12035 * 12031, 3500),
        ("mooncake_synthetic_trace.jsonl", 3993, None, 1000),
    ],
)
def test_real_traces(name: str, rows: int, input_tokens: int | None, duration_s: float) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"no public traces in {TRACES}; name their folder with OCTAVO_TRACES")
    read = read_trace(str(path))
    assert len(read) == rows
    assert read[-1].at_s - read[0].at_s > duration_s
    assert all(later.at_s >= earlier.at_s for earlier, later in itertools.pairwise(read))
    if input_tokens is not None:
        assert sum(row.input_len for row in read) == pytest.approx(input_tokens, rel=1e-4)
    made = workload(dataset="trace", dataset_path=str(path), num_prompts=3, warm_ups=1)
    assert [len(str(turn.prompt).split()) for turn in turns(made)] == [row.input_len for row in read[:3]]


def test_words_are_drawn_by_the_seed() -> None:
    words = TokenWords(LetterPairs(), special=True)
    assert words.draw(Random(1), 50) == words.draw(Random(1), 50) != words.draw(Random(2), 50)
