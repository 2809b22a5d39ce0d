"""Contracts of one's own: a draft class for a known engine, an engine, and what is said when they are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drafts import Draft

import drafcheck
from drafcheck import contract_tables
from drafcheck.cli import run
from drafcheck.contract import contract_files, engines, extended, load_toml, rules_folder
from drafcheck.contract_folders import checked
from drafcheck.contract_models import ContractBook, ContractPart, EngineBook
from drafcheck.contract_tables import contract_table
from drafcheck.errors import UsageError
from drafcheck.producer_models import ProducerBook

ENGINE = ("--engine", "sglang==0.5.15")

TINY = """architectures = ["AcmeDraft"]
algorithms = ["EAGLE3"]
kind = "eagle3"

[[revision]]
versions = ">=0.5.10"
summary = "fc and a head"

[[read]]
hidden_size = ["hidden_size"]
target_hidden = ["target_hidden_size", "= hidden_size"]
draft_vocab = ["draft_vocab_size"]
head_rows = ["draft_vocab_size"]
num_aux = [3]

[[flag]]
name = "biased"
any = ["bias"]

[[names]]
mapping = "d2t"
drop = ["t2d", "midlayer", "norm"]

[[mapping]]
attribute = "map"
semantics = "offset"

[[param]]
name = "fc.weight"
shape = ["hidden_size", "num_aux * target_hidden"]
load = "plain"
initial = "random"

[[param]]
name = "fc.bias"
when = "biased"
shape = ["hidden_size"]
load = "plain"
initial = "zeros"

[[param]]
name = "lm_head.weight"
shape = ["head_rows", "hidden_size"]
load = "vocab"
initial = "empty"
"""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A draft of the class AcmeDraft, and own/sglang with a contract for it."""
    monkeypatch.chdir(tmp_path)
    draft = Draft()
    draft.set(architectures=["AcmeDraft"])
    draft.write(tmp_path / "draft")
    write("sglang/engine.toml", 'contracts = ["acme"]\n')
    write("sglang/acme.toml", TINY)
    return tmp_path


def write(name: str, text: str) -> None:
    path = Path("own") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_draft_class_for_a_known_engine(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["draft", *ENGINE]) == 1
    assert "DC501" in capsys.readouterr().out
    assert run(["draft", *ENGINE, "--contracts", "own", "--format", "json"]) == 0
    checkpoint = json.loads(capsys.readouterr().out)["checkpoints"][0]
    assert (checkpoint["contract"], checkpoint["outcome"]) == ("sglang/acme", "clean")
    assert {"tensor": "fc.weight", "parameter": "fc.weight"} in checkpoint["plan"]["loaded"]
    assert run(["draft", "--engine", "sglang==0.5.9", "--contracts", "own"]) == 1  # before the first revision
    assert "(sglang has it since 0.5.10)" in capsys.readouterr().out
    assert run(["draft", *ENGINE]) == 1
    assert run(["show", "draft", *ENGINE, "--contracts", "own"]) == 0


def test_its_faults_are_found(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = Draft()
    draft.set(architectures=["AcmeDraft"])
    draft.shape("fc.weight", 32, 32)
    draft.write(room / "draft")
    assert run(["draft", *ENGINE, "--contracts", "own", "--format", "concise"]) == 1
    out = capsys.readouterr().out
    assert "DC401 error `fc.weight` takes 32 values, but sglang 0.5.15 builds it for 96 (3 x 32)" in out


def test_the_settings_name_them_and_the_command_line_replaces_those(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (room / "ci").mkdir()
    (room / "ci" / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nextend-contracts = ["../own"]\n')
    assert run(["draft", "--config", "ci/drafcheck.toml"]) == 0
    assert drafcheck.lint("draft", config="ci/drafcheck.toml").checkpoints[0].contract == "sglang/acme"
    (room / "none").mkdir()
    assert run(["draft", "--config", "ci/drafcheck.toml", "--contracts", "none"]) == 2
    assert "none holds no contracts" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["draft", "draft/", "draft/model.safetensors", "draft/../draft"])
@pytest.mark.parametrize("command", [[], ["show"], ["fix", "--diff"]])
@pytest.mark.parametrize("file", ["drafcheck.toml", "pyproject.toml"])
def test_a_checkpoint_brings_none(
    file: str, command: list[str], given: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could bring the contract that takes whatever is wrong with it."""
    (room / "own").rename(room / "draft" / "own")
    table = "" if file == "drafcheck.toml" else "[tool.drafcheck]\n"
    (room / "draft" / file).write_text(table + 'extend-contracts = ["own"]\n')
    assert run([*command, given, *ENGINE]) == 2
    line = 1 if not table else 2
    why = "contracts are not read for settings in the checkpoint's own folder: move the file upward, or name it with"
    out, err = capsys.readouterr()
    assert f"{file}:{line}: {why} --config\n" in err
    assert not out


@pytest.mark.parametrize(("folders", "code"), [("[]", 1), ('["../own"]', 2)])
def test_a_checkpoint_among_others_brings_none(folders: str, code: int, room: Path) -> None:
    """Nor do those above it: settings are not merged, and without its contract the class is unknown."""
    (room / "draft" / "drafcheck.toml").write_text(f"extend-contracts = {folders}\n")
    (room / "drafcheck.toml").write_text('extend-contracts = ["own"]\n')
    Draft().write(room / "plain")
    assert run([".", *ENGINE]) == code
    assert run(["plain", "draft", *ENGINE]) == code


def test_what_the_caller_names_is_read(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In settings above the checkpoint, from within the project too; with --config; on the command line."""
    (room / "drafcheck.toml").write_text('extend-contracts = ["own"]\n')
    assert run(["draft", *ENGINE]) == 0
    assert run([str(room / "draft"), *ENGINE]) == 0
    monkeypatch.chdir("draft")
    assert run([".", *ENGINE]) == 0
    (room / "drafcheck.toml").rename(room / "draft" / "drafcheck.toml")
    assert run([".", *ENGINE]) == 2
    assert run([".", *ENGINE, "--no-config"]) == 1
    (room / "own").rename(room / "draft" / "own")
    assert run([".", *ENGINE, "--config", "drafcheck.toml"]) == 0
    assert run([".", *ENGINE, "--contracts", "own"]) == 0


def test_built_in_classes_stay(room: Path) -> None:
    Draft().write(room / "plain")
    report = drafcheck.lint("plain", engine="sglang==0.5.15")
    (room / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nextend-contracts = ["own"]\n')
    extended = drafcheck.lint("plain", config="drafcheck.toml")
    assert extended.checkpoints[0].plan == report.checkpoints[0].plan
    assert extended.findings == report.findings


def test_an_engine(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("acme/engine.toml", 'releases = ["1.0", "1.1"]\ncontracts = ["draft"]\ndefault_algorithm = "EAGLE3"\n')
    write("acme/draft.toml", TINY.replace('">=0.5.10"', '">=1.1"'))
    write("acme/loader.toml", 'patterns = [".safetensors"]\nindex = "model.safetensors.index.json"\n')
    assert run(["contracts", "--contracts", "own"]) == 0
    listed = capsys.readouterr().out
    assert "acme 1.0 to 1.1 (2 releases)" in listed
    assert "AcmeDraft" in listed.partition("sglang ")[2]
    assert run(["draft", "--engine", "acme", "--contracts", "own", "--format", "json"]) == 0
    checkpoint = json.loads(capsys.readouterr().out)["checkpoints"][0]
    assert (checkpoint["engine"], checkpoint["contract"]) == ({"name": "acme", "version": "1.1"}, "acme/draft")
    found = [f["rule"] for f in checkpoint["findings"]]
    assert (checkpoint["outcome"], found) == ("clean", ["DC106"])  # this contract skips most of the file
    assert run(["draft", "--engine", "acme==1.0", "--contracts", "own"]) == 0
    assert "how it loads was not checked" in capsys.readouterr().out
    assert run(["draft", "--engine", "acme"]) == 2
    assert "unknown engine 'acme'" in capsys.readouterr().err
    for name in ("config.json", "model.safetensors"):
        (room / "draft" / name).unlink()
        assert run(["draft", "--engine", "acme", "--contracts", "own"]) in (1, 3)
        assert "DC999" not in capsys.readouterr().out
        Draft().write(room / "draft")


def test_whatever_is_wrong_with_a_draft_an_own_engine_answers(room: Path) -> None:
    """An engine about which the book says the least: no rule crashes for want of a table."""
    write("acme/engine.toml", 'releases = ["1.0"]\ncontracts = ["draft"]\n')
    write("acme/draft.toml", TINY.replace('">=0.5.10"', '">=1.0"'))
    write("acme/loader.toml", 'patterns = [".safetensors"]\n')
    (room / "drafcheck.toml").write_text('engine = "acme"\nextend-contracts = ["own"]\n')
    edits = {
        "names": lambda draft: draft.rename(lambda name: f"module.{name}"),
        "class": lambda draft: draft.set(architectures=["Nonsense"]),
        "no class": lambda draft: draft.config.pop("architectures"),
        "ids": lambda draft: draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}),
        "no d2t": lambda draft: draft.drop("d2t"),
        "fc": lambda draft: draft.shape("fc.weight", 32, 32),
        "head": lambda draft: draft.drop("lm_head.weight"),
        "dtype": lambda draft: draft.set(torch_dtype="float16"),
        "nested": lambda draft: draft.set(transformer_layer_config={"hidden_size": 3}, hidden_size=None),
        "tied": lambda draft: draft.set(tie_word_embeddings=True),
    }
    for what, edit in edits.items():
        for architecture in ("AcmeDraft", "LlamaForCausalLMEagle3"):
            draft = Draft()
            draft.set(architectures=[architecture])
            edit(draft)
            draft.write(room / "draft")
            report = drafcheck.lint("draft", config="drafcheck.toml")
            assert report.exit_code in (0, 1), (what, [f.message for f in report.findings])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sglang/acme.toml", TINY + "[[parm]]\n", "acme.toml:46: unknown key 'parm'; did you mean param?"),
        ("sglang/acme.toml", TINY.replace("load = ", "laod = ", 1), ":31: unknown key 'laod'; did you mean load?"),
        ("sglang/acme.toml", TINY.replace('"vocab"', '"vocabulary"'), ":44: param[2].load should be 'plain', 'vocab'"),
        (
            "sglang/acme.toml",
            TINY.replace('">=0.5.10"', '"0.5.10-"'),
            ":6: revision[0].versions: not a version range",
        ),
        ("sglang/acme.toml", TINY.replace('when = "biased"', 'when = "bias"'), ":36: 'bias' is no [[flag]] of this"),
        ("sglang/acme.toml", TINY.replace('"fc.bias"', '"{layer}.bias"'), ":35: no [[expand]] says what {layer} in"),
        ("sglang/acme.toml", TINY.replace("aux = [3]", "aux = 3"), ":9: read[0]: num_aux should be a list"),
        ("sglang/acme.toml", TINY.replace('kind = "eagle3"', "kind = 3"), ":3: kind should be a valid string"),
        ("sglang/acme.toml", TINY.replace('shape = ["hidden_size"]\n', ""), ":34: param[1]: either `shape`, or"),
        ("sglang/acme.toml", 'architectures = ["A"]\n', ": kind is missing (and 2 more)"),
        ("sglang/acme.toml", "architectures = [", ":1: not TOML"),
        ("sglang/other.toml", TINY, 'other.toml is never read: add "other" to contracts in own/sglang/engine.toml'),
        ("sglang/other.toml", "x = 1", "other.toml:1: unknown key 'x'"),
        ("sglang/engine.toml", 'contracts = ["acme", "x"]', ":1: contracts names 'x', and there is no x.toml"),
        ("sglang/engine.toml", 'contract = ["acme"]', ":1: unknown key 'contract'; did you mean contracts?"),
        ("sglang/engine.toml", 'contracts = ["acme"]\nreleases = ["x"]', ":2: releases[0]: not a version: 'x'"),
        ("sglang/targets.toml", "familly = []", "targets.toml:1: unknown key 'familly'; did you mean family?"),
        ("sglang/targets.toml", "family = 3", "targets.toml:1: family should be a list"),
        ("sglang/loader.toml", '[[revision]]\nversions = "new"', ":2: not a version range: 'new'"),
        ("sglang/acme.toml", 'extends = ["x"]\n' + TINY, "acme.toml:1: acme.toml extends 'x', and there is no x.toml"),
        ("sglang/acme.toml", 'extends = ["acme"]\n' + TINY, "acme.toml:1: acme.toml extends itself"),
        ("sglang/acme.toml", 'extends = ["loader"]\n' + TINY, "acme.toml:1: unknown key 'missing_shard'"),
        (
            "sglang/parts/x.toml",
            "[[flag]]\nnane = 'x'",
            "own/sglang/parts/x.toml:2: unknown key 'nane'; did you mean name?",
        ),
        ("sglang/engine.toml", "classes = { acme = 'AcmeDraft' }", ":1: classes.acme should be a valid list"),
        ("acme/draft.toml", TINY, "own/acme/engine.toml is missing: acme is no engine that drafcheck knows"),
        ("acme/engine.toml", "contracts = []", "own/acme/engine.toml: releases should list one version or more"),
        ("acme/engine.toml", 'releases = ["1.0"]', "own/acme/loader.toml is missing"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(
    name: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(name, text)
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("error: own/")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_folder_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["draft", "--contracts", "absent"]) == 2
    assert "error: no folder of contracts: absent" in capsys.readouterr().err
    assert run(["contracts", "--contracts", "absent"]) == 2


def test_an_edited_contract_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 0
    write("sglang/acme.toml", TINY.replace("[3]", "[2]"))
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 1


def test_the_built_in_book_fits_the_models() -> None:
    """So a contract may be written after those that ship, and the models know every key that they use."""
    for engine in engines():
        EngineBook.model_validate(load_toml(engine, "engine.toml"))
        for stem in contract_files(engine):
            ContractPart.model_validate(load_toml(engine, f"{stem}.toml"))
            book = ContractBook.model_validate(contract_table(engine, stem))
            assert book.stray() is None
            assert book.architectures == load_toml(engine, "engine.toml")["classes"][stem], "the index says otherwise"
    ProducerBook.model_validate(load_toml("producers.toml"))
    assert checked([rules_folder()]) == (rules_folder(),)


def test_the_same_folder_twice_and_a_class_again(room: Path) -> None:
    """What is given for a class that the book has stands for the built-in contract."""
    write("sglang/acme.toml", TINY.replace("AcmeDraft", "LlamaForCausalLMEagle3"))
    Draft().write(room / "plain")
    (room / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nextend-contracts = ["own", "own"]\n')
    assert drafcheck.lint("plain", config="drafcheck.toml").checkpoints[0].contract == "sglang/acme"
    with pytest.raises(UsageError, match="no folder of contracts"):
        checked(["own", "absent"])


PART = """[[revision]]
summary = "fc and a head"

[[param]]
name = "fc.weight"
shape = ["hidden_size", "3 * hidden_size"]
load = "plain"
initial = "random"

[[param]]
name = "norm.weight"
shape = ["hidden_size"]
load = "plain"
initial = "ones"
"""


def test_a_contract_takes_over_what_it_extends(capsys: pytest.CaptureFixture[str]) -> None:
    """One's own entries come before those of the part, and only what is not there is taken from it."""
    write("sglang/parts/small.toml", PART)
    write("sglang/acme.toml", 'extends = ["parts/small"]\n' + TINY.replace(', "norm"]', "]"))
    assert run(["draft", *ENGINE, "--contracts", "own", "--format", "json"]) == 0
    loaded = json.loads(capsys.readouterr().out)["checkpoints"][0]["plan"]["loaded"]
    assert [entry["parameter"] for entry in loaded if entry["tensor"] == "norm.weight"] == ["norm.weight"]
    write("sglang/acme.toml", 'extends = ["parts/small"]\n' + TINY.replace("num_aux * target", "2 * target"))
    assert run(["draft", *ENGINE, "--contracts", "own", "--format", "concise"]) == 1
    assert "sglang 0.5.15 builds it for 64" in capsys.readouterr().out


def test_what_a_part_lacks_is_said_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    write("sglang/parts/small.toml", PART.replace("shape", 'when = "tied"\nshape', 1))
    write("sglang/acme.toml", 'extends = ["parts/small"]\n' + TINY)
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 2
    assert "own/sglang/acme.toml:1: 'tied' is no [[flag]] of this contract" in capsys.readouterr().err
    write("sglang/parts/small.toml", 'extends = ["acme"]')
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 2
    assert "acme.toml extends itself" in capsys.readouterr().err


def test_only_the_file_of_the_class_is_read() -> None:
    """The index in engine.toml spares the others; a file of one's own that it does not name is looked into."""
    for architecture in ("LlamaForCausalLMEagle3", "AcmeDraft", "Nonsense"):
        listed = contract_tables.files_for("sglang", architecture)
        indexed = load_toml("sglang", "engine.toml")["classes"]
        assert listed == [stem for stem, classes in indexed.items() if architecture in classes]
    write("sglang/engine.toml", 'contracts = ["acme"]\n[classes]\nother = ["OtherDraft"]\n')
    write("sglang/other.toml", TINY.replace("AcmeDraft", "OtherDraft"))
    with extended(checked(["own"]), anew=True):
        assert contract_tables.files_for("sglang", "AcmeDraft") == ["acme", "other"]
        assert contract_tables.files_for("sglang", "LlamaForCausalLMEagle3") == ["acme", "other", "llama_eagle3"]
