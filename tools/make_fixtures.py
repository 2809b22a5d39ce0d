"""Write fixtures/good and fixtures/DC*, and their expected reports.

    python tools/make_fixtures.py                     # the checkpoints
    python tools/make_fixtures.py --update-expected   # also expected.txt, from the tool's real output: review the diff

Deterministic; needs no torch.
"""

from __future__ import annotations

import io
import shlex
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from cases import load_cases

FIXTURES = Path(__file__).parent.parent / "fixtures"


def command_line(case: str) -> list[str]:
    """The arguments for the fixture ``case``, to be run from the fixtures folder."""
    options = (FIXTURES / case / "args.txt").read_text().replace("{case}", case)
    return [case, "--format", "concise", "--color", "never", *shlex.split(options)]


def report(case: str) -> str:
    """What drafcheck prints for ``case``, and its exit code on the last line."""
    from drafcheck.cli import run

    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        code = run(command_line(case))
    return f"{printed.getvalue()}exit code {code}\n"


def write_all() -> None:
    """Write every checkpoint anew; expectations stay."""
    for path, case in load_cases().items():
        folder = FIXTURES / path
        expected = folder / "expected.txt"
        before = expected.read_text() if expected.is_file() else None
        shutil.rmtree(folder, ignore_errors=True)
        case.draft().write(folder)
        if before is not None:
            expected.write_text(before)


def update_expected() -> None:
    """Write expected.txt of every fixture."""
    import os

    os.chdir(FIXTURES)
    for path in load_cases():
        (FIXTURES / path / "expected.txt").write_text(report(path))


if __name__ == "__main__":
    write_all()
    if "--update-expected" in sys.argv:
        update_expected()
