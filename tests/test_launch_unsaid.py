"""What a launch file leaves to others: values inside JSON, the release, and a file of options of the engine's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import Draft
from scaling import QUADRATIC, growth

from drafcheck import UsageError, contract, lint
from drafcheck.launch.json_marks import marked

SGLANG = "python3 -m sglang.launch_server --model-path T"
DRAFTS = f"{SGLANG} --speculative-algorithm EAGLE3 --speculative-draft-model-path draft"
HEAD = '"method": "eagle3", "model": "draft"'
NEWEST = str(contract.releases("sglang")[-1])


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with an EAGLE-3 draft in it, and no engine installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_installed", lambda package: None)
    Draft().write(tmp_path / "draft")


def found(text: str, engine: str | None = None, name: str = "serve.sh") -> list[tuple[str, str]]:
    """The findings of the launch rules: code and message."""
    Path(name).write_text(text, encoding="utf-8")
    report = lint("draft", launch=name, engine=engine)
    return [(f.rule, f.message) for f in report.checkpoints[0].findings if f.rule.startswith("DC7")]


def codes(text: str, engine: str | None = None, name: str = "serve.sh") -> list[str]:
    return [code for code, _ in found(text, engine, name)]


def config(text: str) -> str:
    return f"vllm serve m --speculative-config {text}\n"


# -- the JSON of --speculative-config
UNKNOWN = ["${N}", "$N", "${N:?}", "$((1+2))", '$(jq ".a}" x)', "`cat n`", "${A}${B}", "1${N}"]


@pytest.mark.parametrize("whole", ['"$SPEC"', '"$(cat spec.json)"', '"`cat spec.json`"', "'{'\"$REST\"'}'"])
def test_json_from_outside_is_not_known_to_lack_anything(whole: str) -> None:
    assert codes(config(whole), "vllm==0.22.1") == ["DC708"]


def test_json_of_a_config_map_is_not_known_to_lack_anything() -> None:
    reference = "{name: SPEC, valueFrom: {configMapKeyRef: {name: a, key: b}}}"
    pod = 'containers:\n- command: ["vllm", "serve", "m", "--speculative-config", "$(SPEC)"]\n  env: [%s]\n'
    assert codes(pod % reference, "vllm==0.22.1", "pod.yaml") == ["DC708"]
    assert codes(pod % "{name: SPEC, value: '{}'}", "vllm==0.22.1", "pod.yaml") == ["DC701", "DC703"]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_one_unknown_value_leaves_the_rest_of_the_json_known(unknown: str) -> None:
    tokens = f"\"num_speculative_tokens\": '{unknown}'"
    assert codes(config(f"'{{{HEAD}, {tokens}}}'"), "vllm==0.22.1") == ["DC708"]
    assert codes(config(f"'{{{HEAD.replace('eagle3', 'eagle')}, {tokens}}}'"), "vllm==0.22.1") == ["DC701", "DC708"]
    other = tokens.replace("num_speculative_tokens", "max_model_len")
    assert codes(config(f"'{{{HEAD}, {other}}}'"), "vllm==0.22.1") == ["DC703", "DC708"], "the one that it needs"


def test_an_unknown_key_may_be_the_one_that_is_needed() -> None:
    key = "'{" + HEAD + ", \"'$KEY'\": 3}'"
    assert codes(config(key), "vllm==0.22.1") == ["DC708"]
    assert codes(config("'{" + HEAD + ', "$KEY": 3}\''), "vllm==0.22.1") == ["DC702"], "in single quotes it is meant so"


def test_a_template_in_single_quotes_is_filled_in_all_the_same() -> None:
    line = config("'{" + HEAD + ', "num_speculative_tokens": {{ n }}}\'')
    assert codes(line, "vllm==0.22.1") == ["DC708"]
    assert codes(line.replace("{{ n }}", "n"), "vllm==0.22.1") == ["DC702"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"a": $N}', '{"a": "$"}'),
        ('{"a": "x$N y"}', '{"a": "x$ y"}'),
        ('{"a\\"$N": 1}', '{"a\\"$": 1}'),
        ('{"a": $(f "}")}', '{"a": "$"}'),
        ("{$@}", '{"$"}'),
        ("$", '"$"'),
        ("`", '"$"'),
        ("{}", "{}"),
    ],
)
def test_marks(text: str, made: str) -> None:
    assert marked(text) == made


def test_marks_of_a_long_text_take_no_time() -> None:
    assert marked("a" * 500_000 + " $N") == "a" * 500_000 + ' "$"'
    assert marked("$(" * 200_000) == '"$"'
    assert growth(lambda n: marked("a" * n + " $N"), 100_000) < QUADRATIC / 2
    assert growth(lambda n: marked("$(" * n), 50_000) < QUADRATIC / 2


# -- the release
def compose(image: str) -> str:
    return f"services:\n  a:\n    image: {image}\n    environment: [TAG=v0.5.9]\n    command: {DRAFTS}\n"


UNSAID = [
    (compose("lmsysorg/sglang:${TAG}"), "lmsysorg/sglang:$TAG"),
    (compose("lmsysorg/sglang:latest"), "lmsysorg/sglang:latest"),
    (compose("lmsysorg/sglang"), "lmsysorg/sglang"),
    (compose("lmsysorg/sglang@sha256:12ab"), "lmsysorg/sglang@sha256:12ab"),
    (compose("${IMAGE}"), "$IMAGE"),
    (f"docker run lmsysorg/sglang:nightly {DRAFTS}", "lmsysorg/sglang:nightly"),
    (f"FROM lmsysorg/sglang:latest\nCMD {DRAFTS}\n", "lmsysorg/sglang:latest"),
    (f"pip install 'sglang[all]>=0.5,<0.6'\n{DRAFTS}", "sglang[all]>=0.5,<0.6"),
    (f"pip install sglang==0.5.*\n{DRAFTS}", "sglang==0.5.*"),
    (DRAFTS.replace("python3 -m sglang.launch_server", "uvx sglang@latest serve"), "sglang@latest"),
    (f"pip install sglang==$VER\n{DRAFTS}", "sglang==$VER"),
]


@pytest.mark.parametrize(("text", "quoted"), UNSAID)
def test_a_release_that_is_not_said_is_named(text: str, quoted: str) -> None:
    name = "a.yaml" if text.startswith("services") else "serve.sh"
    told = f"the release is not said by the file (`{quoted}`): checked for sglang {NEWEST}"
    assert ("DC708", told) in found(text, name=name)
    assert codes(text, "sglang==0.5.15", name) == [], "the user says it"


SAID = [
    (compose("lmsysorg/sglang:${TAG:-v0.5.9}"), "0.5.9"),
    (compose("lmsysorg/sglang:${TAG-v0.5.9}-cu126"), "0.5.9"),
    (compose("lmsysorg/sglang:v0.5.9@sha256:12ab"), "0.5.9"),
    (compose("mine/my-sglang:0.5.9"), "0.5.9"),
    (compose("python:3.11"), NEWEST),
    (f"FROM python:3.11\nRUN pip install sglang==0.5.9\nCMD {DRAFTS}\n", "0.5.9"),
    (f"FROM lmsysorg/sglang:latest\nRUN pip install sglang==0.5.9\nCMD {DRAFTS}\n", "0.5.9"),
    (f"pip install 'sglang[all]~=0.5.9'\n{DRAFTS}", "0.5.9"),
    (f"uvx --from sglang==0.5.9 {DRAFTS}", "0.5.9"),
    (f"uvx --from=sglang==0.5.9 {DRAFTS}", "0.5.9"),
    (f"uvx --from 'sglang[all]==0.5.9' {DRAFTS}", "0.5.9"),
    (f"bash -c 'pip install sglang==0.5.9 && {DRAFTS}'", "0.5.9"),
    (f"docker run -e SGLANG=1 -v sglang:/x me/x {DRAFTS}", NEWEST),
    (f"pip install sglang\n{DRAFTS}", NEWEST),
    (DRAFTS.replace("python3 -m sglang.launch_server", "uvx sglang@0.5.9 serve"), "0.5.9"),
    (DRAFTS.replace("python3 -m sglang.launch_server", "/opt/bin/sglang serve"), NEWEST),
    (DRAFTS.replace("python3 -m sglang.launch_server", "sglang serve"), NEWEST),
    (DRAFTS.replace("python3 -m sglang.launch_server", "sudo ./bin/sglang serve"), NEWEST),
    (f"docker run -v x:/src/sglang -w /src/sglang lmsysorg/sglang:v0.5.9 {DRAFTS}", "0.5.9"),
    (f"docker run lmsysorg/sglang:v0.5.9 {DRAFTS}".replace("python3 -m sglang.launch_server", "sglang serve"), "0.5.9"),
]


@pytest.mark.parametrize(("text", "version"), SAID)
def test_a_release_that_is_said_is_taken(text: str, version: str) -> None:
    name = "a.yaml" if text.startswith("services") else "serve.sh"
    assert found(text, name=name) == []
    assert lint("draft", launch=name).checkpoints[0].engine.version == version


# -- a file of options
@pytest.mark.parametrize(
    "line", ["vllm serve m --config c.yaml", "vllm serve --config=c.yaml", f"{SGLANG} --config c.yaml"]
)
def test_options_in_a_file_of_the_engine_are_not_known_to_be_missing(line: str) -> None:
    [(code, message)] = found(line)
    assert code == "DC708"
    assert message == "--config c.yaml is not read: options may stand there"
    assert codes(line.replace("--config c.yaml", "").replace("--config=c.yaml", "m")) == ["DC701"]


def test_the_parallelism_of_the_target_may_stand_there() -> None:
    line = config("'{" + HEAD + ', "num_speculative_tokens": 3, "draft_tensor_parallel_size": 2}\'').strip()
    assert codes(line) == ["DC705"]
    assert codes(f"{line} --config c.yaml") == ["DC708"]


def test_a_user_of_another_machine_is_no_release() -> None:
    with pytest.raises(UsageError, match="no command that starts an engine"):
        found("ssh vllm@host serve m")
