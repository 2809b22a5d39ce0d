"""config.json: parsed as the engines parse it, every key with its place, wrong types survived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weightfiles import POINTER

from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.jsonpos import DOCUMENT_LIMIT, Document, read_document
from drafcheck.source import LocalFile
from drafcheck.tensor import Trouble


def document(path: Path, raw: bytes | str) -> Document:
    path.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return read_document(LocalFile(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


TEXT = """{
  "a": 1, "b\\u0041": {"c": [10, {"d": true}, 30],
\t"ä": "ö", "e": {}},
  "text": "{\\"a\\": [",   "last": null
}
"""


@pytest.mark.parametrize(
    ("route", "key", "line", "column"),
    [
        (("a",), "a", 2, 3),
        (("bA",), "bA", 2, 11),
        (("bA", "c"), "bA.c", 2, 23),
        (("bA", "c", 0), "bA.c.0", 2, 29),
        (("bA", "c", 1, "d"), "bA.c.1.d", 2, 34),
        (("bA", "c", 2), "bA.c.2", 2, 46),
        (("bA", "ä"), "bA.ä", 3, 2),
        (("bA", "e"), "bA.e", 3, 12),
        (("last",), "last", 4, 26),
        (("bA", "nowhere", "x"), "bA", 2, 11),
        (("bA", "c", 9), "bA.c", 2, 23),
        (("a", "x"), "a", 2, 3),
        (("text", "a"), "text", 4, 3),
        (("nowhere",), None, None, None),
        ((), None, None, None),
    ],
)
def test_places(
    path: Path, route: tuple[str | int, ...], key: str | None, line: int | None, column: int | None
) -> None:
    place = document(path, TEXT).at(*route)
    assert (place.file, place.key, place.line, place.column) == ("config.json", key, line, column)


def test_the_last_of_two_keys_is_the_place(path: Path) -> None:
    found = document(path, '{"a": 1,\n "b": {"x": 1,\n "x": 2},\n "a": 3}')
    assert found.data == {"a": 3, "b": {"x": 2}}
    assert (found.at("a").line, found.at("b", "x").line) == (4, 3)
    (problem,) = found.problems
    assert problem.trouble is Trouble.BAD_CONFIG and "the key 'x' twice" in problem.message
    assert (problem.location.line, problem.location.key) == (3, "x")


def test_nan_is_told_with_its_place(path: Path) -> None:
    found = document(path, '{"s": "NaN",\n "x": [1, -Infinity]}')
    assert found.data["x"][0] == 1
    (problem,) = found.problems
    assert "holds -Infinity" in problem.message and (problem.location.line, problem.location.column) == (2, 11)


REFUSED = {
    "is empty": b"",
    "is empty ": b" \n",
    "is not utf-8 text (byte 0)": b"\xff\xfe{\x00}\x00",
    "unexpected utf-8 bom": b"\xef\xbb\xbf{}",
    "is not json: expecting value": b"\x00\x01\x02\x03",
    "expecting property name": b'{"a": 1,}',
    "is not json: ": b'{"a": {"b": ',
    "is not json: unterminated string": b'{"a": "b',
    "is not json: invalid control character": b'{"a": "b\nc"}',
    "invalid control character": b'{"a": "\n"}',
    "holds a list": b"[1]",
    "holds a string": b'"a"',
    "holds null": b"null",
    "holds a boolean": b"true",
    "holds a number": b"1",
    "is nested too deeply": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "exceeds the limit (4300 digits)": b'{"a": ' + b"9" * 5000 + b"}",
    "lfs pointer": POINTER,
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_config(path: Path, words: str) -> None:
    found = document(path, REFUSED[words])
    assert found.data is None
    (problem,) = found.problems
    assert problem.message.startswith("config.json ") and words.strip() in problem.message
    assert problem.trouble is (Trouble.LFS_POINTER if "lfs" in words else Trouble.BAD_CONFIG)
    assert found.at("a").line is None
    assert DraftConfig(found).architectures == ()


def test_syntax_errors_have_a_place(path: Path) -> None:
    (problem,) = document(path, '{\n  "a": 1,\n}').problems
    assert (problem.location.line, problem.location.column) == (3, 1)


def test_huge_config_is_not_read(path: Path) -> None:
    """200 MB, sparse: only the limit is ever read."""
    from drafcheck import source

    with path.open("wb") as file:
        file.truncate(200_000_000)
    (problem,) = read_document(LocalFile(path)).problems
    assert "has 200000000 bytes, more than the 16777216" in problem.message
    assert source.bytes_read[str(path)] <= DOCUMENT_LIMIT


@pytest.mark.parametrize("value", [None, True, 1.5, "7168", [1], {}, 1 << 64, -(1 << 64)])
def test_only_integers_are_integers(path: Path, value: Any) -> None:
    config = DraftConfig(document(path, json.dumps({"a": value, "n": {"b": 7}})))
    assert config.integer("a") is None
    assert config.integer("n", "b") == 7
    assert config.integer("a", "b", "c") is None
    assert config.get("a", "b", "c", default=5) == 5


def test_accessors(path: Path) -> None:
    raw = {"architectures": ["A", 3, None, "B"], "model_type": "llama", "t": True, "s": "x", "z": 0}
    config = DraftConfig(document(path, json.dumps(raw)))
    assert config.architectures == ("A", "B") and config.architecture == "A" and config.model_type == "llama"
    assert (config.flag("t"), config.flag("s"), config.flag("z"), config.text("s"), config.text("t")) == (
        True,
        None,
        None,
        "x",
        None,
    )


@pytest.mark.parametrize("value", [None, "LlamaForCausalLM", {}, 3, [None]])
def test_architectures_of_wrong_types(path: Path, value: Any) -> None:
    config = DraftConfig(document(path, json.dumps({"architectures": value})))
    assert config.architectures == () and config.architecture is None


def target(path: Path, data: dict[str, Any]) -> TargetConfig:
    return TargetConfig(document(path, json.dumps(data, indent=1)))


def sizes(config: TargetConfig) -> tuple[int | None, ...]:
    return config.hidden_size, config.vocab_size, config.num_hidden_layers


FULL = {"hidden_size": 64, "vocab_size": 512, "num_hidden_layers": 8}
OTHER = {"hidden_size": 1, "vocab_size": 2, "num_hidden_layers": 3}


@pytest.mark.parametrize(
    ("data", "route"),
    [
        (FULL, ()),
        ({"model_type": "qwen2_vl", **FULL, "vision_config": OTHER}, ()),
        ({"model_type": "kimi_k25", "vision_config": OTHER, "text_config": FULL}, ("text_config",)),
        ({"llm_config": FULL, "vision_config": OTHER}, ("llm_config",)),
        (
            {"talker_config": {"text_config": OTHER}, "thinker_config": {"audio_config": OTHER, "text_config": FULL}},
            ("thinker_config", "text_config"),
        ),
        ({**FULL, "text_config": None}, ()),
        ({**FULL, "text_config": [1]}, ()),
    ],
)
def test_where_targets_keep_their_sizes(path: Path, data: dict[str, Any], route: tuple[str, ...]) -> None:
    found = target(path, data)
    assert (found.route, sizes(found)) == (route, (64, 512, 8))
    assert found.at(*found.route, "hidden_size").key == ".".join((*route, "hidden_size"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"model_type": "gemma3", "text_config": {"hidden_size": 2560}}, (2560, 262208, 26)),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, (2304, 262208, 26)),
        ({"model_type": "llama4", "text_config": {}}, (5120, 202048, 48)),
        ({"model_type": "gpt_oss"}, (2880, 201088, 36)),
        ({"model_type": "kimi_k25", "text_config": {"vocab_size": 163840}}, (7168, 163840, 61)),
        ({"model_type": "unheard_of"}, (None, None, None)),
        ({"model_type": "llama", "hidden_size": "4096", "vocab_size": None}, (None, None, 32)),
        ({"model_type": ["llama"]}, (None, None, None)),
    ],
)
def test_sizes_that_the_class_fills_in(path: Path, data: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert sizes(target(path, data)) == expected


def test_names_and_dtype_of_nested_targets(path: Path) -> None:
    found = target(
        path,
        {
            "architectures": ["KimiK25ForConditionalGeneration"],
            "torch_dtype": "float32",
            "text_config": {"architectures": ["DeepseekV3ForCausalLM"], "dtype": "bfloat16"},
        },
    )
    assert found.architecture == "KimiK25ForConditionalGeneration"
    assert found.text_architecture == "DeepseekV3ForCausalLM"
    assert found.dtype == "bfloat16"
    flat = target(path, {"architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "dtype": 3})
    assert (flat.text_architecture, flat.dtype) == (None, "float16")
