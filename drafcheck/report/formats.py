"""The formats that ``--format`` knows, each by the module that renders it, which is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.report.style import Style

if TYPE_CHECKING:
    from drafcheck.report.model import FailOn, Report
    from drafcheck.report.sarif import Spans
    from drafcheck.runner import Examination


class View(NamedTuple):
    """What a report is rendered from, and how: ``examined`` are the checkpoints of ``report`` in the same order."""

    report: Report
    fail_on: FailOn
    examined: Sequence[Examination] = ()
    style: Style = Style()
    quiet: bool = False
    verbose: bool = False


def render(name: str, view: View) -> str:
    """The report in the format of that name, a key of FORMATS."""
    return FORMATS[name](view)


def _full(view: View) -> str:
    from drafcheck.report import full

    appendix: dict[int, str] = {}
    if view.verbose:
        from drafcheck.report.show import details

        appendix = {number: details(seen) for number, seen in enumerate(view.examined)}
    return full.render(view.report, style=view.style, quiet=view.quiet, verbose=view.verbose, appendix=appendix)


def _concise(view: View) -> str:
    from drafcheck.report import concise

    return concise.render(view.report, quiet=view.quiet)


def _json(view: View) -> str:
    from drafcheck.report import json

    return json.render(view.report)


def _sarif(view: View) -> str:
    from drafcheck.report import sarif

    return sarif.render(view.report, {number: _spans(seen) for number, seen in enumerate(view.examined)})


def _github(view: View) -> str:
    from drafcheck.report import github

    return github.render(view.report, quiet=view.quiet)


def _gitlab(view: View) -> str:
    from drafcheck.report import gitlab

    return gitlab.render(view.report)


def _junit(view: View) -> str:
    from drafcheck.report import junit
    from drafcheck.report.model import FailOn

    ran = {number: seen.ran for number, seen in enumerate(view.examined)}
    limits = {n: FailOn(own) for n, seen in enumerate(view.examined) if (own := seen.setup.options.fail_on)}
    return junit.render(view.report, ran, fail_on=view.fail_on, limits=limits)


def _markdown(view: View) -> str:
    from drafcheck.report import markdown

    return markdown.render(view.report, quiet=view.quiet)


FORMATS: dict[str, Callable[[View], str]] = {
    "full": _full,
    "concise": _concise,
    "json": _json,
    "sarif": _sarif,
    "github": _github,
    "gitlab": _gitlab,
    "junit": _junit,
    "markdown": _markdown,
}


def _spans(seen: Examination) -> Spans:
    """Where the tensors that the findings point to lie in their files; those whose place is not known are absent."""
    if seen.subject is None:
        return {}
    checkpoint = seen.subject.checkpoint
    wanted = {(place.file, place.tensor) for f in seen.findings for place in f.locations if place.tensor and place.file}
    files = [file for name in sorted({name for name, _ in wanted if name}) if (file := checkpoint.file(name))]
    return {
        (tensor.file, tensor.name): (tensor.start, tensor.stop)
        for file in files
        for tensor in file.header.tensors
        if tensor.start >= 0 and (tensor.file, tensor.name) in wanted
    }
