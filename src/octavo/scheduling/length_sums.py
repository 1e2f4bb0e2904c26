"""Number, sum and variance of lengths that come and go, each in constant time."""


class LengthSums:
    """A bag of lengths, as far as its sums go."""

    __slots__ = ("_squares", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._squares = 0

    def add(self, length: int) -> None:
        """One more."""
        self.count += 1
        self.total += length
        self._squares += length * length

    def remove(self, length: int) -> None:
        """One that was added goes."""
        self.count -= 1
        self.total -= length
        self._squares -= length * length

    @property
    def variance(self) -> float:
        """Of the whole population; exact, since the sums are."""
        return (self.count * self._squares - self.total**2) / self.count**2 if self.count else 0.0
