"""What is wrong with a description of a shape."""


class ShapeError(Exception):
    """A shape cannot be had: it is wrong, asks for what is not supported, or is too large. A backend turns it into an
    `InvalidRequestError` of the spec's field.

    Attributes:
        place: where in the source, such as `$.properties.age.minimum`; empty: all of it.
        problem: what is wrong there and what would do.
    """

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"at {place}: {problem}" if place else problem)
