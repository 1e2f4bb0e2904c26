"""An answer as a stream of pieces. APIs differ in how they spell them, and in nothing else."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from octavo.errors import RequestFailedError
from octavo.server import generation
from octavo.server.context import ServerContext
from octavo.server.conversation.pieces import AnswerOptions, GatheredPieces, Piece, PromptWriter
from octavo.server.generation import GenerationOrder
from octavo.server.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class AnswerOrder:
    """Everything that defines an answer."""

    generation: GenerationOrder
    prompts: Sequence[Prompt]
    options: AnswerOptions
    arrival: float
    """On the server's clock."""


class Answer:
    """One answer: the choices of all prompts. Consume it once, by `pieces` or by `whole`."""

    def __init__(self, server: ServerContext, order: AnswerOrder) -> None:
        """
        Raises:
            InvalidRequestError: the engine cannot honour it; nothing has run then.
        """
        self.order = order
        self._server = server
        self._n = order.generation.params.n
        self._unfinished = set(range(len(order.prompts) * self._n))
        tokenizer = server.engine.tokenizer
        self.writers = [
            PromptWriter(prompt, position * self._n, order.options, tokenizer)
            for position, prompt in enumerate(order.prompts)
        ]
        """One for each prompt: they know the counts so far."""
        self._streams = generation.start(server.engine, order.generation)

    def writer_of(self, index: int) -> PromptWriter:
        """The writer that a choice belongs to."""
        return self.writers[index // self._n]

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """The pieces of all choices, as they come. Closing this ends the generation.

        Raises:
            OctavoError: as of `generation.run`.
        """
        order, metrics = self.order, self._server.metrics
        tracker = metrics.track(order.generation.params, len(self._unfinished), order.arrival)
        with self._server.state.admitted():
            async with aclosing(generation.run(self._streams, tracker)) as deltas:
                async for position, delta in deltas:
                    for piece in self.writers[position].write(delta):
                        if piece.finish_reason is not None:
                            self._unfinished.discard(piece.index)
                        yield piece
        if self._unfinished:
            raise RequestFailedError("the engine ended the request before the answer was complete")

    async def whole(self) -> list[Piece]:
        """For each choice one piece that is all of it.

        Raises:
            OctavoError: as of `generation.run`.
        """
        gathered = [GatheredPieces(index) for index in range(len(self._unfinished))]
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                gathered[piece.index].add(piece)
        return [choice.whole() for choice in gathered]
