"""What the linter tells against every recorded row: refused where the loader refused, no alarm where all was loaded.

The plans are held against the rows tensor by tensor elsewhere (test_verdicts, test_verdicts_vllm and their sisters);
here it is the outcome that a user is told. A row is left out only for a reason that its recording, or its checkpoint,
gives.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import agree
import agree_vllm
import make_class_corpus
import pytest
import test_relatives_vllm as relatives
import test_verdicts as of_sglang
import test_verdicts_vllm as of_vllm
from recorded import Row, rows, unpack

from drafcheck.checkpoint import open_checkpoint
from drafcheck.report.build import refusal
from drafcheck.report.model import CheckpointReport, Outcome
from drafcheck.runner import Options, inspect_one, lint_many

VERDICTS = Path(__file__).parent.parent / "fixtures" / "verdicts"
SIBLINGS = 3
"""So many checkpoints with one config show which sizes are usual."""

Shapes = dict[tuple[Path, bytes], dict[str, Counter[tuple[int, ...]]]]


class Asked(NamedTuple):
    """A row with the checkpoint and the options by which drafcheck is asked what its release was asked."""

    row: Row
    folder: Path
    options: Options

    @property
    def name(self) -> str:
        return f"{self.row['checkpoint']} {self.options.engine}"

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        return found


def of_sglang_corpora(room: Path) -> Iterator[Asked]:
    """Synthetic checkpoints and those of producers, and the corpus of its other draft classes."""
    folders = {corpus: unpack(archive, room / corpus) for corpus, archive in of_sglang.CORPORA.items()}
    (room / "classes").mkdir()
    make_class_corpus.write_corpus(room / "classes")
    folders["classes"] = room / "classes"
    for row in (*of_sglang.ROWS, *rows(VERDICTS / "sglang" / "classes.jsonl")):
        yield Asked(row, folders[row["corpus"]] / row["checkpoint"], Options(engine=f"sglang=={row['version']}"))


def of_heads(engine: str, recording: str, algorithm: Callable[[str], str | None]) -> Callable[[Path], Iterator[Asked]]:
    """A corpus of which one row holds for several releases."""

    def asked(room: Path) -> Iterator[Asked]:
        folder = unpack(VERDICTS / engine / f"{recording}.tar.xz", room)
        for row in rows(VERDICTS / engine / f"{recording}.jsonl"):
            for release in row["releases"]:
                options = Options(engine=f"{engine}=={release}", algorithm=algorithm(row["checkpoint"]))
                yield Asked({**row, "version": release}, folder / row["checkpoint"], options)

    return asked


def of_vllm_corpora(room: Path) -> Iterator[Asked]:
    folders = {corpus: unpack(archive, room / corpus) for corpus, archive in of_vllm.CORPORA.items()}
    for corpus in of_vllm.RENAMED:
        folders[f"{corpus} renamed"] = of_vllm.renamed(folders[corpus], room / f"{corpus} renamed")
    for row in of_vllm.ROWS:
        folder = of_vllm.folder_of(row, folders)
        beside = row["corpus"] == "producers"
        target = folder / row["checkpoint"] / "target_config.json" if beside else folder / "target.json"
        options = Options(engine=f"vllm=={row['version']}", algorithm=row["method"] or "eagle3", target=str(target))
        yield Asked(row, folder / row["checkpoint"], options)


def of_vllm_relatives(room: Path) -> Iterator[Asked]:
    relatives.write_corpus(room)
    for row in relatives.ROWS:
        folder = room / row["checkpoint"]
        options = Options(
            engine=f"vllm=={row['version']}", algorithm=row["method"], target=str(folder / "target_config.json")
        )
        options.launch = relatives.launch_of(folder)
        yield Asked(row, folder, options)


CORPORA: dict[str, Callable[[Path], Iterator[Asked]]] = {
    "sglang": of_sglang_corpora,
    "sglang mtp": of_heads("sglang", "mtp", lambda name: "EAGLE"),
    "sglang newer": of_heads("sglang", "newer", lambda name: None),
    "sglang latest": of_heads("sglang", "latest", lambda name: "DSPARK" if name.startswith("v4_dspark-") else "EAGLE"),
    "vllm": of_vllm_corpora,
    "vllm relatives": of_vllm_relatives,
    "vllm mtp": of_heads("vllm", "mtp", lambda name: "mtp"),
}


class Size(NamedTuple):
    """How many answers a corpus holds, how many of them may be left out, and how many were of files loaded whole."""

    answers: int
    left_out: int
    whole: int


SIZES = {
    "sglang": Size(3046, 9, 890),
    "sglang mtp": Size(1039, 0, 160),
    "sglang newer": Size(549, 4, 95),
    "sglang latest": Size(449, 0, 60),
    "vllm": Size(2454, 31, 750),
    "vllm relatives": Size(1079, 49, 240),
    "vllm mtp": Size(1035, 0, 125),
}


class Told(NamedTuple):
    """What came of one row."""

    asked: Asked
    report: CheckpointReport


def stopped(asked: Asked) -> bool:
    """Whether the release stopped before everything was loaded; what the recording went on to do needs a target."""
    error = asked.row["error"]
    return error is not None and not (isinstance(error, dict) and error["stage"] in agree_vllm.SERVED)


def left_out(asked: Asked) -> str | None:
    """Why the row does not say whether its release refuses the checkpoint."""
    row = asked.row
    if str(asked.options.engine).startswith("vllm"):
        return agree_vllm.says_nothing(row) if isinstance(row["error"], dict) else None
    if row["error"] == "AssertionError: " and row["stage"] == "construct":
        config = asked.config()
        if "kv_lora_rank" in config and not config.get("rope_scaling"):
            return "without a GPU, MLA has to have a rope scaling"
    return agree.says_nothing(row)


def beyond(asked: Asked, report: CheckpointReport) -> str | None:
    """Why drafcheck speaks of a refusal that is not in a recording which ends with the loading."""
    if stopped(asked) or report.outcome is not Outcome.REFUSED:
        return None
    if asked.row["version"] in ("0.4.5", "0.4.8") and "DC301" in {f.rule for f in report.findings}:
        return "the worker, which asks for a d2t before 0.4.9"
    subject = inspect_one(str(asked.folder), asked.options).subject
    refused = refusal(subject) if subject is not None else None
    return "the start of the server, once the class is loaded" if refused and refused.stage == "serve" else None


def given(asked: Asked, report: CheckpointReport) -> set[str]:
    """What the target fills: as recorded, or, where the recording ends before, as the plan says."""
    shared = asked.row.get("shared")
    if isinstance(shared, dict):
        names = {"embed_shared": "model.embed_tokens.weight", "lm_head_shared": "lm_head.weight"}
        return {name for key, name in names.items() if shared[key]}
    return set(report.plan.fills_from_target) if report.plan is not None else set()


def is_filled(asked: Asked, report: CheckpointReport) -> bool:
    """Whether all that was built is filled; a mask embedding only ever is beside a file of its own."""
    row = asked.row
    unwritten = set(row["unwritten"]) - {"model.mask_embedding"} - given(asked, report)
    return not stopped(asked) and not row["partial"] and not unwritten


def of_the_target(found: list[Told]) -> dict[Path, set[str]]:
    """What every release that loads a whole model drops of it: its other layers are the target's."""
    dropped: dict[Path, set[str]] = {}
    for asked, _ in (each for each in found if each.asked.folder.name.endswith("-healthy")):
        if not stopped(asked):
            dropped.setdefault(asked.folder, set(asked.row["dropped"])).intersection_update(asked.row["dropped"])
    return dropped


def is_taken(asked: Asked, of_others: set[str]) -> bool:
    """Whether the loader took all of the file, but for t2d and what is the target's."""
    return all("t2d" in name for name in set(asked.row["dropped"]) - of_others)


def kind(folder: Path) -> tuple[Path, bytes]:
    """The checkpoints of one corpus that have one config."""
    return folder.parent, (folder / "config.json").read_bytes()


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all that the files of a folder hold, by name."""
    return {tensor.name: tensor.shape for file in open_checkpoint(folder).files for tensor in file.header.tensors}


def usual_shapes(folders: Iterable[Path]) -> Shapes:
    """How often each tensor has which shape, in the checkpoints of one config."""
    counted: Shapes = defaultdict(lambda: defaultdict(Counter))
    for folder in folders:
        for name, shape in shapes(folder).items():
            counted[kind(folder)][name][shape] += 1
    return counted


def is_usual(asked: Asked, usual: Shapes) -> bool:
    """Whether the sizes are those that most checkpoints with the config have, or a trainer wrote them.

    A loader may cut what is larger and spread what is smaller, which a recording does not show; nor does it show the
    sizes that are built of a config which is another than the others'.
    """
    if asked.row.get("corpus") == "producers":
        return True
    counted = ((usual[kind(asked.folder)][name], shape) for name, shape in shapes(asked.folder).items())
    return all(c.total() >= SIBLINGS and 2 * c[shape] > c.total() for c, shape in counted)


def told(corpus: str, room: Path) -> list[Told]:
    return [Told(a, lint_many((a.folder,), a.options).checkpoints[0]) for a in CORPORA[corpus](room)]


def otherwise(found: list[Told], counted: Counter[str]) -> Iterator[str]:
    """The rows of which drafcheck says otherwise than was recorded whether the release stops; counts all of them."""
    for asked, report in found:
        reason = left_out(asked) or beyond(asked, report)
        if reason is None and report.outcome is Outcome.INCOMPLETE:
            reason = "not described"
        counted[reason or "compared"] += 1
        if reason is None and (report.outcome is Outcome.REFUSED) is not stopped(asked):
            yield f"{asked.name}: {report.outcome.value}, recorded {asked.row['error']}"


def alarms(found: list[Told], counted: Counter[str]) -> Iterator[str]:
    """Errors about the loading of what was loaded whole; counts such rows, and those whose sizes are judged."""
    targets = of_the_target(found)
    usual = usual_shapes({each.asked.folder for each in found})
    for asked, report in found:
        healthy = asked.folder.with_name(f"{asked.folder.name.partition('-')[0]}-healthy")
        if not (is_filled(asked, report) and is_taken(asked, targets.get(healthy, set()))):
            continue
        judged = ("DC1", "DC2") if is_usual(asked, usual) else ("DC1",)
        counted.update({"whole": 1, "sizes": len(judged) - 1})
        errors = [f for f in report.findings if f.severity == "error" and f.rule.startswith(judged)]
        yield from (f"{asked.name}: {f.rule} {f.message}" for f in errors)


@pytest.mark.parametrize("corpus", CORPORA)
def test_what_is_told_is_what_was_recorded(corpus: str, tmp_path: Path) -> None:
    found, size = told(corpus, tmp_path), SIZES[corpus]
    counted: Counter[str] = Counter()
    assert not (wrong := list(otherwise(found, counted))), "\n".join(wrong)[:6000]
    assert counted.total() == len(found) == size.answers
    assert counted["compared"] >= size.answers - size.left_out, counted
    assert not (wrong := list(alarms(found, counted))), "\n".join(wrong)[:6000]
    assert counted["whole"] >= size.whole and counted["sizes"] > size.whole // 5, counted


def test_another_answer_is_noticed(tmp_path: Path) -> None:
    """Were a row another one, it would be named: refused for loaded, loaded for refused, whole for wanting."""
    found = told("sglang latest", tmp_path)
    for told_of in (False, True):
        each = next(t for t in found if (t.report.outcome is Outcome.REFUSED) is told_of)
        row = {**each.asked.row, "error": None if told_of else "ValueError: x", "stage": "load_weights"}
        (named,) = otherwise([Told(each.asked._replace(row=row), each.report)], Counter())
        assert named.startswith(f"{each.asked.name}: ")
    missing = next(t for t in found if t.asked.row["checkpoint"] == "hunyuan4-no_gate" and not stopped(t.asked))
    assert not list(alarms([missing], Counter()))
    whole = missing.asked._replace(row={**missing.asked.row, "dropped": [], "unwritten": [], "partial": []})
    (named,) = alarms([missing._replace(asked=whole)], Counter())
    assert "DC102" in named
