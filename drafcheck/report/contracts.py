"""The contract book as text and as JSON: which classes of which engine it describes, and how each was proven."""

from __future__ import annotations

import json
from typing import NamedTuple

from drafcheck.contract import Table, contract_files, engines, load_toml, releases
from drafcheck.contract_tables import contract_table
from drafcheck.errors import UsageError
from drafcheck.proof import MEANINGS, Proof, eras, in_words, proofs, spans, whole_models
from drafcheck.report.style import Style
from drafcheck.report.table import table
from drafcheck.report.text import printable
from drafcheck.selection import suggestion
from drafcheck.words import plural

SCHEMA = "drafcheck-contracts-1"


class Entry(NamedTuple):
    """One contract of one engine."""

    engine: str
    stem: str
    book: Table
    proofs: list[Proof]

    @property
    def name(self) -> str:
        """Such as ``sglang/llama_eagle3``."""
        return f"{self.engine}/{self.stem}"

    @property
    def classes(self) -> list[str]:
        """The draft classes that it is for."""
        return list(self.book.get("architectures", []))


def entries(word: str | None = None) -> list[Entry]:
    """The contracts of the book; of an engine, or of a draft class, or the one of that name where ``word`` is given.

    Raises UsageError for a word that is none of these.
    """
    found = [
        Entry(engine, stem, contract_table(engine, stem), proofs(engine, stem))
        for engine in engines()
        for stem in contract_files(engine)
    ]
    if word is None:
        return found
    wanted = word.lower()
    chosen = [e for e in found if wanted in (e.engine, e.name, e.stem, *(name.lower() for name in e.classes))]
    if not chosen and wanted not in engines():
        known = {w for e in found for w in (e.engine, e.name, *e.classes)}
        raise UsageError(f"no engine, contract or draft class {word!r}{suggestion(word, sorted(known))}")
    return chosen


def overview(found: list[Entry], names: list[str], style: Style) -> str:
    """Each engine of ``names`` with its releases, and a line for each draft class."""
    blocks = []
    for engine in names:
        known = releases(engine)
        mine = [e for e in found if e.engine == engine]
        blocks.append(style.bold(f"{engine} {known[0]} to {known[-1]} ({plural(len(known), 'release')})") + "\n")
        rows = [*(row for e in mine for row in _rows(e)), *_whole_row(engine)]
        blocks.append(table(rows, ("draft class", "algorithm", "releases", "how it was proven")))
    return "\n".join(blocks) + "\nOne of them in detail: drafcheck contracts NAME\n"


def _whole_row(engine: str) -> list[tuple[str, str, str, str]]:
    """The line on drafts that are whole models, which have no class of their own."""
    said, found = load_toml(engine, "registry.toml").get("whole_models", {}), whole_models(engine)
    if not found:
        return []
    how = f"{printable(said['summary'])}; {proven(found)}"
    return [("any whole model", printable(", ".join(said["algorithms"])), _span(found), how)]


def _span(found: list[Proof]) -> str:
    covered = [str(p.release) for p in found]
    return "" if not covered else covered[0] if len(covered) == 1 else f"{covered[0]} to {covered[-1]}"


def _rows(entry: Entry) -> list[tuple[str, str, str, str]]:
    """A line for each class of a contract; those after the first refer to it."""
    words = ", ".join(entry.book.get("algorithms", []))
    names = [printable(name) for name in entry.classes]
    first = (names[0] if names else entry.stem, printable(words), _span(entry.proofs), proven(entry.proofs))
    return [first, *((name, "", "", f"as {first[0]}") for name in names[1:])]


def proven(found: list[Proof]) -> str:
    """In one line, such as ``executed in 16 releases on 52 to 83 checkpoints each; read in 23``."""
    parts = []
    for how in MEANINGS:
        of_this = [p for p in found if p.how == how]
        if of_this:
            where = f"in {of_this[0].release}" if len(of_this) == 1 else f"in {len(of_this)} releases"
            parts.append(f"{how} {where}{_checkpoints(of_this)}")
    return "; ".join(parts) or "in no release"


def _checkpoints(found: list[Proof]) -> str:
    counts = sorted(p.checkpoints for p in found)
    if not counts[-1]:
        return ""
    if counts[0] == counts[-1]:
        return f" on {plural(counts[0], 'checkpoint')}{' each' if len(found) > 1 else ''}"
    return f" on {counts[0]} to {counts[-1]} checkpoints each"


def detail(entry: Entry, style: Style) -> str:
    """One contract: its classes, its eras, and how it was proven in each release."""
    classes = ", ".join(printable(name) for name in entry.classes)
    lines = [style.bold(entry.name), f"draft classes: {classes}"]
    lines += [f"algorithms: {', '.join(entry.book.get('algorithms', []))}"]
    known = releases(entry.engine)
    told = [(in_words(known, held), printable(era.get("summary", ""))) for era, held in eras(entry.engine, entry.stem)]
    blocks = ["".join(f"{line}\n" for line in lines), table(told, ("releases", "what they take"))]
    executed = [(str(p.release), f"executed on {p.checkpoints}" if p.checkpoints else p.how) for p in entry.proofs]
    shown = [row for row, p in zip(executed, entry.proofs, strict=True) if p.how == "executed"]
    blocks.append(table(shown, ("release", "recorded checkpoints")))
    rest = [(how, spans(entry.proofs, how)) for how in ("read", "interpolated", "assumed")]
    blocks.append("".join(f"{how}: {text} ({MEANINGS[how]})\n" for how, text in rest if text))
    return "\n".join(block for block in blocks if block)


def as_json(found: list[Entry], names: list[str]) -> str:
    """All that the command knows as one JSON object, in ASCII; ``checkpoints`` is 0 where nothing was executed."""
    made = [
        {
            "name": engine,
            "releases": [str(r) for r in releases(engine)],
            "contracts": [_object(e) for e in found if e.engine == engine],
            "whole_models": _whole_object(engine),
        }
        for engine in names
    ]
    return json.dumps({"schema": SCHEMA, "engines": made}, indent=2) + "\n"


def _whole_object(engine: str) -> dict[str, object] | None:
    """Drafts that are whole models; null where the engine has none, or the book says nothing of them."""
    said, found = load_toml(engine, "registry.toml").get("whole_models", {}), whole_models(engine)
    if not found:
        return None
    return {"algorithms": said["algorithms"], "summary": said["summary"], "proof": _proof(found)}


def _proof(found: list[Proof]) -> list[dict[str, object]]:
    return [{"release": str(p.release), "how": p.how, "checkpoints": p.checkpoints} for p in found]


def _object(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "classes": entry.classes,
        "algorithms": entry.book.get("algorithms", []),
        "kind": entry.book.get("kind", ""),
        "eras": [
            {"versions": e.get("versions", ""), "releases": [*map(str, held)], "summary": e.get("summary", "")}
            for e, held in eras(entry.engine, entry.stem)
        ],
        "proof": _proof(entry.proofs),
    }
