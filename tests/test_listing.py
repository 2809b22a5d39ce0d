"""The table of a long index, kept as text, tells what a dict of its entries does."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import pytest
from test_checks_names import CONFIG, head
from weightfiles import entry, safetensors

from drafcheck import json_bulk, jsonpos, lint
from drafcheck.checkpoint import INDEXES
from drafcheck.listing import Listing

FILES = ["m-1.safetensors", "m-2.safetensors", "m-3.safetensors"]
WORDS = ["a", "b", "layers.7", "é", "", "a b"]


def made(rng: random.Random) -> tuple[dict[str, Any], Listing]:
    """The same entries as a dict and as a listing, whose last ones may have line breaks in their names."""
    names = [f"{rng.choice(WORDS)}.{i}" for i in rng.sample(range(60), rng.randrange(30))]
    entries = {name: rng.choice(FILES[: rng.choice([1, 3])]) for name in names}
    listing, at = Listing(), 0
    while at < len(names):
        some = names[at : at + rng.choice([1, 4, 9])]
        files = [entries[name] for name in some]
        listing.add(some, files[:1] if len(set(files)) == 1 else files)
        at += len(some)
    listing.rest = {rng.choice(["z", "y\nz", "x\n"]): rng.choice(FILES) for _ in range(rng.randrange(2))}
    return {**entries, **listing.rest}, listing


def test_as_a_dict() -> None:
    rng = random.Random(5)
    for _ in range(300):
        entries, listing = made(rng)
        assert listing == entries and list(listing.items()) == list(entries.items())
        assert list(listing) == list(entries) and list(listing.values()) == list(entries.values())
        assert len(listing) == len(entries) and repr(listing) == repr(entries)
        assert listing.files | set(listing.rest.values()) == set(entries.values())
        assert all(listing[name] == file and name in listing for name, file in entries.items())
        assert "none" not in listing


def held_by(entries: Mapping[str, str], rng: random.Random) -> dict[str, list[str]]:
    """What files hold that an index was written from, or that are not quite what it says."""
    held: dict[str, list[str]] = {file: [] for file in dict.fromkeys(entries.values())}
    for name, file in entries.items():
        held[file].append(name)
    if rng.random() < 0.3 and held:
        names = held[rng.choice(list(held))]
        change = rng.choice(["less", "more", "other", "joined", "cut", "file"])
        if change in ("less", "other"):
            names.pop()
        if change in ("more", "other"):
            names.insert(rng.randrange(len(names) + 1), "new")
        if change == "joined" and len(names) > 1:
            names[:2] = ["\n".join(names[:2])]
        if change == "file":
            held.popitem()
        if change == "cut" and "\n" in names[-1]:
            names[-1:] = names[-1].split("\n", 1)
    return held


def test_files_that_hold_just_what_is_listed() -> None:
    rng = random.Random(7)
    outcomes = {True: 0, False: 0}
    for _ in range(3000):
        entries, listing = made(rng)
        held = held_by(entries, rng)
        if rng.random() < 0.5:
            held = {file: sorted(names) for file, names in held.items()}
        told = listing.tells(held.items())
        same = {(name, file) for file, names in held.items() for name in names} == set(entries.items())
        assert same or not told
        alike = all(names == [n for n in entries if entries[n] == file] for file, names in held.items())
        assert told or not (same and alike) or any("\n" in name for name in listing.rest)
        outcomes[told] += 1
    assert min(outcomes.values()) > 400


def test_a_line_break_in_a_name_ends_no_line() -> None:
    listing = Listing()
    listing.add(["x"], FILES[:1])
    listing.rest = {"y\nz": FILES[0]}
    assert not listing.tells([(FILES[0], ["x\ny", "z"])])
    listing.rest = {"y": FILES[0]}
    assert listing.tells([(FILES[0], ["x", "y"])]) and not listing.tells([(FILES[0], ["x\ny"])])


def write(folder: Path, rng: random.Random) -> None:
    """A draft in two files, and an index of it in which something may be missing, twice, too much or elsewhere."""
    shapes = head()
    names = list(shapes)
    half = rng.randrange(1, len(names))
    parts = {FILES[0]: names[:half], FILES[1]: names[half:]}
    table = {name: file for file, some in parts.items() for name in some}
    for _ in range(rng.randrange(3)):
        change = rng.choice(["drop", "add", "move", "both", "gone", "outside"])
        name = rng.choice(names)
        if change == "both":
            parts[rng.choice(FILES[:2])] = list(names)
        elif change == "drop":
            table.pop(name, None)
        else:
            file = {"gone": FILES[2], "outside": "../x", "move": rng.choice(FILES[:2])}.get(change, FILES[0])
            table["new.weight" if change == "add" else name] = file
    for file, some in parts.items():
        stops = list(accumulate((2 * prod(shapes[name]) for name in some), initial=0))
        header = {n: entry("BF16", tuple(shapes[n]), a, b) for n, a, b in zip(some, stops, stops[1:], strict=False)}
        (folder / file).write_bytes(safetensors(header, bytes(stops[-1])))
    items = list(table.items())
    rng.shuffle(items)
    items = rng.choice([items, sorted(items)])
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / INDEXES[0]).write_text(json.dumps({"weight_map": dict(items)}, indent=rng.choice([None, 1])))


def said(folder: Path, engine: str) -> list[str]:
    checked = lint(folder, engine=engine).checkpoints[0]
    return [f.model_dump_json() for f in checked.findings] + [str(checked.outcome)]


@pytest.mark.parametrize("engine", ["sglang==0.5.9", "vllm==0.33.0"])
def test_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    rng = random.Random(13)
    rules: set[str] = set()
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, rng)
        one_by_one = said(folder, engine)
        with monkeypatch.context() as patch:
            patch.setattr(jsonpos, "_LONG", 0)
            patch.setattr(json_bulk, "_AT_ONCE", rng.choice([90, 300, 1 << 18]))
            assert said(folder, engine) == one_by_one
        rules |= {rule for rule in ("DC005", "DC006", "DC012") if any(f'"{rule}"' in line for line in one_by_one)}
    assert {"DC005", "DC006"} <= rules
