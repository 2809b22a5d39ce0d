"""DC702, DC703 and DC705: options that this release does not have, misses, or does not take together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.launch import applies, at, entries, launch_of
from drafcheck.checks.launch_numbers import numbers
from drafcheck.contract import Table
from drafcheck.draftmode import one_of
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed, plural

if TYPE_CHECKING:
    from drafcheck.launch.model import Launch, Option
    from drafcheck.subject import Subject


_MOST = 20
"""Options that are looked at one by one; the others are found together."""


def spelled(book: Table, key: str) -> str:
    """The usual spelling of what a key of launch.toml stands for."""
    nested = book.get("json", {}).get("keys", {})
    return f'"{nested[key]}"' if key in nested else str(book["options"][key][0])


@rule("DC702", "unknown-flag", Severity.ERROR, needs=("launch",))
def unknown_flag(s: Subject) -> Iterator[Hit]:
    """The launch line has an option that this release does not take, or not so.

    ## What it does
    Takes the options apart as the engine's parser does (abbreviations, `--key=value`, underscores where it allows
    them) and looks each up among those of this release: read from its sources.

    ## Why is this bad?
    The server does not start: `unrecognized arguments`. The spelling may be another engine's, or another release's.

    ## Fix
    Write the option as this release has it.
    """
    from drafcheck.launch.model import UNKNOWN

    launch, book = launch_of(s)
    faulty = [option for option in launch.options if option.fault]
    for option in faulty[:_MOST]:
        hit = _not_known(s, launch, option, book) if option.fault == UNKNOWN else _not_so(s, launch, option)
        if hit is not None:
            yield hit
    yield from _rest(s, launch, faulty[_MOST:])
    yield from _keys(s, launch, book)
    for line in launch.cut:
        yield Hit(
            f"line {line} has a backslash with a blank behind it: the command ends there, and gets the blank",
            (Location(file=launch.file, line=line),),
            help="remove the blank",
            confidence=Confidence.LIKELY,
            stops=True,
        )
    for wrong in launch.wrong:
        place = at(launch, book.get("json", {}).get("option", ""))
        yield Hit(f"{wrong}: {s.engine} does not start", (place,), help="mend the quotes and commas", stops=True)
    if launch.strays and not launch.open_ended and launch.options:
        yield Hit(
            f"{s.engine} stops on what belongs to no option: {' '.join(word.text for word in launch.strays)}",
            (Location(file=launch.file, line=launch.strays[0].line),),
            help="a switch takes no value, and a value with blanks needs quotes",
            confidence=Confidence.LIKELY,
            stops=True,
        )


def _rest(s: Subject, launch: Launch, faulty: list[Option]) -> Iterator[Hit]:
    """One finding for all that follow: what each may have meant is not looked for."""
    from drafcheck.launch.model import NEEDS_VALUE, UNKNOWN
    from drafcheck.launch.releases import flags_ever

    ever = flags_ever(s.engine.name) if faulty and not s.engine.exact else frozenset()
    unsaid = {NEEDS_VALUE} if launch.open_ended else set()
    rest = [o for o in faulty if o.fault not in unsaid and not (o.fault == UNKNOWN and o.name in ever)]
    if rest:
        names = list(dict.fromkeys(option.written for option in rest))
        yield Hit(
            f"{s.engine} does not take {count(len(rest), 'more option')} either: {listed(names, 5)}",
            (Location(file=launch.file, line=rest[0].line),),
            confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
            stops=True,
        )


def _not_known(s: Subject, launch: Launch, option: Option, book: Table) -> Hit | None:
    from drafcheck.launch.arguments import flags_of
    from drafcheck.launch.releases import flag_history
    from drafcheck.selection import suggestion

    history = flag_history(s.engine.name, option.name)
    if not s.engine.exact and history:
        return None  # a release in between, of which the book knows no list of its own
    instead = book.get("foreign", {}).get(option.name)
    near = (
        "" if history or instead is not None else suggestion(option.name, flags_of(s.engine.name, str(s.engine.known)))
    )
    told = f" ({history})" if history else ""
    return Hit(
        f"{s.engine} has no option {option.written}{told}{near.replace('; did', ': did')}",
        (Location(file=launch.file, line=option.line),),
        help=f"write {instead}" if instead else "leave it out" if instead == "" else None,
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        stops=True,
    )


def _not_so(s: Subject, launch: Launch, option: Option) -> Hit | None:
    from drafcheck.launch.model import AMBIGUOUS, NEEDS_VALUE, NO_VALUE, REFUSED

    said = {
        AMBIGUOUS: f"{option.written} may be {_candidates(s, option)}",
        NO_VALUE: f"{option.written} is a switch and takes no value",
        REFUSED: f"{option.written} is not taken any more",
        NEEDS_VALUE: f"{option.written} has no value behind it",
    }.get(option.fault)
    if said is None or (option.fault == NEEDS_VALUE and launch.open_ended):
        return None
    return Hit(
        f"{said}: {s.engine} does not start",
        (Location(file=launch.file, line=option.line),),
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        stops=True,
    )


def _candidates(s: Subject, option: Option) -> str:
    """The options that an abbreviation may stand for, and when it was one itself."""
    from drafcheck.launch.arguments import flags_of
    from drafcheck.launch.releases import flag_history

    longer = sorted(flag for flag in flags_of(s.engine.name, str(s.engine.known)) if flag.startswith(option.name))
    history = flag_history(s.engine.name, option.name)
    return " or ".join(longer[:4]) + (f" ({history})" if history else "")


def _keys(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    """Keys in an option that holds JSON."""
    from drafcheck.launch.arguments import json_of

    known = {name for entry in entries(book, "known", s) for name in entry["names"].split()}
    everywhere = {name for entry in book.get("known", []) for name in entry["names"].split()}
    names = book.get("options", {}).get(book.get("json", {}).get("option", ""), [])
    left = _MOST
    for option in launch.options if known else []:
        name, dot, route = option.name.partition(".")
        keys = [route.partition(".")[0].replace("-", "_")] if dot else [*(json_of(option) or {})]
        for key in keys if name in names else []:
            for hit in _key(s, option, key, known, everywhere) if left else ():
                left -= 1
                yield hit


def _key(s: Subject, option: Option, key: str, known: set[str], everywhere: set[str]) -> Iterator[Hit]:
    from drafcheck.selection import suggestion

    launch, _ = launch_of(s)
    if key not in known and (s.engine.exact or key not in everywhere):
        elsewhere = (
            " (other releases have it)" if key in everywhere else suggestion(key, known).replace("; did", ": did")
        )
        yield Hit(
            f"{s.engine} has no key {key} in {option.name.partition('.')[0]}{elsewhere}",
            (Location(file=launch.file, line=option.line),),
            confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
            stops=True,
        )


@rule("DC703", "missing-flag", Severity.ERROR, needs=("launch",))
def missing_flag(s: Subject) -> Iterator[Hit]:
    """The launch line lacks an option that the others need.

    ## What it does
    Looks for options that this release wants together, and for those that it has no default for. Nothing is said where
    a variable of the launch file may bring them.

    ## Why is this bad?
    The server does not start, on SGLang with a bare `AssertionError` or a `TypeError`.

    ## Fix
    Give the option, or leave out all of its group.
    """
    launch, book = launch_of(s)
    if launch.open_ended or launch.misspelt or "config" in launch.given or not launch.speculates:
        return
    for entry in entries(book, "together", s):
        others = [key for key in entry["others"] if key in launch.given]
        if entry["first"] not in launch.given and others and not set(entry.get("unless", [])) & launch.given:
            yield Hit(
                f"{' and '.join(spelled(book, key) for key in others)} without {spelled(book, entry['first'])}: "
                f"{s.engine} stops at start ({entry['error']})",
                (at(launch, others[0]),),
                help=f"add {spelled(book, entry['first'])}, or leave out all of them",
                stops=True,
            )
    yield from _lacking(s, launch, book)


def _lacking(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    for entry in entries(book, "without", s):
        above = "above" not in entry or (launch.number_of(entry["given"]) or 0) > entry["above"]
        if entry["given"] in launch.given and entry["missing"] not in launch.given and above:
            yield Hit(
                f"{spelled(book, entry['given'])} without {spelled(book, entry['missing'])}: "
                f"{s.engine} stops ({entry['error']})",
                (at(launch, entry["given"]),),
                help=f"add {spelled(book, entry['missing'])}",
                confidence=Confidence.LIKELY if entry.get("likely") else Confidence.CERTAIN,
                stops=True,
            )
    for entry in entries(book, "required", s):
        if entry["key"] not in launch.given:
            yield Hit(
                f"no {spelled(book, entry['key'])}: {s.engine} has no default for it ({entry['error']})",
                (at(launch, "algorithm" if "algorithm" in launch.given else "speculative"),),
                help=f"add {spelled(book, entry['key'])}",
                stops=True,
            )


@rule("DC705", "flag-conflict", Severity.ERROR, Severity.NOTE, needs=("launch",))
def flag_conflict(s: Subject) -> Iterator[Hit]:
    """Values of the launch line do not go together.

    ## What it does
    Compares steps, topk and draft tokens with the tree that they make, topk with page size and attention backend as
    this release does, and the tensor parallelism of the draft with that of the target. Finds values that are no
    integers, or too small ones. A note where the engine puts it right by itself, with a warning: topk 1 makes one chain
    of steps + 1 tokens.

    ## Why is this bad?
    The server does not start, dies at the first request, or runs with other numbers than the launch line says.

    ## Fix
    Give values that go together: with topk 1, draft tokens = steps + 1.
    """
    launch, book = launch_of(s)
    yield from numbers(s)
    if not launch.speculates:
        return
    yield from _tree(s, launch, book)
    yield from _pages(s, launch, book)
    yield from _backends(s, launch, book)
    yield from _parallel(s, launch, book)


def _tree(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    steps, topk, tokens = (launch.number_of(key) for key in ("steps", "topk", "tokens"))
    if steps is None or topk is None or tokens is None or min(steps, topk, tokens) < 1:
        return
    places = (at(launch, "tokens"), at(launch, "steps"))
    chain, tree = book.get("chain", {}), book.get("tree", {})
    if topk == 1 and chain and s.engine.within(chain["versions"]) and applies(chain, s):
        if tokens != steps + 1:
            yield Hit(
                f"topk 1 makes a chain of {steps} + 1 tokens, and {tokens} are asked for: {s.engine} takes {steps + 1}",
                places,
                help=f"write {spelled(book, 'tokens')} {steps + 1}",
                severity=Severity.NOTE,
            )
        return
    room = topk + (steps - 1) * topk * topk + 1
    if tree and applies(tree, s) and tokens > room:
        yield Hit(
            f"{tokens} draft tokens do not fit a tree of {plural(steps, 'step')} and topk {topk}, which has {room}: "
            f"{s.engine} dies at the first request ({tree['error']})",
            places,
            help=f"write {spelled(book, 'tokens')} {room} or less, or take more steps",
            confidence=Confidence.LIKELY,
        )


def _pages(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    topk, page, backend = launch.number_of("topk"), launch.number_of("page"), launch.said.get("backend")
    for entry in entries(book, "paged", s) if (topk or 0) > 1 and (page or 0) > 1 else ():
        if entry["outcome"] == "changes":
            yield Hit(
                f"topk {topk} with pages of {page} tokens: {s.engine} sets topk to 1",
                (at(launch, "topk"), at(launch, "page")),
                help="write --page-size 1, or topk 1",
                severity=Severity.NOTE,
            )
        elif backend is not None and not one_of(backend, entry["backends"]):
            yield Hit(
                f"topk {topk} with pages of {page} tokens and {backend}: {s.engine} stops ({entry['error']})",
                (at(launch, "topk"), at(launch, "page")),
                help=f"write {spelled(book, 'page')} 1, or take {' or '.join(entry['backends'])}",
                stops=True,
            )


def _backends(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    topk = launch.number_of("topk") or 1
    for entry in entries(book, "single", s) if topk > 1 else ():
        for key in ("backend", "decode_backend", "prefill_backend"):
            if launch.said.get(key) in entry["backends"]:
                yield Hit(
                    f"{launch.said[key]} drafts one chain, and topk is {topk}: {s.engine} stops ({entry['error']})",
                    (at(launch, "topk"), at(launch, key)),
                    help=f"write {spelled(book, 'topk')} 1, or take another backend",
                    stops=True,
                )
                return


def _parallel(s: Subject, launch: Launch, book: Table) -> Iterator[Hit]:
    facts, draft = book.get("draft_tp"), launch.number_of("draft_tp")
    target = s.tp if s.tp is not None else None if "tp" in launch.given or launch.partial else 1
    if facts and draft is not None and target is not None and draft not in (1, target):
        yield Hit(
            f"the draft's tensor parallelism is {draft}, the target's {target}: {s.engine} stops ({facts['error']})",
            (at(launch, "draft_tp"), at(launch, "tp")),
            help=f"write 1 or {target}, or leave it out",
            stops=True,
        )
    tokens, block = launch.number_of("tokens"), launch.number_of("block")
    both = book.get("block") if None not in (tokens, block) and tokens != block else None
    if both and applies(both, s):
        yield Hit(
            f"{spelled(book, 'tokens')} {tokens} and {spelled(book, 'block')} {block} differ: "
            f"{s.engine} stops ({both['error']})",
            (at(launch, "tokens"), at(launch, "block")),
            help="give one of them",
            stops=True,
        )
