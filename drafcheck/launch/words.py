"""The words of a command as a shell would hand them over, as far as they are known without running anything."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """One argument. ``missing`` names what could not be resolved in it (``$1``, ``$TP``, ``$(...)``).

    ``text`` has these parts as they are written. ``line`` counts from 1 in the file. ``loose``: what is missing was not
    quoted, so it may stand for several arguments, or none.
    """

    text: str
    line: int = 1
    missing: tuple[str, ...] = ()
    loose: bool = False

    @property
    def known(self) -> bool:
        """Whether the whole word is known."""
        return not self.missing


class Command(NamedTuple):
    """One simple command, and the environment that is known for it."""

    words: tuple[Word, ...]
    env: dict[str, str]

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.words[0].line if self.words else 1
