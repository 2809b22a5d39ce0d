"""drafcheck: a linter for draft checkpoints of speculative decoding.

    import drafcheck
    report = drafcheck.lint("ckpt/", target="target/", engine="sglang==0.5.9")

Importing the package costs nothing; the first use of a name imports what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing is not imported: until Ctrl-C is taken care of as little as can be is
if TYPE_CHECKING:
    from drafcheck.errors import UsageError
    from drafcheck.finding import Finding
    from drafcheck.report.model import Report
    from drafcheck.runner import lint

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "UsageError", "__version__", "lint"]

_HOMES = {
    "Finding": "drafcheck.finding",
    "Report": "drafcheck.report.model",
    "UsageError": "drafcheck.errors",
    "lint": "drafcheck.runner",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
