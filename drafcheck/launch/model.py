"""A launch line as it was understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from drafcheck.launch.words import Word

UNKNOWN, AMBIGUOUS, NO_VALUE, NEEDS_VALUE, REFUSED = "unknown", "ambiguous", "no value", "needs a value", "refused"
"""What a parser may not like about an option."""


class Option(NamedTuple):
    """One option: its full name, how it was written, its values (one text each), and its line.

    ``fault`` is what the parser of the engine does not like about it, empty for nothing.
    """

    name: str
    written: str
    values: tuple[Word, ...]
    line: int
    fault: str = ""

    @property
    def value(self) -> str | None:
        """The one value, when it is wholly known."""
        return self.values[0].text if len(self.values) == 1 and self.values[0].known else None


@dataclass(slots=True)
class Launch:
    """The command that starts an engine, out of a script, a container file or a manifest.

    ``said`` holds, by the keys of launch.toml (``algorithm``, ``draft``, ``tp`` ...), what is wholly known; ``given``
    also what is not. ``missing`` lists what could not be resolved. ``open_ended``: something unresolved may stand for
    further options. ``version`` is the release that the file pins, by an image's tag or a pip command, which
    ``version_from`` quotes; without a version it quotes what says that there is one, and not which. ``number`` and
    ``count`` tell which command of the file this is.
    """

    file: str
    line: int
    engine: str
    version: str | None = None
    version_from: str = ""
    options: list[Option] = field(default_factory=list)
    strays: list[Word] = field(default_factory=list)  # arguments that belong to no option
    said: dict[str, str] = field(default_factory=dict)
    places: dict[str, Option] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    open_ended: bool = False
    odd_keys: tuple[str, ...] = ()  # keys of JSON that no release has
    cut: tuple[int, ...] = ()  # lines that end with a backslash and a blank, where the command ends
    wrong: list[str] = field(
        default_factory=list
    )  # values that are not what they have to be, such as JSON that is none
    env: dict[str, str] = field(default_factory=dict)
    number: int = 1
    count: int = 1

    @property
    def given(self) -> set[str]:
        """The keys that are given, be their values known or not."""
        return set(self.places)

    def number_of(self, key: str) -> int | None:
        """The integer under a key; None when it is not given, not known, or no integer."""
        text = self.said.get(key, "").strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None

    @property
    def misspelt(self) -> bool:
        """Whether an option, or the JSON in one, is not what the parser knows: more may be meant than is understood."""
        told = self.wrong or self.odd_keys or self.cut
        return bool(told) or any(option.fault == UNKNOWN for option in self.options)

    @property
    def partial(self) -> bool:
        """Whether further options may stand elsewhere: in what is not resolved, or in a file of the engine's own."""
        return self.open_ended or "config" in self.given

    @property
    def speculates(self) -> bool:
        """Whether it drafts at all."""
        return bool(self.given & {"algorithm", "draft", "speculative"})
