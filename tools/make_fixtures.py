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


def launch_files() -> list[Path]:
    """The launch files in fixtures/launch, each with its expectation beside it."""
    return sorted(file for file in (FIXTURES / "launch").iterdir() if file.suffix != ".txt")


def launch_report(file: Path) -> str:
    """How drafcheck understands a launch file, and what it finds when a healthy draft is served so."""
    from drafcheck.cli import run

    options = ["good/healthy", "--launch", f"launch/{file.name}", "--color", "never"]
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()):
        run(["show", *options])
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        code = run([*options, "--format", "concise"])
    understood = shown.getvalue().partition("launch\n")[2].partition("\nload\n")[0]
    return f"{understood}\n{printed.getvalue()}exit code {code}\n"


def update_launches() -> None:
    """Write the expectation of every launch file, with the releases that nothing installed decides."""
    for file in launch_files():
        file.with_name(f"{file.name}.txt").write_text(launch_report(file), encoding="utf-8")


if __name__ == "__main__":
    write_all()
    if "--update-expected" in sys.argv:
        update_expected()
        update_launches()
