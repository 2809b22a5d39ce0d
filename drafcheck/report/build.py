"""The report on one checkpoint, from what the runner saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.finding import Severity
from drafcheck.report.model import (
    INTERNAL_ERROR,
    NOTHING_TO_CHECK,
    STALE,
    CheckpointReport,
    Compared,
    Difference,
    EmbeddingBeside,
    EngineInfo,
    EvidenceInfo,
    HeadBeside,
    LaunchInfo,
    Loaded,
    Outcome,
    Plan,
    ProducerInfo,
    Refused,
    Skipped,
    TrainedOn,
    Wiring,
)
from drafcheck.trained import trained_on

if TYPE_CHECKING:
    from drafcheck.plan.model import LoadPlan, Refusal, WiringPlan
    from drafcheck.runner import Examination
    from drafcheck.subject import Subject


def checkpoint_report(seen: Examination) -> CheckpointReport:
    """Everything that is said about one checkpoint."""
    subject, settings = seen.subject, seen.setup.settings
    return CheckpointReport(
        path=seen.path,
        engine=EngineInfo(name=seen.engine.name, version=seen.engine.version),
        algorithm=(subject.algorithm or None) if subject else None,
        contract=subject.contract.name if subject and subject.contract else None,
        target=seen.target,
        outcome=outcome(seen),
        findings=tuple(seen.findings),
        plan=_plan(subject) if subject else None,
        wiring=_wiring(subject, subject.wiring) if subject and subject.wiring else None,
        skipped=tuple(Skipped(rule=code, why=why, asked=code in seen.unmet) for code, why in seen.skipped),
        suppressed=tuple(seen.suppressed),
        beside=tuple(EngineInfo(name=e.name, version=e.version) for e in seen.setup.beside),
        settings=settings.shown if settings is not None else None,
        left_out=seen.setup.left_out,
        launch=_launch(seen),
        values=subject.values.read if subject and subject.values is not None else None,
        producer=_producer(subject) if subject else None,
        reference=_compared(subject) if subject else None,
        head=_head(subject) if subject else None,
        embedding=_embedding(subject) if subject else None,
    )


def _producer(subject: Subject) -> ProducerInfo | None:
    told = subject.producer
    if told is None:
        return None
    evidence = tuple(EvidenceInfo(what=e.what, location=e.place) for e in told.evidence)
    return ProducerInfo(
        name=told.name, version=told.version, export=told.export, confidence=told.confidence, evidence=evidence
    )


def outcome(seen: Examination) -> Outcome:
    """The worst outcome that applies."""
    codes = {f.rule for f in seen.findings}
    severities = {f.severity for f in seen.findings if f.rule not in STALE}  # those are no fault of the checkpoint
    if INTERNAL_ERROR in codes:
        return Outcome.INTERNAL_ERROR
    if NOTHING_TO_CHECK in codes or seen.nothing:
        return Outcome.NOTHING_TO_CHECK
    if _stops(seen, Severity.ERROR in severities):
        return Outcome.REFUSED
    if Severity.ERROR in severities:
        return Outcome.BROKEN
    if Severity.WARNING in severities:
        return Outcome.DEGRADED
    return Outcome.CLEAN if _complete(seen) else Outcome.INCOMPLETE


def _complete(seen: Examination) -> bool:
    """Whether its loading was worked out, and everything was done that was asked for."""
    s = seen.subject
    planned = s is not None and s.load is not None and not s.checkpoint.config_only
    return planned and not seen.unmet and not (s is not None and s.values is not None and s.values.unread)


def _stops(seen: Examination, has_errors: bool) -> bool:
    """Whether the engine will not start: as an error says, or as a plan does beside one.

    What was accepted, or is said by rules that were not chosen, does not count; and a plan that refuses without any
    error, while every rule ran, is a gap between the rules, which must not pass for healthy.
    """
    told = [f for f in seen.stopping if f.severity is Severity.ERROR and any(f is left for left in seen.findings)]
    refused = seen.subject is not None and refusal(seen.subject) is not None
    everything = not seen.suppressed and len(seen.setup.chosen) == len(seen.setup.rules)
    return bool(told) or (refused and (has_errors or everything))


def refusal(subject: Subject) -> Refusal | None:
    """Why the engine stops, if a plan says that it does: on the config, on the files, or on what is in them."""
    if subject.refused is not None:
        return subject.refused
    if subject.load is not None and subject.load.refused is not None:
        return subject.load.refused
    return subject.selection.refused if subject.selection is not None else None


def _plan(subject: Subject) -> Plan | None:
    """What will be loaded; only the refusal where the engine stops before it comes to that, or the weights are away."""
    refused, load = refusal(subject), subject.load
    if load is None or subject.refused is not None or subject.checkpoint.config_only:
        return Plan(refused=_refused(refused)) if refused is not None else None
    return Plan(
        loaded=(*(Loaded(tensor=w.tensor.name, parameter=w.parameter) for w in load.writes), *_mapping(subject, load)),
        dropped=tuple(load.dropped.names),
        unwritten=tuple(load.unwritten),
        partial=tuple(p.parameter for p in load.partial),
        refused=_refused(refused) if refused else None,
        fills_from_target=tuple(load.fills_from_target),
    )


def _mapping(subject: Subject, load: LoadPlan) -> tuple[Loaded, ...]:
    attribute = str(subject.contract.mapping.get("attribute", "")) if subject.contract is not None else ""
    return tuple(Loaded(tensor=t.name, parameter=attribute) for t in load.mappings)


def _launch(seen: Examination) -> LaunchInfo | None:
    launch = seen.setup.launch
    if launch is None:
        return None
    return LaunchInfo(file=launch.file, line=launch.line, command=launch.number, commands=launch.count)


def _refused(refused: Refusal) -> Refused:
    return Refused(tensor=refused.tensor.name if refused.tensor else None, error=refused.error)


def _wiring(subject: Subject, wiring: WiringPlan) -> Wiring:
    trained = trained_on(subject)
    return Wiring(
        captured=wiring.captured,
        layer_outputs=wiring.layer_outputs,
        fc_in=wiring.fc_in,
        trained_on=TrainedOn(layer_outputs=trained.outputs, confidence=trained.confidence, why=trained.why)
        if trained is not None
        else None,
    )


def _head(subject: Subject) -> HeadBeside | None:
    """What a rule has asked of the heads; nothing is read for the report alone."""
    told = subject.head_beside
    if told is None or told.found is None:
        return None
    found = told.found
    _, *others = found.agree.items()
    return HeadBeside(
        rows=found.sampled,
        agree=found.named,
        chance=found.chance,
        verdict=found.verdict,
        amiss=found.amiss if found.verdict in ("partly", "wrong") else 0,
        readings=dict(others),
        why=told.why,
        columns=found.columns,
    )


def _embedding(subject: Subject) -> EmbeddingBeside | None:
    told = subject.embedding_beside
    return EmbeddingBeside(**told.found._asdict()) if told is not None and told.found is not None else None


def _compared(subject: Subject) -> Compared | None:
    found, reference = subject.comparison, subject.reference
    if found is None or reference is None:
        return None
    return Compared(
        path=reference.path,
        draft_ids=found.size_here,
        reference_ids=found.size_there,
        agree=found.agree,
        shared=found.shared,
        only_here=found.only_here,
        only_there=found.only_there,
        permutation=found.permutation,
        orphan_rows=found.orphan_rows,
        ordered=found.ordered,
        differences=tuple(Difference(**d._asdict()) for d in found.differences),
    )
