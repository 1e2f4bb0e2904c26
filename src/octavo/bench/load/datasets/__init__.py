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
        problem = f"{settings.dataset_path} has {len(dialogues)}, with num_warmups={warm_ups} of them unmeasured"
        raise ConfigError("num_prompts", settings.num_prompts, problem)
    return Workload(dialogues[:count], dialogues[count : count + warm_ups])
