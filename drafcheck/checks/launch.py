"""DC701, DC707 and DC708: does the launch line run this drafter, and is it all understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.contract import Table, in_force, load_toml
from drafcheck.draftmode import flag_text, one_of, refusal_text
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.heads import draft_class, head_in, label_of, misfit
from drafcheck.method import chooses, method_of
from drafcheck.plan.admission import looked_for
from drafcheck.registry import Hit, rule
from drafcheck.words import listed

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.launch.model import Launch
    from drafcheck.subject import Subject


def launch_of(s: Subject) -> tuple[Launch, Table]:
    """The launch and what the book says of this engine's; rules that need ``launch`` have it."""
    assert s.launch is not None
    return s.launch, load_toml(s.engine.name, "launch.toml")


def at(launch: Launch, key: str = "") -> Location:
    """Where a key of the launch is given; the command itself without one."""
    option = launch.places.get(key)
    return Location(file=launch.file, line=option.line if option is not None else launch.line)


def algorithm_of(s: Subject) -> str:
    """The algorithm as the launch says it, else the one that the check goes by; in capitals where all are."""
    launch, _ = launch_of(s)
    return launch.said.get("algorithm") or ("" if "algorithm" in launch.given else s.algorithm)


def entries(book: Table, kind: str, s: Subject) -> Iterator[Table]:
    """The entries of ``[[kind]]`` in force, for this algorithm."""
    for entry in book.get(kind, []):
        if s.engine.within(entry.get("versions", "")) and applies(entry, s):
            yield entry


def applies(entry: Table, s: Subject) -> bool:
    """Whether an entry is about this algorithm; one that names none is about all."""
    return "algorithms" not in entry or one_of(algorithm_of(s), entry["algorithms"])


@rule("DC701", "wrong-algorithm", Severity.ERROR, needs=("launch", "config"))
def wrong_algorithm(s: Subject) -> Iterator[Hit]:
    """The launch line runs this drafter with an algorithm that is not its own.

    ## What it does
    Compares the algorithm of the launch line with the kind of head that the config's class builds, and with the
    algorithms that this release has. Where the engine guesses the method from the draft's path, it guesses along. Finds
    launch lines that draft without a draft.

    ## Why is this bad?
    `--speculative-algorithm EAGLE` with an EAGLE-3 head starts, answers, says nothing, and drops the accept length
    from 2.30 to 1.02 (measured on SGLang 0.5.15.post1): `fc` is skipped. EAGLE3 without a draft path takes the target
    for the draft. Other pairs are refused when the weights are loaded.

    ## Fix
    Name the algorithm that the head was trained for.
    """
    launch, book = launch_of(s)
    if launch.misspelt or (not launch.speculates and _may_speculate(s, launch)):
        return  # what is meant is not known, or stands elsewhere, or comes from there: DC708 says so
    if not launch.speculates:
        yield _drafts_nothing(s, launch)
    elif (unknown := _unknown(s, launch, book)) is not None:
        yield unknown
    elif "algorithm" not in launch.given and chooses(s.engine):
        yield from _guessed(s, launch)
    elif misfit(s) is None:
        yield from _other_head(s, launch, book)
    yield from _no_draft(s, launch, book)


def _may_speculate(s: Subject, launch: Launch) -> bool:
    """Whether the engine's own file may say so, or the draft itself is served and names its target."""
    from drafcheck.launch.drafts import compare

    target = launch.said.get("target")
    itself = target is not None and compare(target, path_of(s)) == "same"
    return launch.partial or itself


def path_of(s: Subject) -> str:
    """The checkpoint as a launch line may name it."""
    return s.checkpoint.place.address("").rstrip("/") or "."


def _drafts_nothing(s: Subject, launch: Launch) -> Hit:
    return Hit(
        f"the command starts {s.engine.name} without speculative decoding: this drafter is not used",
        (at(launch),),
        help=f"add {flag_text(s.engine, 'algorithm', s.algorithm)} and the path of the draft",
    )


def _unknown(s: Subject, launch: Launch, book: Table) -> Hit | None:
    """An algorithm that this release does not take, or not in this spelling."""
    from drafcheck.selection import suggestion

    word, entry = launch.said.get("algorithm"), in_force(book.get("algorithms", []), s.engine)
    everywhere = load_toml(s.engine.name, "engine.toml").get("algorithms", [])
    if word is None or (entry is None and one_of(word, everywhere)):
        return None
    names = entry.get("names", everywhere) if entry is not None else everywhere
    if word in names or (entry is not None and entry.get("any_case") and one_of(word, names)):
        return None
    spelled = next((name for name in names if name.lower() == word.lower()), None)
    advice = f"write {spelled}" if spelled else _first_with(s, book, word)
    return Hit(
        f"{s.engine} has no algorithm {word}{'' if advice else suggestion(word, names)}",
        (at(launch, "algorithm"),),
        help=advice or f"one of {', '.join(names)}",
        confidence=Confidence.LIKELY if (entry or {}).get("open") or not s.engine.exact else Confidence.CERTAIN,
        stops=True,
    )


def _first_with(s: Subject, book: Table, word: str) -> str | None:
    """The advice to take a later release, where one has the algorithm."""
    for entry in book.get("algorithms", []):
        low = next((part[2:] for part in entry.get("versions", "").split(",") if part.startswith(">=")), "")
        if low and one_of(word, entry.get("names", [])):
            return f"use {s.engine.name} {low} or later, which has it"
    return None


def _served(s: Subject, kind: str | None) -> list[str]:
    """The algorithms that run a kind of head, those first that this release has."""
    served = load_toml(s.engine.name, "registry.toml").get("algorithms", {}).get(kind, [])
    entry = in_force(load_toml(s.engine.name, "launch.toml").get("algorithms", []), s.engine) or {}
    return sorted(served, key=lambda name: name not in entry.get("names", served))


def unfit(s: Subject) -> tuple[str, list[str]] | None:
    """The kind of head, and the algorithms that run it, when the launch line's algorithm is none of them."""
    if s.config is None or not s.algorithm_launched:
        return None
    _, kind = draft_class(s.engine, s.config, s.contract, s.algorithm)
    head = head_in(s)
    kind = kind or (head.kind if head is not None else None)
    served = _served(s, kind)
    return (str(kind), served) if served and not one_of(s.algorithm, served) else None


def _other_head(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    found = unfit(s)
    if found is None:
        return
    assert s.config is not None
    kind, served = found
    skipped = s.wiring is not None and s.wiring.captured is False and s.wiring.fc_applied is not True
    if skipped and one_of(s.algorithm, book.get("uncaptured", {}).get("algorithms", [])):
        outcome = "the auxiliary hidden states are not captured, and accept length falls to 1"
    else:
        outcome = "it runs another kind of draft"
    yield Hit(
        f"{flag_text(s.engine, 'algorithm', s.algorithm)} does not run {label_of(kind)}: {outcome}",
        (at(launch, "algorithm"), s.config.at("architectures")),
        help=f"write {flag_text(s.engine, 'algorithm', served[0])}",
    )


def _guessed(s: Subject, launch: Launch) -> Iterator[Hit]:
    """No method is given: the engine decides by the draft's path, and by its config."""
    assert s.config is not None
    draft = launch.said.get("draft")
    method = method_of(draft, s.config, s.engine) if draft is not None and not launch.partial else None
    _, kind = draft_class(s.engine, s.config, s.contract, s.algorithm)
    served = _served(s, kind)
    if method is None or kind is None or not served or one_of(method.name, served):
        return
    error = method.error or _classless(s, s.config, method.name)
    ends = f", and stops with {error}" if error else ""
    yield Hit(
        f"no method is given, and {method.because}: {s.engine} takes {label_of(kind)} for {method.name}{ends}",
        (at(launch, "draft"), s.config.at("architectures")),
        help=f"add {flag_text(s.engine, 'algorithm', served[0])}",
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        stops=bool(ends),
    )


def _classless(s: Subject, config: DraftConfig, algorithm: str) -> str:
    """What the release says where it has no class under the name that it then makes; empty where it has one."""
    names = config.architectures
    if not names or draft_class(s.engine, config, None, algorithm)[0] is not None:
        return ""
    return refusal_text(s.engine, "unregistered", looked_for(s.engine, config, names[0], algorithm))


def _no_draft(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    facts, word = book.get("draft", {}), algorithm_of(s)
    if not launch.speculates or {"draft", "config"} & launch.given or launch.open_ended:
        return
    if one_of(word, facts.get("stops", [])):
        yield Hit(
            f"{flag_text(s.engine, 'algorithm', word)} and no draft: {s.engine} stops with {facts['error']}",
            (at(launch, "algorithm"),),
            help="give the path of the draft",
            stops=True,
        )
    elif one_of(word, facts.get("needed", [])):
        yield Hit(
            f"{flag_text(s.engine, 'algorithm', word)} and no draft: {s.engine} takes the target's own weights for it",
            (at(launch, "algorithm"),),
            help="give the path of the draft",
            confidence=Confidence.LIKELY,
        )


@rule("DC707", "other-draft-path", Severity.WARNING, Severity.NOTE, needs=("launch",))
def other_draft_path(s: Subject) -> Iterator[Hit]:
    """The launch line names another draft than the checkpoint at hand.

    ## What it does
    Compares the two by where they lie, or by the repository. In a container a folder has another path than here: then
    the last part of both counts, and a difference is a note.

    ## Why is this bad?
    What is checked is then not what is served.

    ## Fix
    Check the checkpoint that the launch line names, or correct its path.
    """
    from drafcheck.launch.drafts import compare

    launch, _ = launch_of(s)
    draft = launch.said.get("draft")
    path = path_of(s)
    alike = compare(draft, path) if draft is not None else "same"
    if alike == "same":
        return
    yield Hit(
        f"the launch line drafts with {draft}, checked is {path}"
        + ("" if alike == "other" else ": the names differ, which a mount can do"),
        (at(launch, "draft"),),
        severity=Severity.WARNING if alike == "other" else Severity.NOTE,
    )


@rule("DC708", "unresolved-launch", Severity.NOTE, needs=("launch",))
def unresolved_launch(s: Subject) -> Iterator[Hit]:
    """Parts of the launch line come from outside the file.

    ## What it does
    Names the variables, arguments and substitutions that the file does not give a value, a release that the file does
    not say (an image's tag such as `latest`, a digest, a range of versions), and a file of options that the engine
    reads itself. Nothing is run and nothing is guessed: what depends on them is not checked, and the release is the
    installed one or the newest.

    ## Why is this bad?
    It need not be; it says how far the check of the launch line went.

    ## Fix
    Nothing, or say the values with `--tp`, `--dtype`, `--target` and the like.
    """
    launch, _ = launch_of(s)
    if launch.missing:
        verb = "has no value" if len(launch.missing) == 1 else "have no value"
        rest = "; options that it may bring are not known" if launch.open_ended else ""
        yield Hit(f"{listed(launch.missing, 6)} {verb} in the launch file{rest}", (at(launch),))
    if launch.version is None and launch.version_from:
        yield Hit(
            f"the release is not said by the file (`{launch.version_from}`): checked for {s.engine}",
            (at(launch),),
            help=f"say it with --engine {s.engine.name}==VERSION",
        )
    if (o := launch.places.get("config")) is not None:
        yield Hit(
            f"{' '.join((o.written, *(w.text for w in o.values)))} is not read: options may stand there",
            (at(launch, "config"),),
        )
