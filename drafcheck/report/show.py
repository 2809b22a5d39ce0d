"""The three plans as tables a person can read: ``drafcheck show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.producers import producer_of
from drafcheck.report.build import refusal
from drafcheck.report.style import Style
from drafcheck.report.table import table
from drafcheck.report.text import printable
from drafcheck.trained import trained_on
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.finding import Location
    from drafcheck.launch.model import Launch
    from drafcheck.plan.model import LoadPlan, Parameter, VocabularyPlan, WiringPlan, Write
    from drafcheck.runner import Examination
    from drafcheck.subject import Subject

FIRST_IDS = 8
WORTH_SAYING = 0.0005  # seconds

_DROPPED = {
    "design": "not needed by this engine",
    "tied": "the embedding serves as head",
    "unknown": "no parameter of that name",
    "target": "the target's own",
    "no-slot": "the class has no such parameter",
}


def render(seen: Examination, style: Style) -> str:
    """Who made one checkpoint, and its load, wiring and vocabulary plan."""
    subject = seen.subject
    title = style.bold(f"{printable(seen.path)} on {printable(str(seen.engine))}")
    if subject is None:
        return f"{title}\n  could not be read\n"
    blocks = [
        f"{title}{_contract(subject)}\n",
        _section(style, "made by", _producer_lines(subject)),
        *([_section(style, "launch", _launch_lines(subject))] if subject.launch is not None else []),
        _section(style, "load", load_lines(subject)),
        _section(style, "wiring", _wiring_lines(subject, subject.wiring)),
        _section(style, "vocabulary", _vocabulary_lines(subject.vocabulary)),
    ]
    return "\n".join(blocks)


def _launch_lines(subject: Subject) -> str:
    """The launch line as it was understood: what it says, and what it takes from outside."""
    from drafcheck.launch.read import words_of

    launch = subject.launch
    assert launch is not None
    several = f", command {launch.number} of {launch.count}" if launch.count > 1 else ""
    rows = [("from", f"{launch.file}:{launch.line}{several}"), ("engine", _pinned(launch)), *words_of(launch)]
    if launch.missing:
        rows.append(("not in the file", ", ".join(launch.missing)))
    return table([(name.replace("_", " "), printable(said)) for name, said in rows])


def _pinned(launch: Launch) -> str:
    return f"{launch.engine} {launch.version}, by {launch.version_from}" if launch.version else launch.engine


def details(seen: Examination) -> str:
    """What ``-v`` adds to a report: where every tensor goes, and how long each step and rule took."""
    spent = {what: seconds for what, seconds in seen.seconds.items() if seconds >= WORTH_SAYING}
    rows = [(printable(what), f"{1000 * seconds:.1f} ms") for what, seconds in spent.items()]
    rows.append(("everything", f"{1000 * sum(seen.seconds.values()):.1f} ms"))
    load = f"load\n{load_lines(seen.subject)}\n" if seen.subject is not None else ""
    return f"{load}time\n{table(rows)}"


def load_lines(subject: Subject) -> str:
    """Every tensor with the parameter it reaches, then all that is left over on either side."""
    load = subject.load
    refused = refusal(subject)
    stop = f"  the engine stops: {printable(refused.error)}\n" if refused else ""
    if load is None:
        return stop or _unknown("the draft class is not known for this engine, or the files could not be read")
    blocks = [
        table([*(_write(load, w) for w in load.writes), *_map(subject)], ("tensor", "shape", "", "parameter")),
        _names("dropped", ((d.tensor.name, _DROPPED.get(d.why, d.why)) for d in load.dropped)),
        _names("left partly unwritten", ((p.parameter, f"no {', '.join(p.missing)}") for p in load.partial)),
        _names("unwritten", ((name, _initial(load.parameters.get(name))) for name in load.unwritten)),
        _names("filled from the target", ((name, "") for name in load.fills_from_target)),
        _names("not reached", ((t.name, "") for t in load.unread)),
    ]
    return stop + "".join(blocks)


def _contract(subject: Subject) -> str:
    if subject.contract is None:
        return ""
    return printable(f" ({subject.contract.name}, {subject.contract.architecture}, {subject.algorithm})")


def _producer_lines(subject: Subject) -> str:
    """Who wrote the checkpoint, how sure that is, and what says so."""
    told = producer_of(subject)
    if told.producer is None:
        near = f": it could be {' or '.join(told.candidates)}" if told.candidates else ""
        return f"  the files do not say{printable(near)}\n"
    rows = [(printable(e.what), _spot(e.place)) for e in told.producer.evidence]
    return f"  {printable(str(told.producer))}: {told.producer.confidence.value}\n{table(rows, indent='    ')}"


def _spot(place: Location | None) -> str:
    if place is None or place.file is None:
        return ""
    return printable(place.file) + (f":{place.line}" if place.line is not None else "")


def _section(style: Style, name: str, body: str) -> str:
    return f"{style.bold(name)}\n{body}"


def _unknown(why: str) -> str:
    return f"  not known: {why}\n"


def _write(load: LoadPlan, write: Write) -> tuple[str, str, str, str]:
    parameter = load.parameters.get(write.parameter)
    shape = str(list(parameter.shape)) if parameter else ""
    shard = f"[{write.shard}] " if write.shard else ""
    fault = f" ({write.cut} cut off)" if write.cut else f" ({write.short} missing)" if write.short else ""
    return (
        printable(write.tensor.name),
        str(list(write.tensor.shape)),
        "->",
        f"{printable(write.parameter)} {printable(shard)}{shape}{fault}",
    )


def _map(subject: Subject) -> Iterator[tuple[str, str, str, str]]:
    """The vocabulary map reaches no parameter: it becomes an attribute of the model."""
    if subject.load is not None and subject.load.mapping is not None and subject.contract is not None:
        tensor = subject.load.mapping
        attribute = str(subject.contract.mapping.get("attribute", "the vocabulary map"))
        yield printable(tensor.name), str(list(tensor.shape)), "->", attribute


def _initial(parameter: Parameter | None) -> str:
    return f"stays {parameter.initial}" if parameter else ""


def _names(title: str, rows: Iterable[tuple[str, str]]) -> str:
    made = [(printable(name), printable(why)) for name, why in rows]
    return f"  {title}\n{table(made, indent='    ')}" if made else ""


def _wiring_lines(subject: Subject, wiring: WiringPlan | None) -> str:
    if wiring is None:
        return _unknown("no load plan")
    rows = [
        ("hidden states captured", _yes_no(wiring.captured, "unknown: give --target") + _clause(wiring.why_not)),
        ("layers read", _layers(wiring)),
        ("layers trained on", _trained(subject)),
        ("layer ids from", wiring.source),
        ("fc input", _fc(wiring)),
        ("fc applied", _yes_no(wiring.fc_applied)),
        *(("note", note) for note in wiring.notes),
    ]
    return table([(name, printable(said)) for name, said in rows])


def _clause(why: str | None) -> str:
    return f" ({why})" if why else ""


def _yes_no(value: bool | None, unknown: str = "unknown") -> str:
    return unknown if value is None else "yes" if value else "no"


def _layers(wiring: WiringPlan) -> str:
    if wiring.layer_outputs is None:
        return "unknown"
    return "outputs of target layers " + ", ".join(map(str, wiring.layer_outputs)) + " (counted from 0)"


def _trained(subject: Subject) -> str:
    trained = trained_on(subject)
    if trained is None:
        return "the files do not say"
    return (
        f"outputs of target layers {', '.join(map(str, trained.outputs))} ({trained.confidence.value}: {trained.why})"
    )


def _fc(wiring: WiringPlan) -> str:
    built = "unknown" if wiring.fc_in is None else f"{wiring.fc_in} built"
    if wiring.num_aux is not None and wiring.target_hidden is not None:
        built += f" ({wiring.num_aux} x {wiring.target_hidden})"
    return built + (f", {wiring.fed} fed" if wiring.fed is not None else "")


def _vocabulary_lines(vocabulary: VocabularyPlan | None) -> str:
    if vocabulary is None:
        return _unknown("no load plan")
    rows = [
        ("draft vocabulary", _size(vocabulary.draft_vocab)),
        ("target vocabulary", _size(vocabulary.target_vocab)),
        ("head", _head(vocabulary)),
        ("d2t", _mapping(vocabulary)),
    ]
    if vocabulary.targets:
        rows.append(("draft ids 0 ...", f"become tokens {_ids(vocabulary.targets)}"))
    if vocabulary.t2d is not None:
        rows.append(("t2d", f"{sum(map(bool, vocabulary.t2d))} of {plural(len(vocabulary.t2d), 'token')} kept"))
    return table(rows)


def _size(value: int | None) -> str:
    return "not said" if value is None else str(value)


def _head(vocabulary: VocabularyPlan) -> str:
    rows = "none in the file" if vocabulary.head_rows is None else plural(vocabulary.head_rows, "row")
    if vocabulary.tied:
        return f"{rows}; tied to the embedding"
    return f"{rows}; taken from the target" if vocabulary.head_from_target else rows


def _mapping(vocabulary: VocabularyPlan) -> str:
    if vocabulary.raw is None:
        return "none"
    meant = f", meant as {vocabulary.meant}" if vocabulary.meant else ""
    return f"{plural(len(vocabulary.raw), 'value')}, read as {vocabulary.semantics}{meant}: {_ids(vocabulary.raw)}"


def _ids(values: Sequence[int]) -> str:
    more = " ..." if len(values) > FIRST_IDS else ""
    return ", ".join(map(str, values[:FIRST_IDS])) + more
