"""The files that drafcheck says a loader takes, held against what the loaders of real releases took and yielded.

``tools/record_files.py`` recorded the rows: every folder of tools/file_layouts.py, listed by the disk both ways round.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from file_layouts import LAYOUTS, file_of, write
from make_fixtures import FIXTURES
from recorded import rows

from drafcheck.checkpoint import open_checkpoint
from drafcheck.contract import resolve_engine
from drafcheck.errors import NothingToCheck
from drafcheck.plan.files import Selection, select_files

Row = dict[str, Any]
ROWS: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
for name in ("sglang", "vllm"):
    for found in rows(FIXTURES / "verdicts" / name / "files.jsonl"):
        ROWS[name, found["version"]][found["case"]].append(found)
RELEASES = [pytest.param(*key, id="==".join(key)) for key in ROWS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every layout, with a config beside it, as a folder without weights is no checkpoint at all."""
    made = {}
    for case, layout in LAYOUTS.items():
        made[case] = tmp_path_factory.mktemp("layout")
        write(layout, made[case], large=False)
        (made[case] / "config.json").write_text("{}")
    return made


def chosen(folder: Path, engine: str, release: str) -> Selection:
    try:
        return select_files(open_checkpoint(folder), resolve_engine(f"{engine}=={release}"))
    except NothingToCheck:
        pytest.fail(f"{folder} is no checkpoint")


def yielded(row: Row) -> list[list[tuple[str, str]]]:
    """Each order that was seen, as names with their files; fillers, which have no number, are left out."""
    layout = LAYOUTS[row["case"]]
    return [[(name, file_of(layout, number)) for name, number in order if number] for order in row["yielded"]]


def said(selection: Selection) -> list[tuple[str, str]]:
    return [(t.name, t.file) for t in selection.tensors if t.name != "filler"]


def orders_of(case: list[Row]) -> list[list[tuple[str, str]]]:
    """Every order in which a release yielded the tensors of one folder, whichever way the disk listed it."""
    found = [order for row in case for order in yielded(row)]
    return [order for n, order in enumerate(found) if order not in found[:n]]


@pytest.mark.parametrize(("engine", "release"), RELEASES)
def test_the_same_files_are_taken(folders: dict[str, Path], engine: str, release: str) -> None:
    cases = ROWS[engine, release]
    assert set(cases) == set(LAYOUTS)
    for case, found in cases.items():
        selection = chosen(folders[case], engine, release)
        for row in found:
            assert ("error" in row) is (selection.refused is not None), (case, row)
            if selection.refused is None:
                assert sorted(f.name for f in selection.files) == sorted(row["taken"]), (case, row)
            elif selection.refused.cause != "index":
                assert plain(row["error"]) == plain(selection.refused.error.replace(str(folders[case]), "FOLDER"))


def plain(error: str) -> str:
    """An error without the folder of the files in it, which are a list in SGLang and a set in vLLM."""
    return error.replace("FOLDER/", "").replace("{'", "['").replace("'}", "']")


@pytest.mark.parametrize(("engine", "release"), RELEASES)
def test_where_the_order_is_known_it_is_this_one(folders: dict[str, Path], engine: str, release: str) -> None:
    several = []
    for case, found in ROWS[engine, release].items():
        selection = chosen(folders[case], engine, release)
        if selection.refused is None and selection.ordered:
            expected, orders = said(selection), orders_of(found)
            if selection.within == "library":  # of the tensors in a file that is not known
                expected, orders = sorted(expected), [sorted(order) for order in orders]
            assert orders == [expected], case
            several += [case] if len(selection.files) > 1 else []
    assert ("two safetensors" in several) is sorts(engine, release)


def sorts(engine: str, release: str) -> bool:
    """Whether a release is known to sort two files of safetensors."""
    since = {"sglang": (0, 5, 7), "vllm": (0, 16, 0)}[engine]
    return tuple(int(part) for part in release.split(".")[:3]) >= since


@pytest.mark.parametrize(("engine", "release"), RELEASES)
def test_where_it_is_said_to_be_chance_others_came_as_well(folders: dict[str, Path], engine: str, release: str) -> None:
    """Of two files with one name each wins at times: as the disk lists them, or as threads are done."""
    unsure = set()
    for case, found in ROWS[engine, release].items():
        selection = chosen(folders[case], engine, release)
        if selection.refused is not None or selection.ordered:
            continue
        unsure.add(case)
        if selection.order == "folder":
            for row in found:
                files = list(dict.fromkeys(file for _, file in yielded(row)[0]))
                assert files == [name for name in row["listed"] if name in row["taken"]] and len(yielded(row)) == 1
        if "large" in case:  # threads then always end alike
            continue
        assert len(orders_of(found)) > 1, case
        for twice in selection.twice:
            assert len({last(order, twice.first.name) for order in orders_of(found)}) > 1, (case, twice)
    assert {"two bins", "two pts", "ten and two bins", "bin index of one", "leftovers"} <= unsure


def last(order: list[tuple[str, str]], name: str) -> str:
    """The file whose tensor of that name stays."""
    return [file for one, file in order if one == name][-1]


def test_threads_not_the_names_decide_among_pickles_of_newer_sglang() -> None:
    """The files are sorted there, and the one that takes longer to read wins all the same."""
    for (engine, release), cases in ROWS.items():
        if engine == "sglang" and tuple(map(int, release.split(".")[:3])) >= (0, 5, 13):
            for case, winner in (("two bins, a large", "a.bin"), ("two bins, b large", "b.bin")):
                assert {last(order, "w") for order in orders_of(cases[case])} == {winner}
                assert all(row["taken"] == ["a.bin", "b.bin"] for row in cases[case])
