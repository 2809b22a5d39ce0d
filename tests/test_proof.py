"""How the book was proven is data: the counts are those of the recordings, and the command shows them."""

from __future__ import annotations

import json
from pathlib import Path

import count_proofs
import pytest
import recorded
from drafts import Draft
from packaging.version import Version
from test_contract_folders import TINY

from drafcheck import lint
from drafcheck.cli import run
from drafcheck.contract import contract_files, engines, extended, in_force, load_toml, releases, resolve_engine
from drafcheck.contract_tables import contract_table
from drafcheck.proof import Proof, eras, proofs, spans, whole_models
from drafcheck.targets import registered_since

CONTRACTS = [(engine, stem) for engine in engines() for stem in contract_files(engine)]
RECORDED = Path(count_proofs.FIXTURES, "verdicts")


def test_the_counts_are_those_of_the_recordings() -> None:
    """What `python tools/count_proofs.py` would write is what stands there."""
    assert count_proofs.stale() == {}


def test_the_counts_are_of_rows_that_exist() -> None:
    """Counted once more in the plainest way: no contract names more checkpoints than a release has rows."""
    rows: dict[tuple[str, str], int] = {}
    for file in [one for engine in RECORDED.iterdir() if engine.is_dir() for one in recorded.files(engine)]:
        for row in recorded.rows(file):
            for release in (row.get("releases") or [row["version"]]) if "loaded" in row else ():
                rows[file.parent.name, release] = rows.get((file.parent.name, release), 0) + 1
    said = {(engine, str(p.release), p.checkpoints) for engine, stem in CONTRACTS for p in proofs(engine, stem)}
    assert sum(count > 50 for *_, count in said) > 15
    assert all(count <= rows.get((engine, release), 0) for engine, release, count in said)


def test_a_recording_more_or_less_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = tmp_path / "verdicts" / "vllm"
    engine.mkdir(parents=True)
    (tmp_path / "producers").symlink_to(count_proofs.FIXTURES / "producers")
    (engine / "checkpoints.tar.xz").symlink_to(RECORDED / "vllm" / "checkpoints.tar.xz")
    rows = recorded.rows(RECORDED / "vllm" / "synthetic.jsonl")
    ran = next(row for row in rows if row["version"] == "0.33.0" and row["error"] is None)
    (engine / "synthetic.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows if row != ran))
    before = count_proofs.counted("vllm")
    (engine / "producers.jsonl").write_text("")
    monkeypatch.setattr(count_proofs, "FIXTURES", tmp_path)
    count_proofs._configs.cache_clear()
    after = count_proofs.counted("vllm")
    count_proofs._configs.cache_clear()
    only_synthetic = {
        (row["version"], row["checkpoint"]) for row in rows if row["version"] == "0.33.0" and count_proofs._ran(row)
    }
    counts = [sum(by_release.get("0.33.0", 0) for by_release in made.values()) for made in (before, after)]
    assert counts[1] < counts[0]
    assert counts[1] <= len(only_synthetic) - 1


def test_counts_take_the_place_of_a_list() -> None:
    """A contract may begin with the releases alone; the counts come from the tool."""
    lone = '# Head.\nkind = "eagle3"\n\n# Era.\n[[revision]]\nsummary = "one"\n'
    block = f'{count_proofs.HEAD}\n"1.0" = 3\n'
    assert count_proofs.written(lone, {"1.0": 3}) == lone.replace("# Era.", f"{block}\n# Era.")
    listed = lone.replace("# Era.", '[proof]\nexecuted = [\n    "1.0",\n]\nread = ["0.9"]\n\n# Era.')
    made = count_proofs.written(listed, {"1.0": 3})
    assert made == lone.replace("# Era.", f'[proof]\nread = ["0.9"]\n\n{block}\n# Era.')
    assert count_proofs.written(made, {"1.0": 4}) == made.replace("= 3", "= 4")


@pytest.mark.parametrize(("engine", "stem"), CONTRACTS)
def test_a_proof_speaks_of_releases_that_the_engine_has(engine: str, stem: str) -> None:
    proof = contract_table(engine, stem).get("proof", {})
    said = [*map(Version, proof.get("executed", [])), *map(Version, proof.get("read", []))]
    assert len(said) == len(set(said))
    assert set(said) <= set(releases(engine))


@pytest.mark.parametrize(("engine", "stem"), CONTRACTS)
def test_every_contract_says_how_it_was_proven(engine: str, stem: str) -> None:
    assert {p.how for p in proofs(engine, stem)} & {"executed", "read"}


def test_a_proof_is_not_taken_over_from_another_class() -> None:
    assert "llama_eagle" in (count_proofs.rules_folder() / "sglang" / "qwen2_eagle.toml").read_text()
    assert contract_table("sglang", "qwen2_eagle").get("proof") != contract_table("sglang", "llama_eagle")["proof"]


PROVEN = '[proof]\nread = ["1.1"]\n[proof.executed]\n"1.0" = 7\n"1.3" = 2\n'


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "engine.toml").write_text(
        'releases = ["0.9", "1.0", "1.1", "1.2", "1.3", "1.4"]\ncontracts = ["draft"]\n'
    )
    (tmp_path / "acme" / "draft.toml").write_text(TINY.replace('">=0.5.10"', '">=1.0"') + PROVEN)
    (tmp_path / "acme" / "loader.toml").write_text('patterns = [".safetensors"]\n')
    return tmp_path


def test_each_release_is_proven_in_one_way(own: Path) -> None:
    with extended((own,), anew=True):
        found = proofs("acme", "draft")
    assert found == [
        Proof(Version("1.0"), "executed", 7),
        Proof(Version("1.1"), "read"),
        Proof(Version("1.2"), "interpolated"),
        Proof(Version("1.3"), "executed", 2),
        Proof(Version("1.4"), "assumed"),
    ]
    assert spans(found, "executed") == "1.0, 1.3"
    assert spans([p._replace(how="read") for p in found], "read") == "1.0 to 1.4"


def test_the_command_shows_it(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts", "--contracts", str(own)]) == 0
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if "AcmeDraft" in line]
    assert line.split("  ")[-1] == (
        "executed in 2 releases on 2 to 7 checkpoints each; read in 1.1; interpolated in 1.2; assumed in 1.4"
    )
    assert run(["contracts", "acmedraft", "--contracts", str(own)]) == 0
    shown = capsys.readouterr().out
    assert "1.0      executed on 7\n" in shown
    assert "interpolated: 1.2 (between two releases" in shown
    assert "sglang" not in shown
    assert run(["contracts", "acme", "--format", "json", "--contracts", str(own)]) == 0
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    assert engine["contracts"][0]["proof"][0] == {"release": "1.0", "how": "executed", "checkpoints": 7}
    assert [p["how"] for p in engine["contracts"][0]["proof"][1:]] == ["read", "interpolated", "executed", "assumed"]


def test_every_class_and_every_engine_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts", "--format", "json"]) == 0
    told = {e["name"]: e for e in json.loads(capsys.readouterr().out)["engines"]}
    assert [*told] == engines()
    assert run(["contracts"]) == 0
    shown = capsys.readouterr().out
    for engine, stem in CONTRACTS:
        assert set(contract_table(engine, stem)["architectures"]) <= set(shown.split())
        assert f"{engine}/{stem}" in [c["name"] for c in told[engine]["contracts"]]


@pytest.mark.parametrize(("engine", "stem"), CONTRACTS)
def test_eras_are_those_of_releases_that_have_the_class(engine: str, stem: str) -> None:
    """What a contract extends may speak of releases from before its class; each release has one era."""
    held = [release for _, known in eras(engine, stem) for release in known]
    assert sorted(held) == sorted({p.release for p in proofs(engine, stem)})
    assert len(held) == len(set(held)) > 0
    for name in contract_table(engine, stem)["architectures"]:
        since = registered_since(resolve_engine(engine), name)
        assert since is None or Version(since) <= held[-1]


def test_an_era_from_before_the_class_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Mistral's class, of 0.5.11, extends Llama's, which has eras of 0.4.5."""
    assert [str(known[0]) for _, known in eras("sglang", "mistral_eagle")] == ["0.5.11"]
    assert len(contract_table("sglang", "mistral_eagle")["revision"]) > 1
    assert run(["contracts", "MistralForCausalLMEagle"]) == 0
    assert "0.4." not in capsys.readouterr().out
    assert next(str(known[0]) for _, known in eras("sglang", "llama_eagle")) == "0.4.5"
    assert run(["contracts", "LlamaForCausalLMEagle"]) == 0
    assert "0.4.5 to 0.4.8" in capsys.readouterr().out


@pytest.mark.parametrize(("engine", "word"), [("sglang", "STANDALONE"), ("vllm", "draft_model"), ("lmdeploy", "")])
def test_whole_models_are_listed_where_they_draft(engine: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts", engine]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "any whole model" in line]
    assert len(lines) == bool(word)
    assert all(word in line and "DC604" in line and "read in" in line for line in lines)
    assert run(["contracts", engine, "--format", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["engines"]
    assert (told["whole_models"] or {}).get("algorithms", []) == [word] * bool(word)


def test_whole_models_draft_where_the_launch_knows_the_algorithm() -> None:
    known = {p.release for p in whole_models("sglang")}
    for release in releases("sglang"):
        entry = in_force(load_toml("sglang", "launch.toml")["algorithms"], resolve_engine(f"sglang=={release}"))
        assert entry is not None
        assert ("STANDALONE" in entry["names"]) == (release in known)


def test_a_word_that_means_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts", "sglan"]) == 2
    assert "no engine, contract or draft class 'sglan'; did you mean sglang?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.12.0", "judged as vllm 0.11.0, interpolated between it and 0.16.0, which does not require the same of "),
        ("99.0", f"judged as vllm {releases('vllm')[-1]}"),
        ("0.8.0", "judged as vllm 0.9.2"),
    ],
)
def test_a_release_in_between_is_interpolated(version: str, says: str) -> None:
    report = lint(count_proofs.FIXTURES / "good" / "healthy", engine=f"vllm=={version}")
    (note,) = [f.message for f in report.findings if f.rule == "DC603"]
    assert says in note
    assert ("interpolated" in note) == ("interpolated" in says)


def test_the_next_release_may_require_the_same() -> None:
    report = lint(count_proofs.FIXTURES / "good" / "healthy", engine="sglang==0.5.3.post2")
    (note,) = [f.message for f in report.findings if f.rule == "DC603"]
    assert note.endswith("interpolated between it and 0.5.4, which requires the same of LlamaForCausalLMEagle3")


@pytest.mark.parametrize(
    ("engine", "confidence"),
    [
        ("sglang==0.5.9", "certain"),
        ("sglang==0.5.3.post2", "certain"),  # 0.5.3 and 0.5.4 require the same
        ("vllm==0.12.0", "likely"),  # 0.11.0 and 0.16.0 do not
        ("sglang==0.9.0", "likely"),  # newer than all that is known
    ],
)
def test_a_finding_is_no_more_certain_than_the_release_is_known(tmp_path: Path, engine: str, confidence: str) -> None:
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path)
    found = [f for f in lint(tmp_path, engine=engine).findings if f.rule == "DC102"]
    assert [f.confidence.value for f in found] == [confidence]
