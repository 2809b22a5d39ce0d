"""From paths to a report: reads each checkpoint, works out the plans, runs the rules.

One way only; a step or a rule that crashes is noted as an internal error and everything else still runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from drafcheck import __version__
from drafcheck.checkpoint import open_checkpoint
from drafcheck.checks.internal import crashes
from drafcheck.concerns import concerned
from drafcheck.contract import Engine, contract_for, extended, load_toml
from drafcheck.conversion import AsRead, as_read
from drafcheck.crash import describe
from drafcheck.draftmode import usual_algorithm
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.finding import Finding
from drafcheck.findings import finding_of, is_proven
from drafcheck.heads import told_algorithm
from drafcheck.inputs import read_inputs, refuse_unknown_words
from drafcheck.lookup import settled
from drafcheck.paths import refuse_empty
from drafcheck.plan.admission import chosen_class, refused_early
from drafcheck.plan.files import select_files
from drafcheck.plan.load import plan_load
from drafcheck.plan.quick import warm_up
from drafcheck.plan.vocabulary import plan_vocabulary
from drafcheck.plan.wiring import plan_wiring
from drafcheck.producers import producer_of
from drafcheck.registry import Hit, Rule
from drafcheck.report.model import INTERNAL_ERROR, NOTHING_TO_CHECK, STALE, PassedOver, Report, summarise
from drafcheck.session import Options, Session, Setup
from drafcheck.skipped import ASKED, why_partly, why_skipped
from drafcheck.subject import Subject

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.report.model import Matrix, Suppressed

T = TypeVar("T")
Read = Callable[[], "TargetConfig"]
Places = Sequence[tuple[str, str]]

MANY = 10
"""After so many checkpoints the rest is likely to be worth the import of numpy."""


@dataclass(slots=True)
class Examination:
    """One checkpoint after the rules have run. ``subject`` is None when nothing could be opened.

    ``setup`` is how it was checked. ``suppressed`` are the findings that are accepted, ``used`` the suppressions, by
    position in the settings, that hid one.
    """

    path: str
    setup: Setup
    subject: Subject | None = None
    target: str | None = None
    findings: list[Finding] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    unmet: set[str] = field(default_factory=set)  # of those skipped, the rules that an option asked for in vain
    ran: list[str] = field(default_factory=list)  # codes of the rules that ran
    crashed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stopping: list[Finding] = field(default_factory=list)  # the findings that say that the server will not start
    nothing: bool = False  # no checkpoint at the path, whichever rules were chosen
    suppressed: list[Suppressed] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    @property
    def engine(self) -> Engine:
        """The release that it was checked for."""
        return self.setup.engine

    def attempt(self, what: str, work: Callable[[], T]) -> T | None:
        """The result of ``work``, or None after noting its crash under the name ``what``."""
        start = time.perf_counter()
        try:
            return work()
        except (UsageError, NothingToCheck):
            raise
        except Exception as crash:  # a fault of drafcheck must not hide the other rules
            self.crashed[what] = describe(crash)
            return None
        finally:
            self.seconds[what] = time.perf_counter() - start


def lint(
    path: str | Path,
    *,
    target: str | Path | None = None,
    engine: str | Sequence[str] | None = None,
    algorithm: str | None = None,
    dtype: str | None = None,
    tp: int | None = None,
    launch: str | Path | None = None,
    reference: str | Path | None = None,
    tokenizer: str | Path | None = None,
    values: bool = False,
    target_weights: str | Path | None = None,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    config: str | Path | None = None,
) -> Report:
    """Check one draft checkpoint for one engine version, such as ``sglang==0.5.9``.

    Several releases, in a list or separated by commas, or ``all`` for the newest of each engine, give a report with an
    entry in ``checkpoints`` for each of them, and a ``matrix``.
    ``path`` is a folder or a weight file, or the address of one (``hf://org/name``, ``https://``, ``s3://``,
    ``gs://``); ``target`` the target's folder or config.json (else the one that the draft's config names or
    ``target_config.json`` beside it), ``tokenizer`` what shows its tokens as text (else that in its folder). ``launch``
    is a script, a container file or a manifest that starts the engine: it says what the arguments leave open, and
    nothing in it is run. With ``values`` every tensor is read, not only its header; ``target_weights`` is where the
    target's own weights lie, of which a few rows are compared. ``config`` is a settings file; none is looked for
    without it. Whatever is wrong inside the
    checkpoint is in the report. Raises UsageError for a path that does not exist or may not be opened, an address that
    cannot be reached, and for words that mean nothing (engine, rules, settings).
    """
    refuse_empty(path, target, launch, reference, tokenizer, target_weights, config)
    select, ignore = ((words,) if isinstance(words, str) else words for words in (select, ignore))
    engine = engine if engine is None or isinstance(engine, str) else ",".join(engine)
    options = Options(target, engine, algorithm, dtype, reference, select, ignore, config=config)
    options.tokenizer, options.launch, options.tp = tokenizer, launch, tp
    options.values, options.target_weights = 1.0 if values else None, target_weights
    return lint_many((path,), options)


def lint_many(paths: Sequence[str | Path], options: Options) -> Report:
    """Check several checkpoints with the same options; one report. Raises UsageError as ``lint`` does."""
    return report_of([*examine_many(paths, options)])


def examine_many(paths: Iterable[str | Path], options: Options, jobs: int = 1) -> list[Examination]:
    """Run the chosen rules over every path, each under its own settings; ``jobs`` of them at a time.

    The order of the paths is kept. Raises UsageError as ``lint`` does.
    """
    session = Session(options)
    examined: list[Examination] = []
    for group in _each(paths, session, jobs):
        for seen in group:
            examined.append(seen)
            if len(examined) > 1:
                _release(seen)
            if len(examined) == MANY:
                warm_up()
    settle(examined)
    return examined


def _each(paths: Iterable[str | Path], session: Session, jobs: int) -> Iterator[list[Examination]]:
    """Threads, as what takes time is waiting: for a server, or for a slow disk."""
    if jobs < 2:
        yield from (_for_engines(str(path), session.setup(str(path))) for path in paths)
        return
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[list[Examination]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        for path in paths:
            waiting.append(pool.submit(_for_engines, str(path), session.setup(str(path))))
            if len(waiting) == jobs:
                yield waiting.popleft().result()
        yield from (one.result() for one in waiting)


def _for_engines(path: str, setup: Setup) -> list[Examination]:
    """Check one path for every engine of the run: the checkpoint is opened, and its headers are read, once."""
    if not setup.beside:
        return [examine(path, setup)]
    opened = cache(partial(open_checkpoint, path))
    return [examine(path, one, opened) for one in setup.each()]


def _release(seen: Examination) -> None:
    """Let go of what only the rules look at, the vocabulary tables: 500 checkpoints of 2 MB each would add up."""
    if seen.subject is not None:
        seen.subject.vocabulary = None


def settle(examined: Sequence[Examination]) -> None:
    """Add what only all checkpoints together show: the suppressions that none of them needs."""
    if not any(seen.setup.ignores for seen in examined):
        return
    from drafcheck.suppress import judge

    for seen in judge(examined):
        for rule in seen.setup.chosen.values():
            if rule.code in STALE:
                _run(rule, seen)
        _sort(seen)


def inspect_one(path: str, options: Options) -> Examination:
    """Work out the plans of one checkpoint without running a rule. Raises UsageError as ``lint`` does."""
    setup = Session(options).setup(path)
    if setup.beside:
        raise UsageError(f"the plans are those of one engine: {setup.options.engine} is more than one")
    return examine(path, replace(setup, chosen={}, ignores=()))


def report_of(examined: Sequence[Examination], passed_over: Places = (), unread: Places = ()) -> Report:
    """The report on checkpoints that were examined; ``passed_over`` and ``unread`` were not, each with the why."""
    from drafcheck.report.build import checkpoint_report

    checkpoints = tuple(checkpoint_report(e) for e in examined)
    left = tuple(PassedOver(path=p, why=w, unread=n == 0) for n, ws in enumerate((unread, passed_over)) for p, w in ws)
    matrix: tuple[Matrix, ...] = ()
    if any(c.beside for c in checkpoints):
        from drafcheck.report.matrix import matrix_of

        matrix = matrix_of(checkpoints)
    return Report(
        drafcheck=__version__,
        summary=summarise(checkpoints),
        checkpoints=checkpoints,
        passed_over=left,
        matrix=matrix,
    )


def examine(path: str, setup: Setup, opened: Callable[[], Checkpoint] | None = None) -> Examination:
    """Read one checkpoint, work out the plans and run the rules chosen; accepted findings are set apart.

    ``opened`` gives the checkpoint where it may be open already, for another engine.
    """
    with extended(setup.folders):
        return _examine(path, setup, opened or partial(open_checkpoint, path))


def _examine(path: str, setup: Setup, opened: Callable[[], Checkpoint]) -> Examination:
    seen = Examination(path, setup)
    try:
        seen.subject = prepare(seen, setup.options, opened)
    except NothingToCheck as nothing:
        seen.nothing = True
        seen.findings.append(finding_of(setup.rules[NOTHING_TO_CHECK], Hit(str(nothing))))
        return seen
    for rule in setup.chosen.values():
        if rule.code not in (INTERNAL_ERROR, *STALE):
            _run(rule, seen)
    seen.attempt("telling what can be repaired", lambda: _withdraw(seen))
    if setup.ignores:
        from drafcheck.suppress import hide

        hide(seen)
    seen.findings.extend(finding_of(setup.rules[INTERNAL_ERROR], hit) for hit in crashes(seen.crashed))
    _sort(seen)
    return seen


def _withdraw(seen: Examination) -> None:
    """Call no finding fixable whose repair would have to write a pickle that can not be written again."""
    s = seen.subject
    if (
        s is not None
        and any(not f.is_safetensors for f in s.checkpoint.files)
        and any(f.fixable for f in seen.findings)
    ):
        from drafcheck.fix.possible import settled

        seen.findings = list(settled(s, seen.findings))


def _sort(seen: Examination) -> None:
    seen.findings.sort(key=lambda f: (f.severity.rank, f.rule))


def prepare(seen: Examination, options: Options, opened: Callable[[], Checkpoint]) -> Subject | None:
    """Open the checkpoint and work out everything that the rules look at.

    None when the checkpoint could not even be opened for a fault of drafcheck's own, which ``seen`` then names.
    Raises UsageError and NothingToCheck.
    """
    refuse_unknown_words(seen.engine, options)
    checkpoint = seen.attempt("reading the checkpoint", opened)
    if checkpoint is None:
        return None
    if options.lfs == "config-only" and not checkpoint.config_only:
        checkpoint.without_weights()
    subject = Subject(checkpoint, seen.engine, "", config=checkpoint.config, dtype=options.dtype, crashed=seen.crashed)
    subject.algorithm_given = options.algorithm is not None
    subject.tp, subject.launch = options.tp, seen.setup.launch
    read_inputs(seen, subject, options)
    _plan(seen, subject, options)
    _read_values(seen, subject, options)
    seen.attempt("telling who made it", lambda: producer_of(subject))
    if (reference := subject.reference) is not None:
        from drafcheck.comparison import compare

        work = partial(compare, subject, reference)
        subject.comparison = seen.attempt("comparing with the reference", work)
    return subject


def _plan(seen: Examination, s: Subject, options: Options) -> None:
    if s.config is not None and s.launch is not None:
        s.config.launched = frozenset(key for key, text in s.launch.said.items() if text.lower() == "true")
        said = {key: s.launch.number_of(key) for key in s.launch.said}
        s.config.numbers = {key: number for key, number in said.items() if number is not None}
    s.selection = seen.attempt("selecting weight files", lambda: select_files(s.checkpoint, s.engine))
    if s.config is not None:
        _choose(seen, s, s.config, options.algorithm)
    s.algorithm = options.algorithm or _algorithm(s)
    config, selection, contract = s.config, s.selection, s.contract
    if config is None or selection is None or contract is None:
        return
    runner = options.runner or _launched_runner(s)
    unread = s.refused if s.refused is not None and s.refused.cause == "config-key" else None
    s.load = seen.attempt("the load plan", lambda: plan_load(config, selection, contract, s.checkpoint.read, unread))
    s.wiring = seen.attempt(
        "the wiring plan",
        lambda: plan_wiring(config, s.target, s.target_class, contract, s.engine, s.algorithm, s.load, runner),
    )
    s.vocabulary = seen.attempt(
        "the vocabulary plan", lambda: plan_vocabulary(s.checkpoint, config, s.target, contract, s.load)
    )


def _read_values(seen: Examination, s: Subject, options: Options) -> None:
    """Read the tensors of the files that the loader takes, if that is asked for."""
    share, selection = options.values, s.selection
    if share is None or selection is None or not selection.files:
        return
    from drafcheck.valuescan.progress import watched
    from drafcheck.valuescan.scan import scan, total

    files = selection.files
    with watched(total(files, share) if options.watched else 0) as progress:
        s.values = seen.attempt("reading the values", lambda: scan(files, share, progress))


def _launched_runner(s: Subject) -> str:
    """The model runner that the launch's environment asks for; empty when it asks for none."""
    facts = load_toml(s.engine.name, "engine.toml")
    value = s.launch.env.get(facts.get("runner_variable", ""), "") if s.launch is not None else ""
    return str(facts.get("runner_values", {}).get(value.lower(), ""))


def _choose(seen: Examination, s: Subject, config: DraftConfig, given: str | None) -> None:
    """The config as the engine reads it, and the draft class that it builds from it, or why it builds none."""
    read = seen.attempt("reading the config as the engine does", lambda: as_read(s.engine, config)) or AsRead(config)
    s.config = config = read.config
    config.target = s.target
    s.algorithm = given or read.algorithm or usual_algorithm(s.engine, config, told_algorithm(s, config))
    meant = s.engine, config, s.algorithm
    s.refused = read.refused or seen.attempt("admitting the config", lambda: refused_early(*meant, s.target))
    if read.refused is None:
        s.contract = seen.attempt("choosing a contract", lambda: contract_for(s.engine, chosen_class(*meant)))
    if s.contract is not None:
        s.undescribed = s.contract.undescribed(config, s.checkpoint.other)
        s.contract = None if s.undescribed is not None else settled(s.contract, config)


def _algorithm(s: Subject) -> str:
    """The algorithm that the draft class is made for, else the engine's usual one."""
    if s.contract is not None and s.contract.algorithms:
        return s.contract.algorithms[0]
    return s.algorithm or str(load_toml(s.engine.name, "engine.toml").get("default_algorithm", ""))


def _run(rule: Rule, seen: Examination) -> None:
    """Run one rule, or note why it can not run."""
    subject = seen.subject
    if subject is None:
        seen.skipped.append((rule.code, "the checkpoint could not be read"))
        return
    missing = next((need for need in rule.needs if not subject.has(need)), None)
    if missing is not None:
        seen.skipped.append((rule.code, why_skipped(subject, missing)))
        if missing in ASKED:
            seen.unmet.add(rule.code)
        return
    seen.ran.append(rule.code)
    if rule.concerns and not seen.attempt("telling what is concerned", lambda: concerned(subject, rule.concerns)):
        return
    seen.attempt(f"rule {rule.code} {rule.name}", lambda: _collect(rule, subject, seen))


def _collect(rule: Rule, subject: Subject, seen: Examination) -> None:
    for hit in rule.check(subject):
        finding = finding_of(rule, hit, proven=is_proven(rule, subject))
        seen.findings.append(finding)
        if hit.stops:
            seen.stopping.append(finding)
    if (why := why_partly(subject, rule)) is not None:
        seen.skipped.append((rule.code, why))
        seen.unmet.add(rule.code)
