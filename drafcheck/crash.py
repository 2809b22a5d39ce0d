"""How a fault of drafcheck itself is described."""

from __future__ import annotations

from pathlib import Path


def describe(crash: Exception) -> str:
    """The error and the line of drafcheck that raised it: what a report of the fault needs."""
    import traceback

    frames = traceback.extract_tb(crash.__traceback__)
    home = Path(__file__).parent
    own = next((f for f in reversed(frames) if home in Path(f.filename).parents), None)
    place = f" at {Path(own.filename).name}:{own.lineno}" if own else ""
    return f"{type(crash).__name__}: {crash}{place}"
