"""The figures as plain text."""

from typing import Any

LATENCY_ROWS = {
    "TTFT": "ttft_s",
    "TPOT": "tpot_s",
    "ITL": "itl_s",
    "E2EL": "e2el_s",
    "TTFT from send": "ttft_from_send_s",
    "E2EL from send": "e2el_from_send_s",
    "send delay": "send_delay_s",
}
COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")
OUTCOMES = ("completed", "rejected", "errored", "aborted")
BUSY_SHARE = 0.7
"""Of a core: from here on the client may be late because of itself."""


def as_table(figures: dict[str, Any]) -> str:
    """What was measured, for a terminal. Where the chosen window is empty it is the whole run, and says so."""
    measured = figures["measured"]
    lines = ["interrupted: these are figures of what was done by then"] if figures["interrupted"] else []
    lines += [] if measured else ["the chosen window is empty: these are figures of the whole run"]
    measured = measured or figures["run"]
    lines += [_outcomes(figures, measured), *_rates(figures, measured), "", *_latencies(measured)]
    lines += [_goodput(name, judged) for name, judged in measured["goodput"].items()]
    lines += [f"{count} x {reason}" for reason, count in measured["errors"].items()]
    lines += _doubts(measured)
    if figures["client_cpu_share"] > BUSY_SHARE:
        lines.append("the client was busy itself: give it a quieter machine, or less to do, before you trust this")
    return "\n".join(lines)


def _doubts(measured: dict[str, Any]) -> list[str]:
    """What is wrong with the counts of tokens."""
    without, odd = measured["answers_without_usage"], measured["answers_with_odd_usage"]
    lines = [f"{without} answers came without a count of tokens: their chunks stand for them"] if without else []
    if odd:
        lines.append(f"{odd} answers came with a count of tokens that cannot be: none, or more than were asked for")
    return lines


def _outcomes(figures: dict[str, Any], measured: dict[str, Any]) -> str:
    counts = ", ".join(f"{measured[outcome]} {outcome}" for outcome in OUTCOMES)
    window = measured["window"]
    return (
        f"{figures['model']}: {measured['requests']} requests from {window['begin_s']:.3f} to {window['end_s']:.3f} s: "
        f"{counts}"
    )


def _rates(figures: dict[str, Any], measured: dict[str, Any]) -> list[str]:
    rates = {name: _shown(measured.get(f"{name}_per_s")) for name in ("completed", "output_tokens", "total_tokens")}
    cached = "" if measured["cached_tokens"] is None else f", cached {measured['cached_tokens']:,}"
    prompts = f"{measured['prompt_tokens']:,} (asked {_count(measured['asked_prompt_tokens'])}{cached})"
    answers = f"{measured['output_tokens']:,} (asked {_count(measured['asked_output_tokens'])})"
    return [
        f"requests/s    {_asked_rate(figures)}completed {rates['completed']}",
        f"tokens/s      output {rates['output_tokens']}, with prompts {rates['total_tokens']}",
        f"tokens        prompts {prompts}, answers {answers}",
        f"under way     {measured['most_under_way']} at most; the client used {figures['client_cpu_share']:.2f} cores",
    ]


def _asked_rate(figures: dict[str, Any]) -> str:
    """Nothing in a closed loop: how fast requests are sent is up to the answers there. A rate is one of dialogues."""
    if figures["request_rate"] is None:
        return ""
    per = "" if figures["dialogues"] == figures["run"]["requests"] else " dialogues"
    return f"asked {_shown(figures['request_rate'])}{per}, attained {_shown(figures['attained_request_rate'])}, "


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _latencies(measured: dict[str, Any]) -> list[str]:
    head = f"{'ms':16}" + "".join(f"{column:>11}" for column in COLUMNS)
    rows = [
        f"{title:16}" + "".join(f"{1000 * measured[name][column]:11.2f}" for column in COLUMNS)
        for title, name in LATENCY_ROWS.items()
        if measured[name]["count"]
    ]
    return [head, *rows] if rows else ["nothing was completed, so there are no latencies"]


def _goodput(name: str, judged: dict[str, Any]) -> str:
    limits = ", ".join(f"{metric} {1000 * limit:g} ms" for metric, limit in judged["limits_s"].items())
    missed = ", ".join(f"{count} {kind}" for kind, count in judged["missed_by"].items())
    share = "" if judged["share"] is None else f" ({100 * judged['share']:.1f} %)"
    rate = f", {_shown(judged['requests_per_s'])}/s"
    return (
        f"goodput {name} [{limits}]: {judged['met']} of {judged['requests']}{share}{rate}; missed: {missed or 'none'}"
    )


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str("-" if value is None else value)
