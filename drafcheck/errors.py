"""The two ways in which a run ends without a report."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong usage, or a path that does not exist or may not be opened: one sentence, exit code 2."""


class NothingToCheck(Exception):
    """Nothing that looks like a checkpoint at the path: exit code 3."""
