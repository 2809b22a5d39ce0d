"""What a launch line leaves open, misspells or mistypes: one finding where it is wrong, none where it may be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drafts import Draft
from scaling import QUADRATIC, growth

from drafcheck import contract, lint
from drafcheck.errors import UsageError
from drafcheck.launch.find import find
from drafcheck.launch.read import launch_for

SGLANG = "python3 -m sglang.launch_server --model-path T"
DRAFTS = "--speculative-algorithm EAGLE3 --speculative-draft-model-path draft"
VLLM = ["0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0"]


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with an EAGLE-3 draft in it, and no engine installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_installed", lambda package: None)
    Draft().write(tmp_path / "draft")


def found(text: str, engine: str = "sglang==0.5.15", name: str = "serve.sh") -> list[tuple[str, str]]:
    """The findings of the launch rules: code and message."""
    Path(name).write_text(text, encoding="utf-8")
    report = lint("draft", launch=name, engine=engine)
    return [(f.rule, f.message) for f in report.checkpoints[0].findings if f.rule.startswith("DC7")]


def codes(text: str, engine: str = "sglang==0.5.15", name: str = "serve.sh") -> list[str]:
    return [code for code, _ in found(text, engine, name)]


def config(**keys: object) -> str:
    return f"vllm serve m --speculative-config '{json.dumps(keys)}'"


OUTSIDE = [
    '{} "$@"',
    '{} "${{@}}"',
    '{} "${{@:2}}"',
    '{} "$1"',
    "{} $EXTRA_ARGS",
    "{} ${{SPEC_ARGS:-}}",
    '{} "${{SPEC_ARGS:-}}"',
    "{} ${{SPEC_ARGS-}}",
    ": ${{SPEC_ARGS:=}}\n{} $SPEC_ARGS",
    'SPEC_ARGS="${{SPEC_ARGS:-}}"\n{} $SPEC_ARGS',
    'ARGS=(--tp 1)\nif [ "$X" = 1 ]; then\n  ARGS+=(--speculative-algorithm EAGLE3)\nfi\n{} "${{ARGS[@]}}"',
    'ARGS=()\n[ "$X" = 1 ] && ARGS+=(--speculative-algorithm EAGLE3)\n{} "${{ARGS[@]:0}}"',
    "{} --$MORE x",
    "{} $(cat args)",
    "{} `\n --trust-remote-code `\n",
]


@pytest.mark.parametrize("line", OUTSIDE)
@pytest.mark.parametrize("start", [SGLANG, f"{SGLANG} {DRAFTS} --speculative-eagle-topk 1"])
def test_what_options_from_outside_may_bring_is_not_missed(line: str, start: str) -> None:
    assert codes(line.format(start)) == ["DC708"]


@pytest.mark.parametrize("line", ["{}", "X=\n{} ${{X:-}}", "X=()\n{} ${{X[@]}}", "{} --tp $TP", "{} --tp ${{TP:-1}}"])
def test_without_any_the_draft_is_not_used(line: str) -> None:
    assert "DC701" in codes(line.format(SGLANG))
    assert "DC703" in codes(line.format(f"{SGLANG} {DRAFTS} --speculative-eagle-topk 1"))


def test_json_from_outside_may_say_all() -> None:
    assert codes('vllm serve m --speculative-config "$SPEC"', "vllm==0.33.0") == ["DC708"]
    assert codes(config(method="eagle3"), "vllm==0.33.0") == ["DC701", "DC703"]


def test_quantisation_of_the_draft_may_come_from_outside() -> None:
    line = f"{SGLANG} {DRAFTS} --quantization fp8"
    assert codes(line) == ["DC706"]
    assert codes(f'{line} "$@"') == ["DC708"]


@pytest.mark.parametrize(
    ("algorithm", "outcome"),
    [("EAGLE", "not captured"), ("NEXTN", "not captured"), ("DFLASH", "another kind"), ("STANDALONE", "another kind")],
)
def test_what_another_algorithm_makes_of_an_eagle3_head(algorithm: str, outcome: str) -> None:
    said = dict(found(f"{SGLANG} {DRAFTS.replace('EAGLE3', algorithm)}"))["DC701"]
    assert outcome in said
    assert ("accept length" in said) == (outcome == "not captured")


@pytest.mark.parametrize("version", VLLM)
def test_the_methods_of_vllm_are_as_they_are_written(version: str) -> None:
    def judged(method: str) -> list[str]:
        return codes(config(method=method, model="draft", num_speculative_tokens=3), f"vllm=={version}")

    assert judged("EAGLE3") == ["DC701"]
    assert judged("eagle3") == []


def test_methods_of_later_releases_are_named_with_the_release() -> None:
    line = config(method="dflash", model="draft", num_speculative_tokens=3)
    assert "vllm 0.16.0 has no algorithm dflash" in dict(found(line, "vllm==0.16.0"))["DC701"]
    assert "another kind of draft" in dict(found(line, "vllm==0.22.1"))["DC701"]


CHAIN = "--speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens 4"


@pytest.mark.parametrize(
    ("steps", "topk", "expected"),
    [
        ("3", "1", []),
        ("0003", "1", []),
        ("three", "1", ["invalid int value"]),
        ("3.0", "1", ["invalid int value"]),
        ("9" * 5000, "1", ["invalid int value"]),
        ("-1", "1", ["does not check it at start"]),
        ("3", "0", ["does not check it at start"]),
        ("$STEPS", "1", []),
    ],
)
def test_numbers_of_sglang(steps: str, topk: str, expected: list[str]) -> None:
    said = [m for code, m in found(f"{SGLANG} {DRAFTS} {CHAIN.format(steps, topk)}") if code == "DC705"]
    assert len(said) == len(expected)
    assert all(text in message for text, message in zip(expected, said, strict=True))


@pytest.mark.parametrize(
    ("value", "early", "late"),
    [
        (3, "", ""),
        ("3", "TypeError", ""),
        (3.0, "", ""),
        (2.5, "", "ValidationError"),
        ([3], "TypeError", "ValidationError"),
        ({}, "TypeError", "ValidationError"),
        ("three", "TypeError", "ValidationError"),
        (0, "greater than zero", "ValidationError"),
        (-1, "greater than zero", "ValidationError"),
        (float("nan"), "", "ValidationError"),
        (True, "", ""),
    ],
)
def test_numbers_of_vllm(value: object, early: str, late: str) -> None:
    for version in VLLM:
        expected = early if version in ("0.9.2", "0.11.0") else late
        line = config(method="eagle3", model="draft", num_speculative_tokens=value)
        said = [m for code, m in found(line, f"vllm=={version}") if code == "DC705"]
        assert len(said) == bool(expected), version
        assert all(expected in message for message in said)


def test_a_misspelt_key_is_one_finding() -> None:
    line = config(metod="eagle3", model="draft", num_speculative_tokens=3)
    assert codes(line, "vllm==0.11.0") == ["DC702"]
    dotted = "vllm serve m --speculative-config.metod eagle3 --speculative-config.model draft"
    assert codes(dotted, "vllm==0.33.0") == ["DC702"]
    assert codes(config(model="draft", num_speculative_tokens=3), "vllm==0.11.0") == ["DC701"]


def test_the_tokens_of_vllm_are_the_steps_of_sglang() -> None:
    Path("serve.sh").write_text(f"{SGLANG} {DRAFTS} --num-speculative-tokens 3", encoding="utf-8")
    findings = lint("draft", launch="serve.sh", engine="sglang==0.5.15").checkpoints[0].findings
    assert [f.help for f in findings if f.rule == "DC702"] == ["write --speculative-num-steps"]


def test_a_blank_behind_the_backslash_is_named_and_nothing_else() -> None:
    ((code, said),) = found(f"{SGLANG} \\ \n  {DRAFTS}\n")
    assert code == "DC702"
    assert said == "line 1 has a backslash with a blank behind it: the command ends there, and gets the blank"
    assert found(f"{SGLANG} \\\n  {DRAFTS}\n") == []


def test_many_unknown_options_take_no_time() -> None:
    def unknown(count: int) -> list[tuple[str, str]]:
        return found(f"{SGLANG} {DRAFTS} {' '.join(f'--unknown-option-{n}' for n in range(count))}")

    said = unknown(20_000)
    assert growth(unknown, 2_000) < QUADRATIC / 2
    assert len(said) == 21
    assert "does not take 19,980 more options either: `--unknown-option-20`" in said[-1][1]
    assert len(found(f"{SGLANG} {DRAFTS} --unknown-option-1 --unknown-option-2")) == 2


def test_backticks_continue_lines_where_the_file_says_so() -> None:
    lines = f"{SGLANG} `\n  --speculative-algorithm EAGLE3 `\n  --speculative-draft-model-path draft\n"
    assert found(lines, name="serve.ps1") == []
    assert found(f"# escape=`\nFROM lmsysorg/sglang\nCMD {lines}", name="Dockerfile") == []
    without = f"# escape=`\nFROM lmsysorg/sglang\nCMD {SGLANG} `\n  --tp 1\n"
    assert codes(without, name="Dockerfile") == ["DC701"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"bash <<EOF\n{SGLANG} \\\n {DRAFTS}\nEOF", {"target": "T"}),
        (f"M=x\nssh host bash -s <<-EOF\n\t{SGLANG[:-1]}$M\n\tEOF\n", {"target": "x"}),
        (f"M=x\nbash <<'EOF'\n{SGLANG[:-1]}$M\nEOF\n", {}),
        (f"M=x\nbash <<EOF\n{SGLANG[:-1]}\\$M\nEOF\n", {}),
    ],
)
def test_a_here_document_of_a_shell_is_read(text: str, said: dict[str, str]) -> None:
    launch = launch_for("serve.sh", find("serve.sh", text), "draft", None)
    assert {key: launch.said[key] for key in launch.said if key == "target"} == said
    assert bool(launch.missing) == (not said)


def test_other_here_documents_are_said_not_to_be_read() -> None:
    with pytest.raises(UsageError, match="here-documents are only read where a shell runs them"):
        found(f"cat > other.sh <<EOF\n{SGLANG}\nEOF\n")
    with pytest.raises(UsageError) as refused:
        found("ls\n")
    assert "here-documents" not in str(refused.value)
