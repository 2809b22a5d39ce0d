"""``drafcheck fix``: from the command line to a repaired checkpoint, a diff, or the reason why there is none."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafcheck.cli_options import Given, input_options, options_of
from drafcheck.commands import PathWord, RuleWords
from drafcheck.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from drafcheck.fix.mend import Mended
    from drafcheck.fix.staging import Watch
    from drafcheck.place import Place
    from drafcheck.report.style import Style
    from drafcheck.runner import Examination


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?!\\)")
"""How an address begins; a drive of one letter is none."""


class FixGiven(Given):
    """The options of ``fix``, as click hands them over."""

    select: tuple[list[str], ...]
    ignore: tuple[list[str], ...]
    output: str | None
    in_place: bool
    diff: bool
    unsafe: bool
    max_missing_rows: int
    quiet: bool


@click.command()
@click.argument("path", metavar="CKPT", type=click.Path())
@input_options
@click.option("--select", metavar="RULES", multiple=True, type=RuleWords(), help="Repair findings of these only.")
@click.option("--ignore", metavar="RULES", multiple=True, type=RuleWords(), help="Leave findings of these.")
@click.option("--output", metavar="DIR", type=PathWord(), help="The new folder; default: CKPT-fixed beside it.")
@click.option("--in-place", is_flag=True, help="Replace the files; the old config stays as config.json.orig.")
@click.option("--diff", is_flag=True, help="Show what would change and write nothing; exit code 1 if anything would.")
@click.option("--unsafe", is_flag=True, help="Also repairs that cost something: each one says what.")
@click.option(
    "--max-missing-rows",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Rows of a head without a source that --unsafe may leave zero.",
)
@click.option("-q", "--quiet", is_flag=True, help="No more than the verdict, and what unsafe repairs cost.")
def fix(path: str, **given: Unpack[FixGiven]) -> int:
    """Repair what can be repaired without loss.

    Writes a new folder and leaves the checkpoint as it is, unless --in-place is given. The result is opened and
    checked again before it is delivered.

    Exit codes: 0 no error is left, 1 errors are left (or, with --diff, something would change), 2 wrong usage, or
    a repair that did not hold or could not be written: then nothing was; or standard output takes nothing: what was
    written before is then named; 3 nothing to check.
    """
    from drafcheck.fix.mend import mend
    from drafcheck.fix.registry import Wishes
    from drafcheck.fix.staging import Watch
    from drafcheck.paths import checkpoints
    from drafcheck.report.model import NOTHING_TO_CHECK
    from drafcheck.session import Session

    _refuse_contradictions(given)
    path = checkpoints([path])[0]
    wishes = Wishes(given["unsafe"], given["target_weights"], given["max_missing_rows"])
    setup = Session(options_of(given, given["select"], given["ignore"])).setup(path)
    if setup.beside:
        raise UsageError(f"a checkpoint is repaired for one engine: {setup.options.engine} is more than one")
    place = _folder(path, given)
    watch = Watch(place)
    mended = mend(path, setup, place, wishes)
    if NOTHING_TO_CHECK in {f.rule for f in mended.first.findings}:
        return _closed(mended.first, given)
    return _finish(path, place, mended, watch, given)


def _refuse_contradictions(given: FixGiven) -> None:
    """Raises UsageError for options that do not go together."""
    from drafcheck.address import is_remote

    output = given["output"]
    if given["in_place"] and output is not None:
        raise UsageError("--in-place and --output do not go together")
    if output is not None and (is_remote(output) or _SCHEME.match(output)):
        raise UsageError(f"--output {output}: the new folder is written on this machine, an address is none")
    if given["max_missing_rows"] and not given["unsafe"]:
        raise UsageError("--max-missing-rows is for repairs that need --unsafe")


def _folder(path: str, given: FixGiven) -> Place:
    """The folder of the checkpoint. Raises UsageError for a file, and for an address that is to be written to.

    A repair in place that was cut off is completed first, unless nothing may be written there.
    """
    from drafcheck.place import LocalPlace, locate

    place, name = locate(path)
    if name is not None:
        raise UsageError(f"{path} is a file: a whole checkpoint is repaired, give its folder")
    if isinstance(place, LocalPlace):
        _refuse_inside(place.folder, given["output"])
        if given["in_place"] and not given["diff"]:
            _complete(place.folder)
    elif given["in_place"]:
        raise UsageError(f"{path} is not on this machine: --in-place can not write there")
    return place


def _refuse_inside(folder: Path, output: str | None) -> None:
    """Raises UsageError for a new folder in the old one: later commands would take it for a part of that."""
    if output is None:
        return
    try:
        inside = Path(os.path.realpath(output)).is_relative_to(os.path.realpath(folder))
    except ValueError:  # a name that no file system takes: what writes there says so
        return
    if inside:
        raise UsageError(f"--output {output} lies in the checkpoint itself: name a folder outside of {folder}")


def _complete(folder: Path) -> None:
    """Bring a repair in place to its end that was cut off. Raises UsageError."""
    from drafcheck.fix.inplace import finish
    from drafcheck.output import write_err

    if finish(folder):
        write_err("a repair in place that was cut off here is complete now\n")


def _finish(path: str, place: Place, mended: Mended, watch: Watch, given: FixGiven) -> int:
    from drafcheck.fix import text

    if mended.rounds and given["diff"]:
        return _shown(path, place, mended, given)
    if mended.rounds or _is_copied(mended, given):
        return _delivered(path, place, mended, watch, given)
    if not given["quiet"]:
        _print([text.nothing(mended), *_left_over(mended, given), ""])
    return _closed(mended.last, given)


def _shown(path: str, place: Place, mended: Mended, given: FixGiven) -> int:
    """What would change, what it would cost, and what would keep it from being written."""
    from drafcheck.fix import text
    from drafcheck.output import write_out

    write_out(text.summary(mended) if given["quiet"] else text.diff(mended))
    _print([*text.costs(mended), *text.hindrances(mended), *_left(place, mended, given), *_hindered(path, given)])
    return 1


def _delivered(path: str, place: Place, mended: Mended, watch: Watch, given: FixGiven) -> int:
    from drafcheck.fix import text
    from drafcheck.output import write_out

    goal = path if given["in_place"] else str(_goal(path, given["output"]))
    checked, said = _written(goal, place, mended, watch, given)
    try:
        if given["quiet"]:
            _print(text.costs(mended))
        elif mended.rounds:
            write_out(text.repairs(mended, _style(given)))
            _print([*said, *_left_over(mended, given), ""])
        else:
            _print([f"{text.nothing(mended)}: copied as it is", *said, ""])
        return _closed(checked, given)
    except UsageError as error:
        raise UsageError(f"{error}; {goal} is written all the same") from None


def _left_over(mended: Mended, given: FixGiven) -> list[str]:
    """Lines on findings that are not repaired and might be."""
    from drafcheck.fix import text

    return [*text.hindrances(mended), *text.offers(mended, given["unsafe"], given["target_weights"])]


def _print(lines: Iterable[str]) -> None:
    from drafcheck.output import write_out
    from drafcheck.report.text import printable

    write_out("".join(f"{printable(line)}\n" for line in lines))


def _is_copied(mended: Mended, given: FixGiven) -> bool:
    """Whether a checkpoint that needs no repair is written all the same: to a folder that the user named."""
    from drafcheck.finding import Severity

    sound = all(finding.severity is not Severity.ERROR for finding in mended.last.findings)
    return given["output"] is not None and not given["diff"] and sound


def _left(place: Place, mended: Mended, given: FixGiven) -> list[str]:
    """Lines on what a new folder would not hold: folders, and what is no file."""
    from drafcheck.fix.write import taken_along

    state = mended.state
    left = [] if given["in_place"] else taken_along(place, {*state.removed, *state.files})[1]
    return [f"not taken along, as it is no file: {name}" for name in left]


def _hindered(path: str, given: FixGiven) -> list[str]:
    """A line on what would keep the new folder from being written where it is to be."""
    from drafcheck.fix.write import need_free

    if given["in_place"]:
        return []
    try:
        goal = _goal(path, given["output"])
        need_free(goal)
    except UsageError as error:
        return [f"nothing would be written: {error}"]
    writable = os.access(goal.parent, os.W_OK | os.X_OK)
    return [] if writable else [f"nothing would be written: nothing may be made in {goal.parent}"]


def _written(goal: str, place: Place, mended: Mended, watch: Watch, given: FixGiven) -> tuple[Examination, list[str]]:
    """Deliver the repaired checkpoint: how it checks there, and lines on what else there is to say.

    Raises UsageError when it can not be delivered.
    """
    from drafcheck.fix.staging import Bar, Meter

    found: list[Examination] = []
    check: Callable[[Path], None] = partial(_check, mended, goal, found)
    progress = Meter() if given["quiet"] else Bar()
    files, removed = mended.state.files, mended.state.removed
    if given["in_place"]:
        from drafcheck.fix.inplace import replace
        from drafcheck.place import LocalPlace

        assert isinstance(place, LocalPlace)  # see _folder
        replaced = replace(place, files, removed, check=check, progress=progress, watch=watch)
        said = [f"the old config is kept as {replaced.original}"] if replaced.original else []
        said += [f"{name} was a link and is a file now" for name in replaced.links]
    else:
        from drafcheck.fix.write import deliver

        left = deliver(place, files, removed, Path(goal), check=check, progress=progress, watch=watch).left_out
        said = [f"not taken along, as it is no file: {name}" for name in left]
    return found[-1], said


def _check(mended: Mended, goal: str, found: list[Examination], folder: Path) -> None:
    """Open what was written with the safetensors library and check it once more. Raises UsageError."""
    from drafcheck.fix.verify import checked

    found.append(checked(mended, folder, goal))


def _goal(path: str, output: str | None) -> Path:
    """The folder to write."""
    from drafcheck.address import is_remote

    if output is not None:
        return Path(output)
    if is_remote(path):
        return Path(path.rstrip("/").rpartition("/")[2].partition("@")[0] + "-fixed")
    near = Path(path.rstrip("/") or path)
    if near.absolute().parent.name == "snapshots":
        raise UsageError(
            f"{path} lies in a cache of the Hub: say where the repaired checkpoint is to be, with --output"
        )
    if near.name in ("", ".."):
        near = Path(os.path.abspath(path))  # noqa: PTH100 - links stay: the new folder lies beside the link
    return near.with_name(near.name + "-fixed")


def _closed(seen: Examination, given: FixGiven) -> int:
    """Print the report on what is there now; its exit code."""
    from drafcheck.output import write_out
    from drafcheck.report import full
    from drafcheck.runner import report_of

    report = report_of([seen])
    write_out(full.render(report, style=_style(given), quiet=given["quiet"]))
    return report.exit_code


def _style(given: FixGiven) -> Style:
    from drafcheck.report.style import style_for

    return style_for(given["color"], sys.stdout)
