"""The whole ledger of a deployment, as data and as a table for people."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from octavo.planning import disputes, parameters, sections, speculation
from octavo.planning.cited import cited_facts
from octavo.planning.deployment import Deployment
from octavo.planning.disputes import Dispute
from octavo.planning.figures import Figure, Section
from octavo.planning.step_work import decode_step, step_bound_s

_SECTIONS: tuple[Callable[[Deployment], Section | None], ...] = (
    sections.weights_section,
    sections.kv_section,
    sections.roofline_section,
    sections.prefill_section,
    sections.decode_section,
    sections.steps_section,
    sections.speculation_section,
    sections.communication_section,
    sections.handoff_section,
    sections.adapters_section,
    sections.images_section,
    sections.logits_section,
)
_TOKENS_PER_STEP = 2.5
"""A common yield of three drafts."""
_ROUNDING_BYTES_PER_S = 1e11
"""Bandwidths are often printed to a tenth of a terabyte."""


@dataclass(frozen=True)
class Ledger:
    """What `octavo ledger` prints."""

    deployment: Deployment
    sections: tuple[Section, ...]
    disputes: tuple[Dispute, ...]

    def figures(self) -> dict[str, float]:
        """Key -> value in base units."""
        return {figure.key: _whole(figure.value) for section in self.sections for figure in section.figures}


def machine_ledger(deployment: Deployment) -> Ledger:
    """All sections that the deployment has."""
    made = (make(deployment) for make in _SECTIONS)
    return Ledger(deployment, tuple(section for section in made if section is not None), _disputes(deployment))


def as_json(ledger: Ledger) -> dict[str, Any]:
    """One object: the figures by their keys, and what they were computed from."""
    d = ledger.deployment
    asked = {
        "model": {
            "name": d.shape.name,
            "architecture": d.shape.architecture,
            "priced_by": str(d.shape.priced_by),
            "weights": d.model.weights.name,
            "notes": list(d.shape.notes),
        },
        "hardware": asdict(d.hardware),
        "parallel": {"tp": d.tp, "pp": d.pp},
        "workload": asdict(d.workload),
    }
    often_wrong = [asdict(dispute) for dispute in ledger.disputes]
    outside = {name: asdict(fact) for name, fact in cited_facts().items()}
    return asked | ledger.figures() | {"disputes": often_wrong, "cited": outside}


def as_table(ledger: Ledger) -> str:
    """A heading, the sections, the notes, and figures that are often read wrong."""
    d = ledger.deployment
    lines = [f"{d.shape.name} ({d.model.weights.name}) on {d.hardware.name}: {d.hardware.device.name}"]
    lines += [f"note: {note}" for note in d.shape.notes]
    lines += [f"{part}: {source}" for part, source in d.hardware.sources.items()]
    for section in ledger.sections:
        lines += ["", section.title, *(_line(figure) for figure in section.figures)]
    lines += ["", "often read wrong"]
    for dispute in ledger.disputes:
        lines += _both(dispute)
    return "\n".join(lines)


def _whole(value: float) -> float:
    """An int where the value is one: counts and bytes read as such."""
    return int(value) if value == int(value) else value


def _line(figure: Figure) -> str:
    remark = f"   {figure.remark}" if figure.remark else ""
    return f"  {_label(figure.key):38}{figure.shown():>24}{remark}"


def _both(dispute: Dispute) -> list[str]:
    right, instead = (Figure(dispute.key, value, dispute.unit).shown() for value in (dispute.figure, dispute.instead))
    return [f"  {_label(dispute.key):38}{right:>24}   not {instead}", f"      {dispute.reason}"]


def _label(key: str) -> str:
    """A key for people, who see the unit behind the value: without seconds at its end, unless they are what a rate is
    counted by."""
    words = key if key.endswith("_per_s") else key.removesuffix("_s")
    return words.replace("_", " ")


def _disputes(d: Deployment) -> tuple[Dispute, ...]:
    """Those that this deployment has figures for."""
    w = d.workload
    usable = w.memory_share * d.hardware.device.memory_bytes
    plain_s = step_bound_s(d, decode_step(w.batch, w.total_tokens))
    drafted_s = step_bound_s(d, decode_step(w.batch, w.total_tokens + w.drafts, w.drafts))
    rounded = round(d.bytes_per_s / _ROUNDING_BYTES_PER_S) * _ROUNDING_BYTES_PER_S
    found = [
        disputes.prefill_intensity(w.prompt_tokens, d.bytes_per_active_weight),
        disputes.intensity_over_ridge(w.prompt_tokens, d.bytes_per_active_weight, d.ridge),
        disputes.speculative_throughput(_TOKENS_PER_STEP, speculation.step_ratio(drafted_s, plain_s)),
        disputes.speculative_tpot(drafted_s, _TOKENS_PER_STEP),
        disputes.adapter_flops(d.shape, w.adapter_rank, parameters.num_parameters(d.shape)),
    ]
    if d.num_devices > 1 and d.pool_bytes_per_device > 0:
        found.append(disputes.requests_that_fit(d.pool_bytes_per_device, d.request_bytes_per_device, d.request_bytes))
    if d.tp % 2 == 0 and d.tp // 2 * usable > d.weight_bytes:
        found.append(disputes.replica_pool(d.tp, 2, usable, d.weight_bytes))
    if rounded not in (0, d.bytes_per_s):
        found.append(disputes.weight_read(d.weight_bytes_per_device, d.bytes_per_s, rounded))
    return tuple(dispute for dispute in found if dispute.figure != dispute.instead)
