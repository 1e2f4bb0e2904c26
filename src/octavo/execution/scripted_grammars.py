"""A stand-in for whoever compiles grammars: it takes as long, and ends as well or badly, as a script says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from octavo.request.control import Refusal
from octavo.request.ready import ReadyEvent
from octavo.request.structured import StructuredSpec


class GrammarFate(NamedTuple):
    """What becomes of a compilation."""

    num_ticks: int = 1
    """How long it takes; 0: it is known."""
    problem: str = ""
    """Why it fails, if it does."""


FateOfGrammar = Callable[[StructuredSpec], GrammarFate]


def compiled_in_a_tick(spec: StructuredSpec) -> GrammarFate:
    """The default `FateOfGrammar`."""
    return GrammarFate()


@dataclass
class _Job:
    spec: StructuredSpec
    num_ticks: int
    problem: str
    is_told: bool = False


class ScriptedGrammars:
    """A `GrammarCompiler` without grammars. It knows whose would be kept, so that a plan which runs a request without
    one is found out."""

    def __init__(self, fates: FateOfGrammar = compiled_in_a_tick) -> None:
        self._fates = fates
        self._jobs: dict[int, _Job] = {}
        self.is_prepared = False

    @property
    def tickets(self) -> frozenset[int]:
        """Of requests that have asked and not been released."""
        return frozenset(self._jobs)

    def is_kept(self, spec: StructuredSpec) -> bool:
        """Whether a request with this spec may run."""
        return any(job.is_told and not job.problem and job.spec == spec for job in self._jobs.values())

    def tick(self) -> None:
        """Time passes."""
        for job in self._jobs.values():
            job.num_ticks -= 1

    def prepare(self) -> None:
        """See `GrammarCompiler`."""
        self.is_prepared = True

    def request(self, ticket: int, spec: StructuredSpec, now_s: float) -> None:
        """See `GrammarCompiler`."""
        if ticket in self._jobs:
            raise RuntimeError(f"ticket {ticket} asks twice")
        self._jobs[ticket] = _Job(spec, *self._fates(spec))

    def release(self, ticket: int) -> None:
        """See `GrammarCompiler`."""
        self._jobs.pop(ticket, None)

    def poll(self, now_s: float) -> list[ReadyEvent]:
        """See `GrammarCompiler`."""
        events = []
        for ticket, job in self._jobs.items():
            if job.num_ticks <= 0 and not job.is_told:
                job.is_told = True
                events.append(ReadyEvent(ticket=ticket, refusal=_refusal(job)))
        return events

    def deadline_s(self) -> float | None:
        """See `GrammarCompiler`. Nobody is given up."""
        return None

    def close(self) -> None:
        """See `GrammarCompiler`."""
        self._jobs.clear()


def _refusal(job: _Job) -> Refusal | None:
    if not job.problem:
        return None
    return Refusal(message=job.problem, status=400, field=job.spec.field, value=job.spec.source)
