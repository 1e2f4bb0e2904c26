"""Finding the requests at which a step fails, by running it in parts."""

from collections.abc import Callable, Sequence

from octavo.errors import WorkerLostError


def isolate(
    places: Sequence[int], attempt: Callable[[Sequence[int]], None], give_up: Callable[[int, Exception], None]
) -> None:
    """Attempts all places together. Where that raises, they are halved and each half is attempted, and so on.

        0 1 2 3 4 5 6 7  raises
        0 1 2 3  done | 4 5 6 7  raises
                        4 5  done | 6 7  raises
                                    6  given up | 7  done

    The order of the places is kept: whoever goes on from blocks that another request fills in the same step stands
    behind it. With one bad request among n, at most twice as many again are run, in 2 log2(n) more attempts.

    Raises:
        WorkerLostError: from `attempt`, at once. No other exception of it comes out of here.
    """
    try:
        attempt(places)
    except WorkerLostError:
        raise
    except Exception as error:  # whatever it is, it is told to somebody: to the client of the request that causes it
        if len(places) == 1:
            give_up(places[0], error)
            return
        middle = len(places) // 2
        isolate(places[:middle], attempt, give_up)
        isolate(places[middle:], attempt, give_up)
