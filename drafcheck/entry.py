"""The entry point: nothing is imported before Ctrl-C is taken care of."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal itself imports enum and more

TYPE_CHECKING = False  # as in the package itself
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. While it is being imported, Ctrl-C ends the process without a traceback."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from drafcheck.cli import main as run

    signal.signal(signal.SIGINT, handler)
    run()
