"""The load plan against vLLM's smaller draft classes: EAGLE-1 beside Llama's, Medusa, DFlash's and DSpark's relatives.

The checkpoints are written anew by tools/make_vllm_corpus.py; the answers were recorded by running the engine's own
classes. A row is left out only for a reason that stands in ``LEFT_OUT``, or because its contract does not describe it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from agree_vllm import disagreements, says_nothing
from class_drafts import dflash, eagle1
from make_vllm_corpus import ARCHIVE, FAMILIES, write_corpus
from record_vllm import RECORDING
from recorded import rows, unpack

from drafcheck import lint
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

ROWS = rows(RECORDING)
HEADLESS = "a confidence head without any tensor is left out, which a contract cannot say"
LEFT_OUT = {
    "lilicorr-block-two": "more tokens were asked for than the block has, which only a launch tells",
    "gemma4-model-prefix": HEADLESS,
    "gemma4-module-prefix": HEADLESS,
    "gemma4-no-confidence": HEADLESS,
    "peagle-no-mask": "refused, before anything is loaded",
    "gemma4-values-apart": "refused, once everything is loaded",
}
AT_THE_FIRST_NAME = ("large-fc-name", "large-model-prefix", "large-module-prefix")
"""Refused, as everything is from 0.22.1, but with what is said to the first name."""

HEALTHY = [(name, release) for name, family in FAMILIES.items() for release in {family.since, family.until}]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("relatives")
    write_corpus(room)
    return room


def subject_of(folder: Path, row: dict[str, Any]) -> Subject:
    checkpoint = folder / row["checkpoint"]
    target = str(checkpoint / "target_config.json")
    options = Options(engine=f"vllm=={row['version']}", algorithm=row["method"], target=target)
    options.launch = launch_of(checkpoint)
    seen = inspect_one(str(checkpoint), options)
    assert seen.subject is not None
    assert not seen.crashed
    return seen.subject


def told(row: dict[str, Any]) -> dict[str, Any]:
    """The row without the parameter that K3's layers fill a second time with what they have."""
    again = "model.context_kv_proj.weight"
    unwritten = [name for name in row["unwritten"] if name != again]
    return {**row, "unwritten": unwritten, "partial": [part for part in row["partial"] if part[0] != again]}


def launch_of(checkpoint: Path) -> str | None:
    """A script that starts the engine as the recording did, where that is told by a launch alone."""
    family = FAMILIES[checkpoint.name.partition("-")[0]]
    if not (family.parallel or family.method == "medusa"):
        return None
    script = checkpoint.parent.parent / f"{checkpoint.parent.name}-{family.method}-serve.sh"
    keys = {"model": "draft", "method": family.method, "num_speculative_tokens": 3}
    keys |= {"parallel_drafting": True} if family.parallel else {}
    script.write_text(f"vllm serve target --speculative-config '{json.dumps(keys)}'\n")
    return str(script)


def found(folder: Path, checkpoint: str, release: str) -> list[str]:
    """The rules with a finding that is more than a note."""
    method = FAMILIES[checkpoint.partition("-")[0]].method
    place = folder / checkpoint
    target, launch = place / "target_config.json", launch_of(place)
    report = lint(place, engine=f"vllm=={release}", algorithm=method, target=target, launch=launch)
    assert report.checkpoints[0].contract is not None or report.checkpoints[0].outcome == "refused"
    return [finding.rule for finding in report.checkpoints[0].findings if finding.severity != "note"]


def test_every_row_agrees(corpus: Path) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    counted: Counter[str] = Counter()
    for row in ROWS:
        reason = LEFT_OUT.get(row["checkpoint"]) or says_nothing(row)
        if row["checkpoint"] in AT_THE_FIRST_NAME and row["version"] != "0.16.0":
            reason = "refused either way"
        s = subject_of(corpus, row) if reason is None else None
        reason = "not described" if s is not None and s.undescribed else reason
        counted[reason or "compared"] += 1
        problems = disagreements(told(row), s) if s is not None and reason is None else []
        if problems:
            wrong[row["checkpoint"]].append(f"{row['version']}: {'; '.join(problems)}")
    assert not wrong, json.dumps(wrong, indent=1)[:6000]
    assert counted["compared"] > 0.9 * len(ROWS), counted
    assert counted["not described"] <= 43, counted


def test_no_refusal_goes_unreported(corpus: Path) -> None:
    for row in (row for row in ROWS if row["version"] in ("0.22.1", "0.33.0") and row["error"] is not None):
        refused = row["error"]["stage"] in ("speculative_config", "model_init", "load_weights")
        if refused and row["checkpoint"] not in LEFT_OUT and not subject_of(corpus, row).undescribed:
            assert found(corpus, row["checkpoint"], row["version"]), row


def test_every_checkpoint_was_asked_about(corpus: Path) -> None:
    assert {folder.name for folder in corpus.iterdir()} == {row["checkpoint"] for row in ROWS}


def test_the_archive_holds_the_checkpoints(corpus: Path, tmp_path: Path) -> None:
    held = unpack(ARCHIVE, tmp_path)
    files = {path.relative_to(corpus): path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    assert {path.relative_to(held): path.read_bytes() for path in held.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize(("family", "release"), sorted(HEALTHY))
def test_a_healthy_draft_is_clean(corpus: Path, family: str, release: str) -> None:
    assert release in {row["version"] for row in ROWS if row["checkpoint"] == f"{family}-plain"}
    expected = ["DC509"] if (family, release) == ("large", "0.33.0") else []
    assert found(corpus, f"{family}-plain", release) == expected


@pytest.mark.parametrize(
    ("checkpoint", "release", "rules"),
    [
        ("mistral-no-norm", "0.33.0", ["DC102"]),
        ("mistral-long-wk", "0.22.1", ["DC201"]),
        ("mistral-module-prefix", "0.22.1", ["DC104", "DC105"]),
        ("minicpm-no-up", "0.33.0", ["DC103"]),
        ("minicpm-layers-name", "0.9.2", ["DC104"]),
        ("minicpm-no-head", "0.16.0", ["DC102", "DC309"]),
        ("minicpm-no-head", "0.22.1", []),
        ("llama4-mlp-name", "0.33.0", ["DC104"]),
        ("llama4-plain", "0.22.1", ["DC102"]),
        ("llama4-served", "0.22.1", []),
        ("deepseek-no-up", "0.33.0", ["DC103"]),
        ("deepseek-extra", "0.16.0", ["DC104"]),
        ("large-no-fc", "0.16.0", ["DC102"]),
        ("large-plain", "0.22.1", ["DC509"]),
        ("peagle-no-mask", "0.33.0", ["DC102"]),
        ("peagle-short-mask", "0.16.0", ["DC201"]),
        ("peagle-no-token", "0.22.1", ["DC509"]),
        ("peagle-mask-token", "0.22.1", ["DC509"]),
        ("peagle-mask-token", "0.33.0", []),
        ("peagle-one-state", "0.33.0", ["DC201", "DC509"]),
        ("k3-no-norm", "0.33.0", ["DC102"]),
        ("k3-nope", "0.33.0", ["DC509"]),
        ("cohere-no-norm", "0.33.0", ["DC102"]),
        ("cohere-head", "0.33.0", []),
        ("medusa-no-block", "0.22.1", ["DC102"]),
        ("dflash2-no-codebook", "0.33.0", ["DC102"]),
        ("beam-module-prefix", "0.33.0", ["DC105"]),
        ("laguna-apart", "0.33.0", ["DC104"]),
        ("laguna-no-draft-vocab", "0.33.0", ["DC509"]),
        ("lilicorr-no-slot", "0.33.0", ["DC102"]),
        ("gemma4-no-pre-norm", "0.33.0", ["DC102"]),
    ],
)
def test_a_fault_has_its_rule(corpus: Path, checkpoint: str, release: str, rules: list[str]) -> None:
    assert found(corpus, checkpoint, release) == rules


@pytest.mark.parametrize(
    ("name", "tokens", "rules"),
    [("plain", 3, []), ("more-heads", 3, []), ("fewer-heads", 3, []), ("plain", 4, ["DC102"]), ("plain", 2, ["DC101"])],
)
def test_medusa_is_built_with_as_many_heads_as_the_launch_asks_for(
    corpus: Path, tmp_path: Path, name: str, tokens: int, rules: list[str]
) -> None:
    place = corpus / f"medusa-{name}"
    script = tmp_path / "serve.sh"
    keys = {"model": str(place), "method": "medusa", "num_speculative_tokens": tokens}
    script.write_text(f"vllm serve target --speculative-config '{json.dumps(keys)}'\n")
    report = lint(place, engine="vllm==0.16.0", target=place / "target_config.json", launch=script)
    assert [f.rule for f in report.findings if f.severity == "error"] == rules


def test_without_a_launch_nothing_is_certain_of_the_heads_of_medusa(corpus: Path) -> None:
    place = corpus / "medusa-more-heads"
    report = lint(place, engine="vllm==0.16.0", algorithm="medusa", target=place / "target_config.json")
    (found,) = [f for f in report.findings if f.severity == "error"]
    assert (found.rule, found.confidence.value) == ("DC102", "likely")


@pytest.mark.parametrize(("release", "certain"), [("0.16.0", True), ("0.22.1", False)])
def test_only_a_refusal_that_was_run_is_certain(corpus: Path, release: str, certain: bool) -> None:
    """The proposer of 0.16.0 was run without a token for parallel drafting; that of 0.22.1 was read."""
    place = corpus / "peagle-no-token"
    target, launch = place / "target_config.json", launch_of(place)
    report = lint(place, engine=f"vllm=={release}", algorithm="eagle3", target=target, launch=launch)
    sure = [f.confidence.value == "certain" for f in report.checkpoints[0].findings if f.rule == "DC509"]
    assert sure == [certain]


@pytest.mark.parametrize(("release", "rules"), [("0.11.0", []), ("0.16.0", ["DC509"]), ("0.33.0", ["DC509"])])
def test_a_class_without_a_mask_is_not_drafted_with_in_parallel(tmp_path: Path, release: str, rules: list[str]) -> None:
    draft = eagle1("EagleLlamaForCausalLM")
    draft.drop("fc.bias")
    draft.write(tmp_path / "draft")
    script = tmp_path / "serve.sh"
    keys = {"model": str(tmp_path / "draft"), "method": "eagle", "num_speculative_tokens": 3}
    for parallel, expected in ((False, []), (True, rules)):
        said = json.dumps(keys | ({"parallel_drafting": True} if parallel else {}))
        script.write_text(f"vllm serve target --speculative-config '{said}'\n")
        target = tmp_path / "draft" / "target_config.json"
        report = lint(tmp_path / "draft", engine=f"vllm=={release}", target=target, launch=script)
        found = [f.rule for f in report.checkpoints[0].findings if f.severity == "error"]
        assert [rule for rule in found if rule == "DC509"] == expected


@pytest.mark.parametrize(("release", "within"), [("0.9.2", "refused"), ("0.22.1", "clean"), ("0.33.0", "clean")])
def test_the_class_is_the_one_that_a_config_within_names(tmp_path: Path, release: str, within: str) -> None:
    """The old form of EAGLE-1 is taken by 0.22.1 and 0.33.0, and refused as a flat config (both were run)."""
    draft = eagle1("LlamaForCausalLM")
    draft.drop("fc.bias")
    for config, outcome in (
        ({"architectures": ["EAGLEModel"], "model_type": "eagle", "model": draft.config}, within),
        ({**draft.config, "architectures": ["EAGLEModel"]}, "refused"),
    ):
        draft.config = config
        draft.write(tmp_path)
        report = lint(tmp_path, engine=f"vllm=={release}", algorithm="eagle", target=tmp_path / "target_config.json")
        assert report.checkpoints[0].outcome == outcome
        assert ("DC501" in [f.rule for f in report.checkpoints[0].findings]) is ("model" not in config)


def test_dflash_wants_a_token_for_what_is_masked(tmp_path: Path) -> None:
    for token, rules in ((3, []), (None, ["DC509"])):
        draft = dflash()
        if token is None:
            del draft.config["dflash_config"]["mask_token_id"]
        draft.write(tmp_path)
        for release in ("0.22.1", "0.33.0"):
            report = lint(
                tmp_path, engine=f"vllm=={release}", algorithm="dflash", target=tmp_path / "target_config.json"
            )
            errors = [f for f in report.checkpoints[0].findings if f.severity == "error"]
            assert [f.rule for f in errors] == rules
            assert {f.confidence.value for f in errors} <= {"likely"}  # read in the source, not run
            assert (report.checkpoints[0].outcome == "refused") is bool(rules)


@pytest.mark.parametrize("release", ["0.9.2", "0.33.0"])
def test_a_llama_draft_wants_the_last_state_alone(tmp_path: Path, release: str) -> None:
    draft = eagle1("EagleLlamaForCausalLM")
    draft.drop("fc.bias")
    draft.write(tmp_path)
    report = lint(tmp_path, engine=f"vllm=={release}", algorithm="eagle", target=tmp_path / "target_config.json")
    assert [f.rule for f in report.checkpoints[0].findings if f.severity != "note"] == []
    draft.shape("fc.weight", 32, 96)
    draft.write(tmp_path)
    report = lint(tmp_path, engine=f"vllm=={release}", algorithm="eagle", target=tmp_path / "target_config.json")
    assert "DC402" not in [f.rule for f in report.checkpoints[0].findings]
    assert report.checkpoints[0].outcome == "refused"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_changed_row_is_noticed(corpus: Path, family: str) -> None:
    row = next(
        row for row in ROWS if row["checkpoint"] == f"{family}-plain" and row["version"] == FAMILIES[family].until
    )
    s = subject_of(corpus, row)
    assert not disagreements(row, s)
    if row["error"] is not None and row["error"]["stage"] == "load_weights":
        return  # nothing of it is loaded
    error = {"stage": "load_weights", "type": "KeyError", "message": "'x'"}
    for change in ({"dropped": ["x"]}, {"unwritten": ["x"]}, {"loaded": row["loaded"][1:]}, {"error": error}):
        assert disagreements({**row, **change}, s), change
