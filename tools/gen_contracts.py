"""The contract book as pages to read: docs/contracts, one page a draft class, written by tools/gen_docs.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from drafcheck.contract import Table, contract_files, engines, load_toml, releases
from drafcheck.contract_tables import contract_table

# What each part of a contract says, in the order of the page. A part that is missing here is shown all the same.
PARTS = {
    "proof": (
        "Proof",
        "On how many recorded checkpoints the class itself was run, by release, and where its source was read.",
    ),
    "revision": ("Eras", "What the releases take, in short."),
    "read": ("Reading config.json", "How each quantity is had: the first usable value wins."),
    "values": ("Values", "Keys for which null is as good as absent, and sizes that may be zero."),
    "defaults": ("Defaults", "What the config class supplies where a key is absent, by `model_type`."),
    "flag": (
        "Flags",
        "Set when one of the keys is truthy (`any`), by the first key that is there (`first`), or as said.",
    ),
    "refuse": ("Refused configs", "Configs that stop the server before a weight is read."),
    "names": ("Names", "How a tensor finds its parameter: renamed, dropped by design, then tried with each prefix."),
    "skip": ("Skipped for some configs", "Parts of names that the loader passes over."),
    "unknown": ("Names that lead nowhere", "What the loader of the modules `under` a name says to them."),
    "stacked": ("Fused parameters", "Which part of which fused parameter a projection fills."),
    "param": ("Parameters", "What is built, and what stays in it (`initial`) when no tensor reaches it."),
    "expand": ("Placeholders", "What the names in braces stand for."),
    "required": ("Insisted on", "Parameters whose absence the loader does not let pass."),
    "sharing": (
        "Taken from the target",
        "Parameters that the engine fills itself, whatever the file holds or (`absent`) when it holds no such name.",
    ),
    "computed": ("Computed otherwise", "Keys that change what is computed, and which leave no trace in the tensors."),
    "quantised": ("Quantised drafts", "By which names the constructor asks a quantisation for its layers."),
    "split": ("Shared out", "What the ranks of tensor parallelism have to share evenly."),
    "mapping": ("Vocabulary mapping", "How `d2t` is read."),
    "loaders": ("Shapes that differ", "What a sharded loader does with a dimension that is too long or too short."),
    "messages": ("Messages", "What the loader says when it refuses a shape."),
}
HEAD = ("architectures", "algorithms", "kind", "states")
FIRST, LAST = ("versions", "name", "key"), ("summary", "error", "source")


def pages() -> dict[str, str]:
    """Path below docs/contracts -> text: an index, and a page for each draft class of each engine."""
    made = {"README.md": _index()}
    for engine in engines():
        for stem in contract_files(engine):
            made[f"{engine}/{stem}.md"] = page(engine, stem)
    return made


def page(engine: str, stem: str) -> str:
    """Everything that the book says about one draft class of one engine."""
    book = contract_table(engine, stem)
    bases = [f"`rules/{engine}/{base}.toml`" for base in load_toml(engine, f"{stem}.toml").get("extends", [])]
    files = ", which extends ".join([f"`rules/{engine}/{stem}.toml`", *([", ".join(bases)] if bases else [])])
    classes = ", ".join(f"`{name}`" for name in book.get("architectures", []))
    known = releases(engine)
    blocks = [
        f"# {engine}/{stem}\n\nGenerated from {files}; the words are explained in "
        f"[rules/README.md](../../../rules/README.md).\n",
        f"Draft class: {classes}. Algorithms: {', '.join(book.get('algorithms', []))}. "
        f"Engine: {load_toml(engine, 'engine.toml').get('name', engine)} {known[0]} to {known[-1]}.\n",
    ]
    parts = [*PARTS, *(key for key in book if key not in PARTS and key not in HEAD)]
    return "\n".join([*blocks, *(_part(key, book[key]) for key in parts if key in book)])


def _index() -> str:
    rows = [
        (f"[{engine}/{stem}]({engine}/{stem}.md)", _cell(load_toml(engine, f"{stem}.toml").get("architectures", [])))
        for engine in engines()
        for stem in contract_files(engine)
    ]
    head = "# Contracts\n\nWhat each release of each engine requires of a draft checkpoint, and where that was read.\n"
    return f"{head}\n{_table(('contract', 'draft class'), rows)}"


def _part(key: str, content: Any) -> str:
    title, intro = PARTS.get(key, (key, ""))
    return "\n".join([f"## {title}\n", *([f"{intro}\n"] if intro else []), _content(key, content)])


def _content(key: str, content: Any) -> str:
    if key == "read":
        return _entries([row for entry in content for row in _quantities(entry)])
    if isinstance(content, list):
        return _entries(content)
    return _table(("what", "is"), [(f"`{name}`", _cell(value)) for name, value in content.items()])


def _quantities(entry: Table) -> Iterable[Table]:
    """One row for each quantity of a ``[[read]]`` entry."""
    around: Table = {key: entry[key] for key in ("versions", "source") if key in entry}
    return [{"name": key, "lookup": value, **around} for key, value in entry.items() if key not in around]


def _entries(entries: Sequence[Table]) -> str:
    """A table with a column for every key that some entry has."""
    known = dict.fromkeys(key for entry in entries for key in entry)
    columns = [k for k in FIRST if k in known or k == "versions"]
    columns += [k for k in known if k not in FIRST and k not in LAST]
    columns += [k for k in LAST if k in known]
    heads = ["releases" if key == "versions" else key for key in columns]
    return _table(heads, [[_entry(key, entry.get(key)) for key in columns] for entry in entries])


def _entry(key: str, value: Any) -> str:
    if key == "versions":
        return f"`{value}`" if value else "all"
    return _prose(str(value or "")) if key in ("summary", "source") else _cell(value)


def _cell(value: Any) -> str:
    """One value of TOML as Markdown: words as code, lists in order, tables as ``key: value``."""
    if value is None or value == []:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{_escaped(key)}: {_cell(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        pairs = all(isinstance(item, list) for item in value)
        return ", ".join(" to ".join(map(_cell, item)) if pairs else _cell(item) for item in value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{_escaped(text)}`" if text else '`""`'


def _prose(text: str) -> str:
    """Text of the book outside of code: ``midlayer.*`` must not become emphasis."""
    return re.sub(r"([*_<>`|\[\]])", r"\\\1", text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
