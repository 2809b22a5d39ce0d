"""How work grows with what it is given: such a test holds on a busy machine, as one of seconds does not."""

from __future__ import annotations

import time
from collections.abc import Callable

QUADRATIC = 16
LINEAR = 4


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as much processor time ``LINEAR`` times ``size`` takes: the least of three, each way."""

    def least(much: int) -> float:
        taken = []
        for _ in range(3):
            start = time.process_time()
            work(much)
            taken.append(time.process_time() - start)
        return min(taken)

    few = least(size)
    return least(LINEAR * size) / few
