"""The report as data: what ``--format json`` prints and what ``drafcheck.lint`` returns.

The field names are fixed, because other people's gates parse them; ``schema.json`` beside this
module is generated from these models. New fields may be added, none is renamed or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from drafcheck.finding import Confidence, Finding, Location, Severity, Text, Texts

SCHEMA: Literal["drafcheck-report-1"] = "drafcheck-report-1"
INTERNAL_ERROR = "DC999"
NOTHING_TO_CHECK = "DC001"
STALE = ("DC901", "DC902")
"""The rules about suppressions: they run last, when every checkpoint was checked."""

_EXIT_ORDER = (0, 1, 3, 2)


class Outcome(str, Enum):
    """What becomes of one checkpoint on its engine, in one word; the worst that applies.

    ``clean``: no error and no warning. ``incomplete``: no error and no warning, but drafcheck does not know
    the draft class for this engine, so how it loads was not checked, or values that a
    check needs could not be read, or an option asked for something in vain.
    ``degraded``: warnings only.
    ``broken``: at least one error; the engine starts, or its start could not be worked out.
    ``refused``: the engine will not start with it, as an error says. ``nothing-to-check``: no checkpoint at the path.
    ``internal-error``: drafcheck itself failed; the findings may be incomplete.
    """

    CLEAN = "clean"
    INCOMPLETE = "incomplete"
    DEGRADED = "degraded"
    BROKEN = "broken"
    REFUSED = "refused"
    NOTHING_TO_CHECK = "nothing-to-check"
    INTERNAL_ERROR = "internal-error"


class FailOn(str, Enum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class _Model(BaseModel):
    """Shared settings: built once, never changed; schemas are built on first use, for a quick start."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class EngineInfo(_Model):
    """The engine that the checkpoint was checked for."""

    name: Text
    version: Text


class Loaded(_Model):
    """A tensor and the parameter that it is written to."""

    tensor: Text
    parameter: Text


class Refused(_Model):
    """Why the engine stops; ``tensor`` is null when no single tensor is the cause."""

    tensor: Text | None
    error: Text


class Plan(_Model):
    """What the engine's loader does with every tensor; names in the order of the files."""

    loaded: tuple[Loaded, ...] = ()
    dropped: Texts = Field(default=(), description="tensors that change nothing")
    unwritten: Texts = Field(default=(), description="parameters that nothing fills")
    partial: Texts = Field(default=(), description="fused parameters of which a part stays unwritten")
    refused: Refused | None = None
    fills_from_target: Texts = Field(default=(), description="parameters taken from the target model")


class TrainedOn(_Model):
    """The target layers that the drafter was trained on, as far as its config and its producer tell."""

    layer_outputs: tuple[int, ...] = Field(description="0-based: k is the output of target layer k, -1 the embedding")
    confidence: Confidence
    why: Text


class Wiring(_Model):
    """What the target hands to the drafter; null where it cannot be known."""

    captured: bool | None = None
    layer_outputs: tuple[int, ...] | None = Field(
        default=None, description="0-based: k is the output of target layer k"
    )
    fc_in: int | None = Field(default=None, description="width of fc's input, in elements")
    trained_on: TrainedOn | None = Field(default=None, description="null when nothing says so")


class EvidenceInfo(_Model):
    """One thing that speaks for the producer, and where it stands."""

    what: Text
    location: Location | None = None


class ProducerInfo(_Model):
    """Who wrote the checkpoint, as far as the files tell."""

    name: Text
    version: Text | None = Field(description="as the files say; null when they do not")
    export: Text | None = Field(description="which of its exporters")
    confidence: Confidence
    evidence: tuple[EvidenceInfo, ...]


class Skipped(_Model):
    """A rule that did not run, and why."""

    rule: str
    why: str
    asked: bool = Field(default=False, description="an option asked for it, and what the option names does not fit")


class Suppressed(_Model):
    """A finding that was accepted: it counts neither for the outcome nor for the exit code."""

    finding: Finding
    by: Literal["settings", "baseline"]
    reason: Text | None = Field(default=None, description="as the settings give it")


class Difference(_Model):
    """A draft id whose target token is another one in the reference."""

    draft_id: int
    here: int
    there: int
    here_text: Text | None = Field(default=None, description="the token as a quoted text; null without a tokenizer")
    there_text: Text | None = None


class Compared(_Model):
    """The vocabulary mapping beside that of ``--reference``."""

    path: Text = Field(description="the reference, as given")
    draft_ids: int = Field(description="in the checkpoint")
    reference_ids: int = Field(description="draft ids of the reference")
    agree: int = Field(description="draft ids that mean the same target token")
    shared: int = Field(description="target tokens that both have")
    only_here: int = Field(description="target tokens that only the checkpoint has")
    only_there: int = Field(description="target tokens that only the reference has")
    permutation: bool = Field(description="the same target tokens in another order")
    orphan_rows: int = Field(description="rows of a head in the reference's order that this head has no source for")
    ordered: bool = Field(default=True, description="false: the reference is a t2d alone, taken in the order of ids")
    differences: tuple[Difference, ...] = Field(default=(), description="the first ten")


class HeadBeside(_Model):
    """Rows of the draft's lm_head beside those of the target's (``--target-weights``); shares are from 0 to 1."""

    rows: int = Field(description="draft ids that were looked at")
    agree: float = Field(description="share of them whose row has the neighbours of the token that the mapping names")
    chance: float = Field(description="the share that chance would give")
    verdict: Literal["right", "partly", "wrong", "untold"] = Field(description="of the mapping")
    amiss: float = Field(description="about which share of the rows are those of other tokens; 0 unless that is told")
    readings: dict[str, float] = Field(description="the share for other readings of the mapping that were looked at")
    why: Text | None = Field(default=None, description="why nothing follows")
    columns: int | None = Field(
        default=None, description="of longer rows only so many values were looked at; else null"
    )


class EmbeddingBeside(_Model):
    """Rows of the draft's own embedding beside those of the target's (``--target-weights``)."""

    rows: int = Field(description="rows that were compared")
    differ: int = Field(description="of these, rows that are not the same but for the rounding of another dtype")
    largest: float = Field(description="the largest difference of two values")
    cosine: float = Field(description="the median cosine of the rows that differ; 1 when none does")


class LaunchInfo(_Model):
    """The command that the launch file starts the engine with."""

    file: Text = Field(description="as given; - for standard input")
    line: int = Field(description="from 1")
    command: int = Field(description="which of the file's commands that start an engine, from 1")
    commands: int = Field(description="how many there are")


class CheckpointReport(_Model):
    """Everything said about one checkpoint. ``plan`` and ``wiring`` are null when they could not be worked out."""

    path: Text = Field(description="as given")
    engine: EngineInfo
    algorithm: Text | None
    contract: str | None = Field(description="the draft class description used, such as engine/class")
    target: Text | None = Field(description="the target's config, given or found")
    outcome: Outcome
    findings: tuple[Finding, ...]
    plan: Plan | None
    wiring: Wiring | None
    skipped: tuple[Skipped, ...]
    suppressed: tuple[Suppressed, ...] = ()
    settings: Text | None = Field(default=None, description="the settings file in force")
    producer: ProducerInfo | None = Field(default=None, description="null when the files do not tell")
    reference: Compared | None = Field(default=None, description="null without --reference")
    launch: LaunchInfo | None = Field(default=None, description="null without --launch")
    beside: tuple[EngineInfo, ...] = Field(default=(), description="the other engines that it was checked for")
    values: float | None = Field(
        default=None, description="the share of the tensors' bytes that --values read; null without it"
    )
    head: HeadBeside | None = Field(default=None, description="null without --target-weights, or if not compared")
    embedding: EmbeddingBeside | None = Field(
        default=None, description="null without --target-weights, or if not compared"
    )
    left_out: tuple[str, ...] | None = Field(
        default=None, description="rules that settings in the checkpoint's own folder leave out; null without such"
    )

    def count(self, severity: Severity) -> int:
        """How many findings have this severity."""
        return sum(f.severity is severity for f in self.findings)

    @property
    def partly(self) -> bool:
        """Whether it is ``incomplete`` although the contract is known: what an option asked for was not all done."""
        asked = any(skipped.asked for skipped in self.skipped)
        return self.outcome is Outcome.INCOMPLETE and self.contract is not None and asked

    def exit_code(self, fail_on: FailOn = FailOn.ERROR) -> int:
        """0 clean, 1 findings at or above ``fail_on``, 2 internal error, 3 nothing to check.

        A checkpoint that the engine refuses fails at both thresholds; at the threshold ``warning`` one that
        was not checked in full (``incomplete``) fails as well.
        """
        if self.outcome is Outcome.INTERNAL_ERROR:
            return 2
        if self.outcome is Outcome.NOTHING_TO_CHECK:
            return 3
        if fail_on is FailOn.NEVER:
            return 0
        if self.outcome is Outcome.REFUSED or (fail_on is FailOn.WARNING and self.outcome is Outcome.INCOMPLETE):
            return 1
        limit = Severity(fail_on.value).rank
        return int(any(f.severity.rank <= limit for f in self.findings))


class PassedOver(_Model):
    """A folder below a path that was searched: it looks like a model and was not checked."""

    path: Text
    why: Text
    unread: bool = Field(default=False, description="it may not be opened, so that nothing is known of it: exit code 2")


class First(_Model):
    """The first of the worst findings: an error if there is one, else a warning."""

    rule: str
    name: str
    severity: Severity
    message: Text


class Verdict(_Model):
    """What one engine makes of a checkpoint; ``first`` is null without an error or a warning.

    ``partly``: it is ``incomplete`` although it is known how the engine loads it, as an option asked for something that
    was not done.
    """

    engine: EngineInfo
    outcome: Outcome
    errors: int
    warnings: int
    notes: int
    first: First | None
    partly: bool = False


class Matrix(_Model):
    """One checkpoint beside all engines of a run; each has its own entry in ``checkpoints``, in the same order."""

    path: Text
    engines: tuple[Verdict, ...]


class Summary(_Model):
    """How much was found in all checkpoints together; one that was checked for two engines counts twice."""

    errors: int
    warnings: int
    notes: int
    suppressed: int
    checkpoints: int


class Report(_Model):
    """The whole run: one object, whatever the number of checkpoints."""

    model_config = ConfigDict(frozen=True, defer_build=True, populate_by_name=True, title="drafcheck report")

    schema_: Literal["drafcheck-report-1"] = Field(default=SCHEMA, alias="schema")
    drafcheck: str = Field(description="version of drafcheck")
    summary: Summary
    checkpoints: tuple[CheckpointReport, ...]
    passed_over: tuple[PassedOver, ...] = Field(
        default=(), description="models that are no drafts, in searched folders"
    )

    matrix: tuple[Matrix, ...] = Field(
        default=(), description="which engine takes which checkpoint; empty in runs with one engine"
    )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all checkpoints, in order."""
        return tuple(f for c in self.checkpoints for f in c.findings)

    @property
    def ok(self) -> bool:
        """No error found, something was checked, and drafcheck itself did not fail."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """The exit code of the command line with its default threshold."""
        return self.exit_code_for(FailOn.ERROR)

    def exit_code_for(self, fail_on: FailOn) -> int:
        """The worst exit code of the checkpoints, in the order 0, 1, 3, 2; 2 where a place may not be opened."""
        unread = [2 for left in self.passed_over if left.unread]
        return worst([c.exit_code(fail_on) for c in self.checkpoints] + unread)


def worst(codes: Sequence[int]) -> int:
    """The exit code that decides, in the order 0, 1, 3, 2; 3 of none."""
    return max(codes or [3], key=_EXIT_ORDER.index)


def summarise(checkpoints: Sequence[CheckpointReport]) -> Summary:
    """Add up the findings of ``checkpoints``."""
    return Summary(
        errors=sum(c.count(Severity.ERROR) for c in checkpoints),
        warnings=sum(c.count(Severity.WARNING) for c in checkpoints),
        notes=sum(c.count(Severity.NOTE) for c in checkpoints),
        suppressed=sum(len(c.suppressed) for c in checkpoints),
        checkpoints=len(checkpoints),
    )
