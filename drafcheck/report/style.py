"""Colours of a terminal, or none."""

from __future__ import annotations

import os
from typing import IO, NamedTuple

from drafcheck.finding import Severity

_SEVERITY = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}


class Style(NamedTuple):
    """Paints text when ``on``; otherwise returns it as it is. Paint only text that is already printable."""

    on: bool = False

    def severity(self, severity: Severity, text: str) -> str:
        """Bold and in the colour of the severity."""
        return self._paint(_SEVERITY[severity], text)

    def bold(self, text: str) -> str:
        """Bold."""
        return self._paint("1", text)

    def mark(self, text: str) -> str:
        """The blue of arrows and labels."""
        return self._paint("1;34", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text


def style_for(when: str, stream: IO[str] | None) -> Style:
    """``always``, ``never`` or ``auto``: a terminal, and no NO_COLOR in the environment."""
    if when != "auto":
        return Style(when == "always")
    quiet = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Style(not quiet and stream is not None and stream.isatty())
