"""Layer ids as JSON gives them."""

from __future__ import annotations


def as_ids(value: object) -> tuple[int, ...] | None:
    """A JSON list as layer ids, taken as Python's arithmetic takes it (true is 1, 2.0 is 2); None for anything else."""
    if not isinstance(value, list):
        return None
    if set(map(type, value)) <= {int}:  # all but nobody writes anything else
        return tuple(value)
    whole = [isinstance(v, int) or (isinstance(v, float) and v.is_integer()) for v in value]
    return tuple(int(v) for v in value) if all(whole) else None
