"""What is sent: data sets that are made or read. Each gives `Dialogue`s, plain data."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.bench.load.datasets.custom import custom_dialogues
from octavo.bench.load.datasets.generated import multi_turn_dialogues, prefix_dialogues, random_dialogues
from octavo.bench.load.datasets.sharegpt import sharegpt_dialogues
from octavo.bench.load.datasets.trace import trace_dialogues
from octavo.bench.load.datasets.words import Words
from octavo.bench.load.dialogue import Dialogue
from octavo.bench.load.settings import DatasetSettings
from octavo.errors import ConfigError

Make = Callable[[DatasetSettings, Words, int], list[Dialogue]]
DATASETS: dict[str, Make] = {
    "random": random_dialogues,
    "prefix": prefix_dialogues,
    "multi-turn": multi_turn_dialogues,
    "sharegpt": sharegpt_dialogues,
    "trace": trace_dialogues,
    "custom": custom_dialogues,
}


@dataclass(frozen=True)
class Workload:
    """What a run sends."""

    measured: list[Dialogue]
    warm_up: list[Dialogue]
    """Sent before, and not counted: others than those measured, or these would be in the server's cache."""

    @property
    def num_requests(self) -> int:
        """Of those measured, if all go well."""
        return sum(len(dialogue.turns) for dialogue in self.measured)


def make_workload(settings: DatasetSettings, words: Words, warm_ups: int) -> Workload:
    """Dialogues of a data set.

    Raises:
        ConfigError: the file is unfit, or has too few.
    """
    make = (
        sharegpt_dialogues if settings.dataset == "multi-turn" and settings.dataset_path else DATASETS[settings.dataset]
    )
    dialogues = make(settings, words, warm_ups)
    count = len(dialogues) - warm_ups if settings.num_prompts is None else settings.num_prompts
    if count < 1 or len(dialogues) < count + warm_ups:
        # Repeating some would let the server answer from its prefix cache.
        raise _too_few(settings, len(dialogues), warm_ups)
    return Workload(dialogues[:count], dialogues[count : count + warm_ups])


def _too_few(settings: DatasetSettings, found: int, warm_ups: int) -> ConfigError:
    path, left = settings.dataset_path, found - warm_ups
    unmeasured = f", {warm_ups} of them unmeasured by num_warmups" if warm_ups else ""
    if left > 0:
        problem = f"{path} has {found} that fit{unmeasured}; ask for at most {left}, or give a longer file"
        return ConfigError("num_prompts", settings.num_prompts, problem)
    turns = f" with {settings.turns} questions each (`turns`)" if settings.dataset == "multi-turn" else ""
    shorter = f" of at most {settings.max_input_len} tokens (`max_input_len`)" if settings.max_input_len else ""
    problem = f"has {found} dialogues{turns}{shorter}{unmeasured}, so nothing is left to measure; give another file"
    return ConfigError("dataset_path", path, problem)
