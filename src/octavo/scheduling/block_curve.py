"""How many KV blocks a request held, and for how long: a sum, and a curve of bounded length."""

from octavo.request.account import MAX_BLOCK_SAMPLES


class BlockCurve:
    """Told of every change; remembers every n-th, n doubling when there are too many."""

    __slots__ = ("_block_seconds", "_num", "_num_changes", "_samples", "_since_s", "_stride")

    def __init__(self) -> None:
        self._num = 0
        self._since_s = 0.0
        self._block_seconds = 0.0
        self._samples: list[tuple[float, int]] = []
        self._num_changes = 0
        self._stride = 1

    def hold(self, num_blocks: int, now_s: float) -> None:
        """So many from now on."""
        if num_blocks == self._num:
            return
        self._block_seconds += self._num * (now_s - self._since_s)
        self._num, self._since_s = num_blocks, now_s
        if self._num_changes % self._stride == 0:
            self._samples.append((now_s, num_blocks))
            if len(self._samples) == MAX_BLOCK_SAMPLES:
                del self._samples[1::2]
                self._stride *= 2
        self._num_changes += 1

    def block_seconds(self, now_s: float) -> float:
        """Blocks times seconds, so far."""
        return self._block_seconds + self._num * (now_s - self._since_s)

    def samples(self) -> list[tuple[float, int]]:
        """(time, blocks from then on), the newest state last, whether or not it was to be remembered."""
        newest = (self._since_s, self._num)
        if not self._samples or self._samples[-1] == newest:
            return list(self._samples)
        return [*self._samples, newest]
