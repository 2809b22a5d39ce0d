"""The command line: parse, call, exit code. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from drafcheck import __version__
from drafcheck.cli_options import (
    Given,
    RulesGiven,
    input_options,
    on_command_line,
    options_of,
    rule_options,
)
from drafcheck.commands import DefaultGroup, PathWord, RuleWord
from drafcheck.errors import UsageError
from drafcheck.output import let_go

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from drafcheck.baseline import Baseline
    from drafcheck.report.model import Report
    from drafcheck.report.style import Style
    from drafcheck.runner import Examination

INTERRUPTED = 130


class ShowGiven(Given):
    """The options of ``show``."""

    style: str
    output_file: str | None


class CheckGiven(Given, RulesGiven):
    """The options of ``check``; those in the plural may stand several times."""

    styles: tuple[str, ...]
    output_files: tuple[str, ...]
    lfs: Literal["error", "config-only"]
    only_drafts: bool
    jobs: int
    quiet: bool
    verbose: bool
    baseline: str | None
    write_baseline: str | None


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 clean, 1 findings, 2 wrong usage or internal error, 3 nothing to check."""
    # Plugins of other packages have no part in reading a checkpoint, and looking for them takes time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if "_DRAFCHECK_COMPLETE" in os.environ:
        _replace_bytes("COMP_WORDS", "COMP_CWORD")
    gc.set_threshold(200_000, 20, 20)  # imports allocate much and free nothing: a tenth of a short run went to looking
    sys.exit(run(args))


def _replace_bytes(*names: str) -> None:
    """Leave no bytes that are not UTF-8 in what a shell asks: click fails over them, and it completes files itself."""
    for name in names:
        os.environ[name] = os.environ.get(name, "").encode("utf-8", "replace").decode()


def run(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing is raised for whatever a user or a checkpoint can do."""
    try:
        code = cli.main(args, prog_name="drafcheck", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        try:
            error.show()
        except OSError:  # as in _complain
            let_go(sys.stderr)
        return error.exit_code
    except UsageError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as crash:
        if isinstance(crash, OSError) and crash.errno == errno.ENOSPC:  # the help, which click prints
            let_go(sys.stdout)
            return _complain(f"can not write: {crash.strerror}")
        from drafcheck.crash import describe

        return _complain(f"drafcheck itself failed with {describe(crash)}; please report this")


def _complain(message: str) -> int:
    from drafcheck.output import write_err
    from drafcheck.report.text import printable

    with contextlib.suppress(UsageError):  # standard error itself takes nothing: the exit code says it
        write_err(f"error: {printable(message)}\n")
    return 2


@click.group(
    cls=DefaultGroup,
    later={
        "contracts": "drafcheck.contracts_command",
        "fix": "drafcheck.fix.command",
        "gate": "drafcheck.gate_command",
    },
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="drafcheck %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Will this engine load your speculative-decoding drafter, and read it as it was trained?

    CKPT is the folder of a draft checkpoint, a weight file, or the address of one: hf://org/name[@revision],
    https://, s3://, gs://. In a folder that is no checkpoint itself, the drafts below it are checked. A folder
    that is called like a command is reached as ./show.

    Exit codes: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, internal error or a report that can not
    be written (a reader that goes away is no error), 3 nothing to check. With several checkpoints the worst
    counts, in the order 0, 1, 3, 2.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return 0


@cli.command()
@click.argument("paths", metavar="CKPT...", nargs=-1, required=True, type=click.Path())
@input_options
@rule_options
@click.option(
    "--format",
    "styles",
    type=click.Choice(["full", "concise", "json", "sarif", "github", "gitlab", "junit", "markdown"]),
    multiple=True,
    show_default="full",
    help="Of the report. May be given again: then each but one needs an --output-file.",
)
@click.option(
    "--output-file",
    "output_files",
    metavar="FILE",
    multiple=True,
    type=PathWord(),
    help="Write the report there. The nth file is for the nth --format; - is standard output.",
)
@click.option(
    "--lfs",
    type=click.Choice(["error", "config-only"]),
    default="error",
    show_default=True,
    help="Weights that are Git LFS pointers: an error, or check the config alone.",
)
@click.option("--only-drafts", is_flag=True, help="Pass over what is no draft; without any, exit code 0. For hooks.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Checkpoints at a time: for addresses, slow disks.",
)
@click.option("--baseline", metavar="FILE", type=PathWord(), help="Hide the findings that this file lists.")
@click.option("--write-baseline", metavar="FILE", type=PathWord(), help="List the present findings there.")
@click.option("-q", "--quiet", is_flag=True, help="Errors, what could not be done as asked, and the verdict only.")
@click.option("-v", "--verbose", is_flag=True, help="Also every tensor, every place and the time taken.")
def check(paths: tuple[str, ...], **given: Unpack[CheckGiven]) -> int:
    """Check draft checkpoints: the default command."""
    from dataclasses import replace

    from drafcheck.outputs import pairs
    from drafcheck.paths import checkpoints
    from drafcheck.report.model import FailOn, worst
    from drafcheck.runner import examine_many, report_of
    from drafcheck.tree import expand, only_drafts

    outputs = pairs(given["styles"], given["output_files"])
    fail_on = given["fail_on"] if on_command_line("fail_on") else None
    options = options_of(given, given["select"], given["ignore"])
    watched = not given["quiet"] and sys.stderr is not None and sys.stderr.isatty() and len(paths) == 1
    options = replace(options, fail_on=fail_on, lfs=given["lfs"], watched=watched)
    known = _known(given)
    found = (only_drafts if given["only_drafts"] else expand)(checkpoints(paths), given["lfs"])
    with _watched(found.drafts, quiet=given["quiet"]) as drafts:
        examined = examine_many(drafts, options, given["jobs"])
    _hide_known(examined, known, given["write_baseline"])
    report = report_of(examined, found.passed_over, found.unread)
    _publish(report, examined, outputs, given)
    limits = [FailOn(seen.setup.options.fail_on or given["fail_on"]) for seen in examined]
    codes = [c.exit_code(limit) for c, limit in zip(report.checkpoints, limits, strict=True)]
    codes += [2 for left in report.passed_over if left.unread]
    return worst(codes) if codes or not given["only_drafts"] else 0


@cli.command()
@click.argument("path", metavar="CKPT", type=click.Path())
@input_options
@click.option(
    "--format", "style", type=click.Choice(["full", "json"]), default="full", show_default=True, help="Of the plans."
)
@click.option("--output-file", metavar="FILE", type=PathWord(), help="Write the plans there.")
def show(path: str, **given: Unpack[ShowGiven]) -> int:
    """Show what the engine will do with a checkpoint: the three plans as tables.

    Exit codes: 0 also for a checkpoint with faults, 2 wrong usage or internal error, 3 nothing to show.
    """
    from drafcheck.paths import checkpoints
    from drafcheck.report import json, show
    from drafcheck.runner import inspect_one, report_of

    seen = inspect_one(checkpoints([path])[0], options_of(given))
    report = report_of([seen])
    if given["style"] == "json":
        _deliver(json.render(report), given["output_file"])
    else:
        _deliver(show.render(seen, _style(given, given["output_file"])), given["output_file"])
    return report.exit_code if report.exit_code in (2, 3) else 0


@cli.command()
@click.argument("word", metavar="[CODE|NAME]", required=False, type=RuleWord())
@click.option("--all", "everything", is_flag=True, help="The documentation of every rule.")
@click.option("--config", metavar="FILE", type=PathWord(), help="Also the rules of the plugins in these settings.")
def rule(word: str | None, everything: bool, config: str | None) -> int:
    """Explain a rule; without a name, list them all."""
    from drafcheck.output import write_out
    from drafcheck.plugins import with_plugins
    from drafcheck.report import rules as docs
    from drafcheck.report.style import style_for
    from drafcheck.selection import find

    known = with_plugins(config)
    style = style_for("auto", sys.stdout)
    if word is not None:
        write_out(docs.page(find(known, word), style))
    elif everything:
        write_out("\n".join(docs.page(r, style) for r in known.values()))
    else:
        write_out(docs.catalogue(known.values()))
    return 0


def _known(given: CheckGiven) -> Baseline | None:
    """The findings that --baseline lists."""
    from drafcheck.outputs import STDOUT

    if given["write_baseline"] == STDOUT:
        raise UsageError("--write-baseline takes a file, not standard output")
    if given["baseline"] is None:
        return None
    from drafcheck.baseline import read

    if given["write_baseline"] is not None:
        raise UsageError("--baseline and --write-baseline do not go together: the latter writes the whole file anew")
    return read(given["baseline"])


def _hide_known(examined: list[Examination], known: Baseline | None, goal: str | None) -> None:
    """Set the findings of the baseline apart; with --write-baseline those of this run."""
    if known is None and goal is None:
        return
    from drafcheck import baseline

    baseline.hide(examined, known or baseline.write(str(goal), examined))


def _watched(paths: Sequence[str], *, quiet: bool) -> contextlib.AbstractContextManager[Iterable[str]]:
    """``paths``, with a line of progress on standard error when there are several and somebody is looking."""
    from drafcheck.report.text import printable

    if quiet or len(paths) < 2 or sys.stderr is None or not sys.stderr.isatty():
        return contextlib.nullcontext(paths)
    from drafcheck.bar import restored

    bar = click.progressbar(
        paths,
        label="checking",
        show_pos=True,
        item_show_func=lambda path: printable(path)[-40:] if path else "",
        file=sys.stderr,
    )
    return restored(bar)


def _publish(
    report: Report, examined: list[Examination], outputs: list[tuple[str, str | None]], given: CheckGiven
) -> None:
    """Render the report in every format asked for and hand each over, the files first."""
    from drafcheck.report.formats import View, render
    from drafcheck.report.model import FailOn

    for name, goal in sorted(outputs, key=lambda pair: pair[1] is None):
        view = View(
            report,
            FailOn(given["fail_on"]),
            examined,
            style=_style(given, goal),
            quiet=given["quiet"],
            verbose=given["verbose"],
        )
        _deliver(render(name, view), goal)
    _say_verdicts(report, outputs, quiet=given["quiet"])


def _say_verdicts(report: Report, outputs: list[tuple[str, str | None]], *, quiet: bool) -> None:
    """Standard output stays what a script expects; what was and was not checked is said all the same."""
    from drafcheck.output import write_err
    from drafcheck.report.full import closing, matrix_text, passed_over
    from drafcheck.report.style import Style

    printed = {name for name, goal in outputs if goal is None}
    files = any(goal is not None for _, goal in outputs)
    if not printed & {"full", "github"} and (files or "concise" in printed):
        write_err("".join(closing(c, Style(), quiet=quiet) for c in report.checkpoints))
        write_err("".join(f"{line}\n" for line in passed_over(report)))
        write_err(matrix_text(report, Style()))


def _style(given: Given, goal: str | None) -> Style:
    from drafcheck.report.style import style_for

    return style_for(given["color"], None if goal else sys.stdout)


def _deliver(text: str, goal: str | None) -> None:
    from drafcheck.output import write_file, write_out

    if goal:
        write_file(goal, text)
    else:
        write_out(text)


if __name__ == "__main__":
    main()
