"""The figures of speculation.py: ratios within rounds, what became of drafts, targets, and their Markdown page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairing import Estimate, estimate

OFF, AUTO = "off", "auto"
WALL, PROCESSOR = "wall time", "processor time of the process"
FREE_CHAT, CODE_EDIT, JSON_BY_SCHEMA = "free chat", "code edit", "JSON by schema"
NEVER_LOSES = 0.97
COLUMNS = (
    "work",
    "batch",
    "rounds",
    "off, tokens/s",
    "setting",
    "tokens/s",
    "off / setting",
    "target",
    "tokens per step",
    "drafts per step",
    "right",
    "rows wasted",
    "a step takes",
)

Round = Mapping[str, Mapping[str, float]]
"""Setting -> what was counted."""


@dataclass(frozen=True)
class Target:
    """What is asked of a ratio."""

    bound: float
    of_interval: bool
    """The interval's lower end must reach it; else the median."""

    def met(self, ratio: Estimate) -> bool:
        return (ratio.low if self.of_interval else ratio.median) >= self.bound

    def __str__(self) -> str:
        return f"{'interval' if self.of_interval else 'median'} >= {self.bound:g}"


def target_of(workload: str, batch: int, setting: str) -> Target | None:
    """Of `auto`: at batch 1 code is copied at least 2.5 times as fast and JSON by a schema made 1.5 times; where little
    can be gained, in free chat and batches of 32, nothing is lost."""
    if setting != AUTO:
        return None
    if workload == FREE_CHAT or batch >= 32:
        return Target(NEVER_LOSES, of_interval=True)
    if batch == 1 and workload == CODE_EDIT:
        return Target(2.5, of_interval=False)
    if batch == 1 and workload == JSON_BY_SCHEMA:
        return Target(1.5, of_interval=False)
    return None


@dataclass(frozen=True)
class Figures:
    """Of one cell and setting, over all rounds in which it ran."""

    rate: Estimate
    """Tokens per second."""
    ratio: Estimate
    """Time without speculation over time with it, for the same tokens, round by round."""
    tokens_per_step: float
    """Tokens per step of a request; the step of its prompt counts."""
    acceptance: float | None
    """Share of drafts that were right; None: there were none."""
    drafts_per_step: float
    """Drafts that ran, per step of a request."""
    waste: float
    """Share of all rows that were run for drafts that were wrong."""
    step_ratio: float
    """What a step of the engine takes, over one of the engine that does not speculate: medians over rounds."""


def figures(rounds: Sequence[Round], setting: str) -> Figures:
    """Raises ValueError if the setting never ran."""
    ran = [one for one in rounds if setting in one]
    if not ran:
        raise ValueError(f"{setting!r} has never run")
    records = [one[setting] for one in ran]

    def total(name: str) -> float:
        return sum(record[name] for record in records)

    def step_s(record: Mapping[str, float]) -> float:
        return record["elapsed_s"] / record["steps"]

    drafts, right = total("draft_tokens"), total("accepted_draft_tokens")
    return Figures(
        rate=estimate([record["tokens"] / record["elapsed_s"] for record in records]),
        ratio=estimate([one[OFF]["elapsed_s"] / one[setting]["elapsed_s"] for one in ran]),
        tokens_per_step=total("tokens") / total("request_steps"),
        acceptance=right / drafts if drafts else None,
        drafts_per_step=drafts / total("request_steps"),
        waste=(drafts - right) / total("computed_tokens"),
        step_ratio=estimate([step_s(one[setting]) / step_s(one[OFF]) for one in ran]).median,
    )


def settings_of(rounds: Sequence[Round]) -> list[str]:
    """All but `off`, in the order in which they first ran."""
    return list(dict.fromkeys(setting for one in rounds for setting in one if setting != OFF))


def as_markdown(result: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [_heading(result), _table(result), _conditions(result)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _heading(result: Mapping[str, Any]) -> str:
    machine = result["hardware"]
    drawing = "greedy" if result["seed"] is None else f"temperature 0.8, seeds from {result['seed']} on"
    return (
        f"# Speculation: {result['model']}\n\n{machine['cpu']}, {machine['usable_cores']} cores, {result['threads']} "
        f"threads; {drawing}; prompts in the prefix cache; clock: {result['clock']}. Ratios are the time without "
        "speculation over the time with it for the same tokens, round by round: median, and in brackets an interval "
        "of order statistics that holds the true median with the chance told. The tokens were equal in every round."
    )


def _table(result: Mapping[str, Any]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for name, rounds in result["cells"].items():
        workload, _, batch = name.rpartition("/")
        off = figures(rounds, OFF).rate.median
        for setting in settings_of(rounds):
            found, target = figures(rounds, setting), target_of(workload, int(batch), setting)
            told = "" if target is None else f"{target}: {'met' if target.met(found.ratio) else '**missed**'}"
            right = "-" if found.acceptance is None else f"{100 * found.acceptance:.0f} %"
            cells = [
                workload, batch, str(found.ratio.rounds), f"{off:.0f}", setting, f"{found.rate.median:.0f}",
                shown(found.ratio), told, f"{found.tokens_per_step:.2f}", f"{found.drafts_per_step:.2f}", right,
                f"{100 * found.waste:.0f} %", f"{found.step_ratio:.2f}",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if result["cells"] else ""


def shown(ratio: Estimate) -> str:
    """Median and interval."""
    return f"**{ratio.median:.2f}** [{ratio.low:.2f}, {ratio.high:.2f}; {100 * ratio.coverage:.0f} %]"


def _conditions(result: Mapping[str, Any]) -> str:
    sizes = ", ".join(
        f"{size['batches']} x {batch} answers of up to {size['max_tokens']} tokens"
        for batch, size in result["sizes"].items()
    )
    records = [record for rounds in result["cells"].values() for one in rounds for record in one.values()]
    lines = [f"Command: `{result['command']}`. A round of a cell: {sizes}."]
    if records and result["clock"] == WALL:
        shares = sorted(record["others_cpu_s"] / (result["threads"] * record["elapsed_s"]) for record in records)
        lines.append(
            f"Others on the machine took {100 * shares[len(shares) // 2]:.1f} % of the processor time of a measurement "
            f"at the median, {100 * shares[-1]:.1f} % at worst."
        )
    return " ".join(lines)
