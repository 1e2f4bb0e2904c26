"""The Markdown page of a comparison."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from pairing import Estimate, estimate, paired_ratios

ROWS = (
    ("decode, batch 1, steady", "1", "decode"),
    ("1 at one time, end to end", "1", "end_to_end"),
    ("4 at one time, end to end", "4", "end_to_end"),
    ("16 at one time, end to end", "16", "end_to_end"),
    ("32 at one time, end to end", "32", "end_to_end"),
    ("prefill of 128", "prefill-128", "prefill"),
    ("prefill of 512", "prefill-512", "prefill"),
    ("decode, batch 1, beside one busy process", "busy", "decode"),
)
"""Title, order, rate."""
STARTS = (
    ("start of the process to the first token, s", "start_to_first_token_s", 1.0),
    ("`octavo serve` to `/ready`, s", "serve_to_ready_s", 1.0),
    ("peak memory with 32 at one time, MiB", "peak_memory_bytes", 2**20),
    ("of it anonymous at the end, MiB", "anonymous_bytes", 2**20),
)
"""Title, figure, unit."""

Series = list[float | None]


def series(result: dict[str, Any], engine: str, order: str, rate: str) -> Series:
    """An engine's figure per round, the median of the round's batches; None where it was not measured."""
    cells = [one.get(order, {}).get(engine) for one in result["rounds"]]
    return [median(batch[rate] for batch in cell) if cell else None for cell in cells]


def as_markdown(result: dict[str, Any]) -> str:
    """Tables of medians, of ratios, of starts; then what they depend on."""
    engines = list(result["engines"])
    tables = [_rates(result, engines), _busy(result, engines), _starts(result), _conditions(result)]
    return "\n\n".join([_heading(result), *filter(None, tables)]) + "\n"


def _heading(result: dict[str, Any]) -> str:
    machine = result["hardware"]
    return (
        f"# Octavo and its peers: {result['model']}\n\n{machine['cpu']}, {machine['usable_cores']} cores, "
        f"{result['threads']} threads; {len(result['rounds'])} interleaved rounds; 128 random tokens in and 128 out "
        "unless said otherwise, greedy. Tokens/s, medians. Ratios are Octavo's figure over the best peer's, taken "
        "round by round: median, and in brackets an interval of order statistics that holds the true median with the "
        "chance told."
    )


def _rates(result: dict[str, Any], engines: Sequence[str]) -> str:
    lines = [_row(["", *engines, "Octavo / best peer"]), _rule(len(engines) + 2)]
    for title, order, rate in ROWS:
        by_engine = {engine: series(result, engine, order, rate) for engine in engines}
        cells = [_shown_median(by_engine[engine]) for engine in engines]
        lines.append(_row([title, *cells, _against_best(by_engine)]))
    return "\n".join(lines)


def _against_best(by_engine: dict[str, Series]) -> str:
    medians = {engine: median(known) for engine, values in by_engine.items() if (known := _known(values))}
    peers = [engine for engine in medians if engine != "octavo"]
    if "octavo" not in medians or not peers:
        return "-"
    best = max(peers, key=lambda engine: medians[engine])
    ratios = paired_ratios(by_engine["octavo"], by_engine[best])
    return f"{_shown_ratio(estimate(ratios))} {best}" if ratios else "-"


def _shown_ratio(ratio: Estimate) -> str:
    return f"**{ratio.median:.2f}** [{ratio.low:.2f}, {ratio.high:.2f}; {100 * ratio.coverage:.0f} %]"


def _busy(result: dict[str, Any], engines: Sequence[str]) -> str:
    """Each engine's speed beside a busy process, as a share of its own quiet speed in the same round."""
    shares = {
        engine: paired_ratios(series(result, engine, "busy", "decode"), series(result, engine, "1", "decode"))
        for engine in engines
    }
    parts = [f"{engine} {_shown_ratio(estimate(values))}" for engine, values in shares.items() if values]
    return f"Beside one busy process, share of the own quiet figure: {'; '.join(parts)}." if parts else ""


def _starts(result: dict[str, Any]) -> str:
    if not result["starts"]:
        return ""
    engines = list(result["engines"])
    lines = [_row(["", *engines]), _rule(len(engines) + 1)]
    for title, figure, unit in STARTS:
        values = [
            [one[engine][figure] / unit for one in result["starts"] if figure in one.get(engine, {})]
            for engine in engines
        ]
        lines.append(_row([title, *map(_shown_median, values)]))
    note = (
        "Fresh processes, files in the page cache. Memory is the sum of VmHWM over an engine's processes: pages of "
        "mapped files count once touched, shared pages in each process."
    )
    return "\n".join([*lines, "", note])


def _conditions(result: dict[str, Any]) -> str:
    lines = [f"Command: `{result['command']}`. Tensors of the file: {_pairs(result['tensors'])}.", ""]
    for engine, facts in result["engines"].items():
        lines.append(f"- {engine}: {'; '.join([*_facts(facts), *_agreement(result, engine)])}")
    lines += ["", _disturbance(result)]
    return "\n".join(lines)


def _facts(facts: dict[str, Any]) -> list[str]:
    told = [_pairs(facts[name]) for name in ("versions", "settings") if name in facts]
    return [*told, *([f"**cannot: {' '.join(facts['error'].split())}**"] if "error" in facts else [])]


def _agreement(result: dict[str, Any], engine: str) -> list[str]:
    """How often its first token of a prompt is Octavo's: another rounding changes some, another model most."""
    if engine == "octavo":
        return []
    pairs = [
        (ours, theirs)
        for one in result["rounds"]
        for cells in one.values()
        if engine in cells and "octavo" in cells
        for a, b in zip(cells["octavo"], cells[engine], strict=False)  # the slower one ran fewer batches
        for ours, theirs in zip(a["first_tokens"], b["first_tokens"], strict=True)
    ]
    equal = sum(ours == theirs for ours, theirs in pairs)
    return [f"first token as Octavo's for {equal} of {len(pairs)} prompts"] if pairs else []


def _disturbance(result: dict[str, Any]) -> str:
    batches = [
        batch
        for one in result["rounds"]
        for order, cells in one.items()
        if not result["orders"][order]["beside_busy"]
        for cell in cells.values()
        for batch in cell
    ]
    if not batches:
        return ""
    cores = result["threads"]
    shares = sorted(batch["others_cpu_s"] / (cores * batch["elapsed_s"]) for batch in batches)
    return (
        f"Others on the machine took {100 * median(shares):.1f} % of the processor time of a measurement at the "
        f"median, {100 * shares[-1]:.1f} % at worst."
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _shown_median(values: Sequence[float | None]) -> str:
    known = _known(values)
    if not known:
        return "-"
    middle = median(known)
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"


def _pairs(mapping: dict[str, Any]) -> str:
    return ", ".join(f"{name} {' '.join(str(value).split())}" for name, value in mapping.items())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns
