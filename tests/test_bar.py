"""Ctrl-C while a line of progress is drawn leaves a terminal with a cursor."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from drafcheck import cli
from drafcheck.fix.staging import SHOWN, Bar
from drafcheck.valuescan.progress import WORTH, watched

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
BARS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "checking": lambda: cli._watched(["a", "b"], quiet=False),
    "reading": lambda: watched(WORTH),
    "writing": lambda: Bar().over(SHOWN),
}


class Terminal(io.StringIO):
    """One whose user presses Ctrl-C as soon as so many writes have hidden the cursor; at 0 never."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        if HIDE in text:
            self.after -= 1
            if self.after == 0:
                raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("name", BARS)
def test_the_cursor_comes_back(name: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(after)
    monkeypatch.setattr("sys.stderr", terminal)
    with pytest.raises(KeyboardInterrupt), BARS[name]() as bar:
        if name == "checking":
            list(bar)
        else:
            bar(SHOWN // 2)
    shown = terminal.getvalue()
    assert HIDE in shown and shown.rindex(SHOW) > shown.rindex(HIDE)


@pytest.mark.parametrize("name", BARS)
def test_an_end_without_haste_is_shown_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(0)
    monkeypatch.setattr("sys.stderr", terminal)
    with BARS[name]() as bar:
        if name == "checking":
            assert list(bar) == ["a", "b"]
        else:
            bar(SHOWN)
    assert terminal.getvalue().count(SHOW) == 1 and "#]" in terminal.getvalue()
