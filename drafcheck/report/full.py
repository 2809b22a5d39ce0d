"""The report for people: the fact, the places that disagree, what to do; then what was checked and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.report.model import CheckpointReport, LaunchInfo, Outcome, Report, Suppressed
from drafcheck.report.place import detail, named, place
from drafcheck.report.style import Style
from drafcheck.report.text import printable
from drafcheck.words import are, ends, plural

PLACES = 6

_VERDICTS = {
    Outcome.CLEAN: "clean",
    Outcome.INCOMPLETE: "no fault found, but how it loads was not checked",
    Outcome.DEGRADED: "loads, but expect a loss",
    Outcome.BROKEN: "broken",
    Outcome.REFUSED: "the engine refuses it",
    Outcome.NOTHING_TO_CHECK: "nothing to check",
    Outcome.INTERNAL_ERROR: "drafcheck failed, so this is not the whole truth",
}


def render(
    report: Report,
    *,
    style: Style | None = None,
    quiet: bool = False,
    verbose: bool = False,
    appendix: Mapping[int, str] | None = None,
) -> str:
    """The whole report as text. ``quiet``: errors and the summary only; ``verbose``: every place of every finding.

    ``appendix`` holds text to print after the findings of the checkpoint at that position.
    """
    paint = style or Style()
    blocks: list[str] = []
    for number, checkpoint in enumerate(report.checkpoints):
        blocks += [paint.bold(f"{printable(named(checkpoint))}:") + "\n"] if checkpoint.beside else []
        shown = [f for f in checkpoint.findings if not quiet or f.severity is Severity.ERROR]
        blocks += [_finding(checkpoint, f, paint, verbose) for f in shown]
        blocks += [_suppressed(checkpoint, s, paint) for s in checkpoint.suppressed] if verbose else []
        blocks += [appendix[number]] if appendix and number in appendix else []
        blocks.append(closing(checkpoint, paint, quiet=quiet))
    blocks += ["".join(f"{line}\n" for line in lines)] if (lines := passed_over(report, verbose=verbose)) else []
    blocks += [matrix] if (matrix := matrix_text(report, paint)) else []
    if (several := len({c.path for c in report.checkpoints})) > 1:
        blocks.append(paint.bold(f"{several} checkpoints: {total(report)}") + "\n")
    return "\n".join(blocks)


def matrix_text(report: Report, style: Style) -> str:
    """Which engine takes which checkpoint; empty for a run with one engine."""
    if not report.matrix:
        return ""
    from drafcheck.report.matrix import render

    return render(report, style)


def closing(checkpoint: CheckpointReport, style: Style, *, quiet: bool = False) -> str:
    """The last lines on one checkpoint: what was checked, what was not, and the verdict."""
    silent = quiet or checkpoint.outcome is Outcome.NOTHING_TO_CHECK
    lines = [] if silent else [checked(checkpoint), *beside(checkpoint), *skipped(checkpoint), *repairable(checkpoint)]
    return "".join(f"{line}\n" for line in [*lines, *unmet(checkpoint), verdict(checkpoint, style)])


def verdict(checkpoint: CheckpointReport, style: Style) -> str:
    """One line such as ``ckpt: broken: 2 errors, 1 note``."""
    counts = [plural(n, s.value) for s in Severity if (n := checkpoint.count(s))]
    counts += [f"{len(checkpoint.suppressed)} suppressed"] if checkpoint.suppressed else []
    words = _outcome(checkpoint) + (f": {', '.join(counts)}" if counts else "")
    return style.bold(f"{printable(named(checkpoint))}: {words}{printable(_by_itself(checkpoint))}")


def _by_itself(checkpoint: CheckpointReport) -> str:
    """What the settings that a checkpoint brings along hide of it."""
    if checkpoint.left_out is None:
        return ""
    many = sum(suppressed.by == "settings" for suppressed in checkpoint.suppressed)
    hidden = [f"{plural(len(checkpoint.left_out), 'rule')} left out"] if checkpoint.left_out else []
    hidden += [f"{plural(many, 'finding')} suppressed"] if many else []
    by = f"{checkpoint.settings}, which lies in the checkpoint itself"
    return f"; {' and '.join(hidden)} by {by}" if hidden else ""


def _outcome(checkpoint: CheckpointReport) -> str:
    if checkpoint.partly:
        return "no fault found, but not everything was checked"
    return _VERDICTS[checkpoint.outcome]


def skipped(checkpoint: CheckpointReport) -> Iterator[str]:
    """Lines such as ``skipped: 4 rules need --target``."""
    yield from _unrun(checkpoint, "skipped", asked=False)


def unmet(checkpoint: CheckpointReport) -> Iterator[str]:
    """The same of rules that an option asked for: said even where nothing else is, as somebody counts on them."""
    yield from _unrun(checkpoint, "not done as asked", asked=True)


def _unrun(checkpoint: CheckpointReport, label: str, *, asked: bool) -> Iterator[str]:
    for why, count in Counter(s.why for s in checkpoint.skipped if s.asked is asked).items():
        need = why.removeprefix("needs ")
        verb = ": " if need == why else " needs " if count == 1 else " need "
        yield f"{label}: {plural(count, 'rule')}{verb}{printable(need)}"


def repairable(checkpoint: CheckpointReport) -> Iterator[str]:
    """A line such as ``repairable: 2 findings, by drafcheck fix`` when there are any."""
    many = sum(finding.fixable for finding in checkpoint.findings)
    if many:
        yield f"repairable: {plural(many, 'finding')}, by `drafcheck fix` (--diff shows what it would change)"


def passed_over(report: Report, *, verbose: bool = False) -> list[str]:
    """What was found below the paths and not checked, a line each: the first six, all of them when ``verbose``."""
    shown = report.passed_over if verbose else report.passed_over[:PLACES]
    lines = [
        f"{'not checked' if left.unread else 'passed over'}: {printable(left.path)}: {printable(left.why)}"
        for left in shown
    ]
    more = len(report.passed_over) - len(shown)
    return lines + ([f"passed over: {plural(more, 'more folder')}"] if more else [])


def _finding(checkpoint: CheckpointReport, finding: Finding, style: Style, verbose: bool) -> str:
    title = style.severity(finding.severity, f"{finding.severity.value}[{finding.rule} {finding.name}]")
    lines = [f"{title}: {style.bold(printable(finding.message))}"]
    lines += _places(checkpoint, finding, style, None if verbose else PLACES)
    if finding.help:
        lines.append(f"  {style.mark('= help:')} {printable(finding.help)}")
    if finding.confidence is not Confidence.CERTAIN:
        lines.append(f"  {style.mark('= confidence:')} {finding.confidence.value}")
    return "".join(f"{line}\n" for line in lines)


def _suppressed(checkpoint: CheckpointReport, suppressed: Suppressed, style: Style) -> str:
    """An accepted finding, for -v: who accepted it comes last."""
    text = _finding(checkpoint, suppressed.finding, style, verbose=False)
    by = suppressed.reason if suppressed.reason is not None else f"the {suppressed.by} lists it"
    return f"suppressed {text}  {style.mark('= reason:')} {printable(by)}\n"


def _places(checkpoint: CheckpointReport, finding: Finding, style: Style, most: int | None) -> Iterator[str]:
    for location in finding.locations[:most]:
        inside = detail(location)
        yield f" {style.mark('-->')} {place(checkpoint, location)}{f' ({inside})' if inside else ''}"
    if most is not None and len(finding.locations) > most:
        yield f" {style.mark('-->')} and {len(finding.locations) - most} more"


def checked(checkpoint: CheckpointReport) -> str:
    """One line that says for which engine, class, algorithm and target the checkpoint was checked."""
    engine = f"{checkpoint.engine.name} {checkpoint.engine.version}"
    parts = [engine, f"contract {checkpoint.contract}" if checkpoint.contract else "no contract for its class"]
    parts += [f"algorithm {checkpoint.algorithm}"] if checkpoint.algorithm else []
    parts += [f"target {checkpoint.target}" if checkpoint.target else "no target"]
    parts += [f"{_per_cent(checkpoint.values)} of the values"] if checkpoint.values is not None else []
    parts += [_launch(checkpoint.launch)] if checkpoint.launch is not None else []
    parts += [f"settings {checkpoint.settings}"] if checkpoint.settings else []
    return printable("checked for " + ", ".join(parts))


def beside(checkpoint: CheckpointReport) -> Iterator[str]:
    """What --target-weights say of head and embedding: the numbers, also where all is well."""
    head, embedding = checkpoint.head, checkpoint.embedding
    if head is not None:
        reading, share = max(head.readings.items(), key=lambda told: told[1], default=("", 0.0))
        other = f", read as {reading} {share:.1%}" if head.readings else ""
        part = f", by the first {plural(head.columns, 'value')} of a row" if head.columns is not None else ""
        yield (
            f"lm_head beside the target's: {head.agree:.1%} of {plural(head.rows, 'sampled row')} have the neighbours "
            f"of the token that the mapping names (by chance {head.chance:.1%}{other}){part}"
        )
    if embedding is not None:
        differ = (
            f"{embedding.differ} of {plural(embedding.rows, 'sampled row')} differ{ends(embedding.differ)}, by up to "
            f"{embedding.largest:.3g}"
        )
        same = f"{plural(embedding.rows, 'sampled row')} {are(embedding.rows)} the same"
        yield f"embed_tokens beside the target's: {differ if embedding.differ else same}"


def _per_cent(share: float) -> str:
    """Never all of it where something is left out, and never nothing where something was read."""
    if 0 < share < 0.095:
        return f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"
    return "less than 100%" if 0.995 <= share < 1 else f"{share:.0%}"


def _launch(launch: LaunchInfo) -> str:
    """Such as ``launch serve.sh:3 (command 1 of 2)``."""
    several = f" (command {launch.command} of {launch.commands})" if launch.commands > 1 else ""
    return f"launch {launch.file}:{launch.line}{several}"


def total(report: Report) -> str:
    """How much was found in all checkpoints together, such as ``2 errors, 1 note``."""
    summary = report.summary
    counts = {"error": summary.errors, "warning": summary.warnings, "note": summary.notes}
    found = ", ".join(plural(n, noun) for noun, n in counts.items() if n) or "no findings"
    return f"{found}, {summary.suppressed} suppressed" if summary.suppressed else found
