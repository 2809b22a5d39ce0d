"""--launch: which command of a file is meant, what it says, and what wins over it. Nothing in the file is run."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft, dump, target_config
from hypothesis import given, settings
from hypothesis import strategies as st

from drafcheck import UsageError, contract, lint
from drafcheck.cli import run
from drafcheck.contract import engines, load_toml, releases
from drafcheck.launch.arguments import flags_of, take
from drafcheck.launch.drafts import compare
from drafcheck.launch.find import Found, find, version_of
from drafcheck.launch.read import launch_for, read_launch
from drafcheck.launch.words import Word
from drafcheck.launch_models import DepthBook, FlagBook, LaunchBook
from drafcheck.session import Options, Session

NEWEST = str(releases("sglang")[-1])

EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path"


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a draft in it, and no engine installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_installed", lambda package: None)
    Draft().write(tmp_path / "draft")
    return tmp_path


def serve(text: str, name: str = "serve.sh") -> str:
    Path(name).write_text(text)
    return name


def said(text: str, name: str = "serve.sh", engine: str | None = None) -> dict[str, str]:
    return launch_for(name, find(name, text), "draft", engine).said


LAUNCHED = [engine for engine in engines() if load_toml(engine, "launch.toml")]
"""The engines whose launch line can be read; of the others no launch facts are in the book."""


def test_the_book_fits_the_models() -> None:
    assert {"sglang", "vllm"} <= set(LAUNCHED)
    for engine in LAUNCHED:
        LaunchBook.model_validate(load_toml(engine, "launch.toml"))
        FlagBook.model_validate(load_toml(engine, "flags.toml"))
    DepthBook.model_validate(load_toml("depth.toml"))


@pytest.mark.parametrize("engine", LAUNCHED)
def test_every_option_that_the_book_reads_exists_in_some_release(engine: str) -> None:
    listed = {name for group in load_toml(engine, "flags.toml")["flags"] for name in group["names"].split()}
    named = {name for names in load_toml(engine, "launch.toml")["options"].values() for name in names}
    assert named <= listed
    assert not set(load_toml(engine, "launch.toml")["foreign"]) & set(
        flags_of(engine, str(contract.releases(engine)[-1]))
    )


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        "env A=1 {}",
        "nohup {} &",
        "exec {}",
        "CUDA_VISIBLE_DEVICES=0 {} 2>&1 | tee log",
        "sudo -E numactl -N 0 {}",
        "cd /srv && {}",
        "if true; then {}; fi",
        "run() {{\n  {}\n}}\nrun",
        "docker exec -it box bash -c '{}'",
        'ssh host "{}"',
        "tmux new-session -d -s llm '{}'",
        "while true; do {}; sleep 1; done",
    ],
)
def test_the_command_is_found_behind_what_wraps_it(wrapped: str) -> None:
    line = f"/usr/bin/python3.11 -m sglang.launch_server --model-path m {EAGLE3} /x/draft --tp 2"
    assert said(wrapped.format(line)) == {"target": "m", "algorithm": "EAGLE3", "draft": "/x/draft", "tp": "2"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ls -l",
        "echo python -m sglang.launch_server --model m",
        "pkill -f sglang.launch_server",
        "a: b\nc: [d]",
        "FROM x\nCMD y",
    ],
)
def test_a_file_that_starts_no_engine_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["draft", "--launch", serve(text)]) == 2
    error = capsys.readouterr().err
    assert "serve.sh: no command that starts an engine: looked for `sglang serve`" in error
    assert "`python -m vllm.entrypoints.openai.api_server`" in error


def setup(text: str, name: str = "serve.sh", **options: Any) -> Any:
    return Session(Options(launch=serve(text, name), **options)).setup("draft")


def test_it_says_what_the_options_leave_open() -> None:
    text = f"python -m sglang.launch_server --model m {EAGLE3} draft --tp 4 --dtype bfloat16"
    options = setup(text).options
    assert (options.algorithm, options.dtype, options.tp, options.target) == ("EAGLE3", "bfloat16", 4, None)
    options = setup(text, algorithm="EAGLE", dtype="float16", tp=1, engine="sglang==0.5.9").options
    assert (options.algorithm, options.dtype, options.tp, options.engine) == ("EAGLE", "float16", 1, "sglang==0.5.9")


@pytest.mark.parametrize(
    ("text", "asked", "engine"),
    [
        ("docker run lmsysorg/sglang:v0.5.9-cu126 python3 -m sglang.launch_server --model m", None, "0.5.9"),
        ("docker run lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model m", "sglang", "0.5.9"),
        ("docker run lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model m", "sglang==0.5.12", "0.5.12"),
        ("docker run lmsysorg/sglang:latest python3 -m sglang.launch_server --model m", None, NEWEST),
        ("pip install sglang[all]==0.5.6\nsglang serve --model-path m", None, "0.5.6"),
        ("pip install -U vllm==0.11.0 && vllm serve m", None, "0.11.0"),
    ],
)
def test_the_release_is_that_which_the_file_pins(text: str, asked: str | None, engine: str) -> None:
    assert setup(text, engine=asked).engine.version == engine


def test_another_engine_than_the_one_asked_for_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="starts vllm, and sglang is asked for"):
        setup("vllm serve m", engine="sglang==0.5.9")


def test_settings_name_a_launch_file_and_win_over_it(room: Path) -> None:
    serve(f"python -m sglang.launch_server --model m {EAGLE3} draft --dtype bfloat16")
    (room / "drafcheck.toml").write_text('launch = "serve.sh"\ndtype = "float16"\nengine = "sglang==0.5.9"\n')
    found = Session(Options(search=True)).setup("draft")
    assert found.launch is not None and found.engine.version == "0.5.9"
    assert (found.options.dtype, found.options.algorithm) == ("float16", "EAGLE3")
    found = Session(Options(search=True, launch="serve.sh")).setup("draft")
    assert found.options.dtype == "bfloat16"


def test_the_target_is_read_where_it_lies_here(room: Path) -> None:
    (room / "target").mkdir()
    (room / "target" / "config.json").write_bytes(dump({**target_config(), "max_position_embeddings": 9}))
    assert setup("sglang serve --model-path target").options.target == "target"
    assert setup("sglang serve --model-path /no/such/target").options.target is None


def test_of_several_commands_the_one_with_this_draft_is_taken() -> None:
    text = f"sglang serve --model-path a\nvllm serve b --spec-model x\nsglang serve --model-path c {EAGLE3} /m/draft"
    found = setup(text).launch
    assert (found.said["target"], found.number, found.count, found.line) == ("c", 3, 3, 3)
    assert setup(text, engine="vllm").launch.said["target"] == "b"
    assert setup(text.replace("/m/draft", "/m/other")).launch.said["target"] == "b"


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(f"sglang serve --model-path m {EAGLE3} draft".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert run(["draft", "--launch", "-", "--engine", "sglang==0.5.15"]) == 0
    assert "launch -:1" in capsys.readouterr().out


def test_the_report_says_which_command(capsys: pytest.CaptureFixture[str]) -> None:
    serve(f"vllm serve b\n\nsglang serve --model-path m {EAGLE3} draft")
    assert run(["draft", "--launch", "serve.sh", "--engine", "sglang==0.5.15"]) == 0
    assert "launch serve.sh:3 (command 2 of 2)" in capsys.readouterr().out
    launch = lint("draft", launch="serve.sh", engine="sglang==0.5.15").checkpoints[0].launch
    assert launch is not None
    assert launch.model_dump() == {"file": "serve.sh", "line": 3, "command": 2, "commands": 2}


def test_nothing_is_run(room: Path) -> None:
    marker = room / "ran"
    text = f"touch {marker}\nX=$(touch {marker})\n"
    text += f"sglang serve --model-path `touch {marker}` --tp ${{X:=$(touch {marker})}}"
    setup(text)
    setup(
        f"services:\n  a:\n    command: !!python/object/apply:os.system ['touch {marker}']\n    x: vllm serve m",
        "a.yaml",
    )
    assert not marker.exists()


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("lmsysorg/sglang:v0.5.12-cu126", "0.5.12"),
        ("lmsysorg/sglang:v0.5.12.post1-cu129-amd64", "0.5.12.post1"),
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("registry:5000/mirror/sglang:v0.4.9.post2", "0.4.9.post2"),
        ("lmsysorg/sglang:v0.5.9@sha256:0123", "0.5.9"),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang:dev-x86-cu13", None),
        ("lmsysorg/sglang", None),
    ],
)
def test_the_release_in_an_image(image: str, version: str | None) -> None:
    assert version_of(image) == version


@pytest.mark.parametrize(
    ("draft", "checkpoint", "alike"),
    [
        ("draft", "draft", "same"),
        ("./draft/", "draft", "same"),
        ("/mnt/models/draft", "draft", "same"),
        ("/mnt/models/other", "draft", "unlike"),
        ("org/draft", "hf://org/draft@main", "same"),
        ("other/draft", "hf://org/draft", "other"),
        ("hf://org/draft/heads", "hf://org/draft", "same"),
        (".", "draft", "other"),
    ],
)
def test_which_draft_is_this_checkpoint(draft: str, checkpoint: str, alike: str) -> None:
    assert compare(draft, checkpoint) == alike


def taken(line: str, engine: str = "sglang", version: str = "0.5.15") -> dict[str, tuple[str, ...]]:
    flags = flags_of(engine, version)
    made = take([Word(w) for w in line.split()], flags, underscores=engine == "vllm")
    return {o.name + (f" ({o.fault})" if o.fault else ""): tuple(w.text for w in o.values) for o in made.options}


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--tp 2", {"--tp-size": ("2",)}),
        ("--tp=2", {"--tp-size": ("2",)}),
        ("--speculative-algo EAGLE", {"--speculative-algorithm": ("EAGLE",)}),
        ("--speculative EAGLE", {"--speculative (ambiguous)": ("EAGLE",)}),
        ("--tp_size 2", {"--tp_size (unknown)": ("2",)}),
        ("--trust-remote-code --tp 2", {"--trust-remote-code": (), "--tp-size": ("2",)}),
        ("--disable-radix-cache=1", {"--disable-radix-cache (no value)": ("1",)}),
        ("--lora-paths a=b c --tp 1", {"--lora-paths": ("a=b", "c"), "--tp-size": ("1",)}),
        ("--tp", {"--tp-size (needs a value)": ()}),
        ("--random-seed -1", {"--random-seed": ("-1",)}),
    ],
)
def test_sglang_options(line: str, options: dict[str, tuple[str, ...]]) -> None:
    assert taken(line) == options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--tensor_parallel_size 2", {"--tensor-parallel-size": ("2",)}),
        ("-tp 2", {"-tp": ("2",)}),
        ("--no-enable-prefix-caching", {"--no-enable-prefix-caching": ()}),
        ("--speculative_config.num_speculative_tokens 3", {"--speculative-config.num_speculative_tokens": ("3",)}),
        ("--speculative-config.method=eagle3", {"--speculative-config.method": ("eagle3",)}),
    ],
)
def test_vllm_options(line: str, options: dict[str, tuple[str, ...]]) -> None:
    assert taken(line, "vllm", "0.33.0") == options


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{b}: &{b} {{<<: [{', '.join(['*' + a] * 9)}]}}\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        MERGES,
        "a: " + "[" * 5000,
        "a: &a [*a]\nb: vllm serve m",
        "{" * 100,
        "a: 'b",
        "{{ .Values.x }}",
        "\t- a: b",
    ],
)
def test_hostile_manifests_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        read_launch(serve(text, "a.yaml"))


def test_a_file_that_is_too_long_or_no_text() -> None:
    Path("long.sh").write_bytes(b"sglang serve " + b"x" * 10_000_000)
    Path("bytes.sh").write_bytes(b"\xff\xfe sglang serve")
    for name, why in (("long.sh", "is longer than"), ("bytes.sh", "is not UTF-8"), ("none.sh", "does not exist")):
        with pytest.raises(UsageError, match=why):
            read_launch(name)


parts = st.sampled_from(
    ["vllm serve m ", "sglang serve --model-path m ", "--speculative-config ", "'{\"method\": ", '"eagle3"}\' ', "$X ",
     '"', "'", "\n", "--tp ", "4 ", "--speculative-algorithm EAGLE3 ", "FROM x\n", "CMD ", "[\"vllm\", \"serve\"]",
     "services:\n", "  - ", "command: ", "image: vllm/vllm-openai:v0.11.0\n", "$(", "`", "\\\n", "&a ", "*a ",
     "<<: ", "--a.b "]
)  # fmt: skip
NAMES = ["serve.sh", "Dockerfile", "a.yaml", "a.json"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.one_of(st.text(max_size=200), st.lists(parts, max_size=30).map("".join)))
def test_any_launch_file_is_read_or_refused(name: str, text: str) -> None:
    try:
        found = find(name, text)
    except UsageError:
        return
    assert isinstance(found, Found)
    if found.starts:
        assert launch_for(name, found, "draft", None).engine in engines()


@settings(max_examples=60, deadline=None)
@given(st.lists(parts, max_size=30).map("".join))
def test_any_launch_line_gives_a_report(text: str) -> None:
    Path("serve.sh").write_text(f"sglang serve --model-path m {text}", encoding="utf-8")
    try:
        report = lint("draft", launch="serve.sh")
    except UsageError:
        return
    assert report.exit_code in (0, 1), report.checkpoints[0].findings


def found(text: str, **options: Any) -> dict[str, str]:
    """The findings of the launch rules, by code."""
    report = lint("draft", launch=serve(text), **options)
    return {f.rule: f.message for f in report.checkpoints[0].findings if f.rule.startswith("DC7")}


def test_a_draft_that_is_served_itself_and_names_its_target() -> None:
    assert found("vllm serve ./draft", engine="vllm==0.33.0") == {}
    assert "DC701" in found("vllm serve ./target", engine="vllm==0.33.0")
    assert set(found("vllm serve ./target --config server.yaml", engine="vllm==0.33.0")) == {"DC708"}


def test_keys_of_json_by_release() -> None:
    line = (
        "vllm serve m --speculative-config.method eagle3 --speculative-config.model ./draft {}.num_speculative_tokens 3"
    )
    dotted = line.format("--speculative-config")
    assert found(dotted, engine="vllm==0.33.0") == {}
    more = f"{dotted} --speculative-config.parallel_drafting true"
    assert found(more, engine="vllm==0.33.0") == {}
    assert "other releases have it" in found(more, engine="vllm==0.11.0")["DC702"]
    assert "DC702" not in found(more, engine="vllm==0.12.0"), "a release between those that are known"


def test_a_long_script_takes_no_time() -> None:
    text = "a b\n" * 200_000 + f"sglang serve --model-path m {EAGLE3} draft\n"
    assert said(text)["algorithm"] == "EAGLE3"


def test_templates_are_unknown() -> None:
    said = found(
        "sglang serve --model-path {{ model }} --tp {{ .Values.tp }} --speculative-algorithm EAGLE3 {{ more }}"
    )
    assert set(said) == {"DC708"}
    assert "`$TEMPLATE` has no value" in said["DC708"]
