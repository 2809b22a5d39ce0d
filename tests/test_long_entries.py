"""What one entry may cost: of a header, of the classes that a config names, of a key in settings."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
from scaling import QUADRATIC, growth
from test_limits import LINUX, counted

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import limits

from drafcheck import lint
from drafcheck.config import DraftConfig
from drafcheck.errors import UsageError
from drafcheck.header import read_header
from drafcheck.header_json import DIMENSIONS, MEMBER_LIMIT
from drafcheck.jsonpos import Document
from drafcheck.source import LocalFile
from drafcheck.tomlpos import DEEPEST, parse

MORE = 1 << 20  # the rest of a header behind what is looked at, so that it is read piece by piece


def write(path: Path, *members: str) -> Path:
    header = ("{" + ",".join(members) + "}").encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def tensor(name: str, shape: str = "0", extra: str = "") -> str:
    return f'"{name}":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,0]{extra}}}'


def said(path: Path) -> list[str]:
    return [problem.message for problem in read_header(LocalFile(path)).problems]


def dimensions(count: int, size: str = "0") -> str:
    return ",".join([size] * count)


@pytest.mark.parametrize("space", ["", " "])
def test_dimensions(tmp_path: Path, space: str) -> None:
    assert said(write(tmp_path / "x", tensor("a", dimensions(DIMENSIONS) + space))) == []
    assert said(write(tmp_path / "x", tensor("a", dimensions(DIMENSIONS + 1) + space))) == [
        "x gives a shape of 1,025 dimensions, more than 1,024"
    ]


MEMBERS = {
    "sizes": tensor("a", dimensions(MEMBER_LIMIT // 2)),
    "lists in an unknown field": tensor("a", extra=f',"x":[{"[]," * (MEMBER_LIMIT // 3)}[]]'),
    "a text": tensor("a", extra=f',"x":"{"y" * MEMBER_LIMIT}"'),
    "white space": tensor("a", extra=" " * MEMBER_LIMIT),
    "metadata": '"__metadata__":{' + ",".join(f'"{i}":"{"y" * 50}"' for i in range(MEMBER_LIMIT // 55)) + "}",
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_entries_too_long(tmp_path: Path, kind: str) -> None:
    name = "__metadata__" if kind == "metadata" else "a"
    expected = [f"x has {name!r} described in more than 8,388,608 characters"]
    assert said(write(tmp_path / "x", MEMBERS[kind], tensor("b"))) == expected


@pytest.mark.parametrize("length", [10, 4080, 4096, 4200, 65_536, 70_000, MORE, 3 * MORE])
def test_entries_that_are_long_are_read(tmp_path: Path, length: int) -> None:
    others = [tensor(f"b{i}", extra=',"x":1') for i in range(10)]
    texts = [tensor("a", extra=f',"x":"{"y" * length}"'), tensor("c", extra=',"x":' + "9" * min(length, 300))]
    lists = [tensor("d", extra=f',"x":[{"1," * (length // 2)}1]'), tensor("e", extra=" " * length)]
    path = write(tmp_path / "x", *texts, *lists, *others, tensor("f", extra=f',"x":"{"z" * MORE}"'))
    header = read_header(LocalFile(path))
    assert not header.problems
    assert [found.name for found in header.tensors] == ["a", "c", "d", "e", *(f"b{i}" for i in range(10)), "f"]


@pytest.mark.parametrize("wrong", ["tru", "[1 2]", "1.", "NaN", "1e999", '"\\q"', "{1:2}"])
def test_what_is_wrong_in_a_long_header_is_still_told(tmp_path: Path, wrong: str) -> None:
    padding = tensor("z", extra=f',"x":"{"z" * 2 * MORE}"')
    path = write(tmp_path / "x", tensor("a", extra=f',"x":{wrong}'), *[padding] * 5)
    (message,) = said(path)
    assert message.startswith("x has a header that is not json")
    short = write(tmp_path / "x", tensor("a", extra=f',"x":{wrong}'))
    assert said(short) == [message]


@LINUX
def test_sizes_without_end_take_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "x", tensor("a", dimensions(40_000_000)))
    count, peak = counted(limits.HEADER + "count = len(h.problems)", path)
    assert count == 1 and peak < limits.MEMORY


def test_many_classes_cost_what_each_does(tmp_path: Path) -> None:
    def work(count: int) -> None:
        config = {**limits.CONFIG, "architectures": [f"A{i}" for i in range(count)]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        lint(tmp_path, engine="sglang==0.5.15")

    write(tmp_path / "model.safetensors", tensor("a"))
    work(10)
    assert growth(work, 1500) < QUADRATIC / 2


def test_what_is_derived_follows_the_content() -> None:
    config = DraftConfig(Document("config.json", {"architectures": ["A"], "text_config": {"x": 1}}))
    assert config.architectures == ("A",) and config.language == {"x": 1}
    other = config.with_data({"architectures": ["B", 3], "text_config": {"x": 2}})
    assert other.architectures == ("B",) and other.language == {"x": 2}
    assert config.architectures == ("A",) and other.document is config.document


KEYS = {
    "table": "[{}]\nx = 1\n",
    "key": "{} = 1\n",
    "inline": "x = {{ {} = 1 }}\n",
    "second line": "y = 1\n{} = 1\n",
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("part", ["a", '"a"', "'a b'"])
def test_keys_of_many_parts(kind: str, part: str) -> None:
    assert parse(Path("f.toml"), KEYS[kind].format(".".join([part] * DEEPEST)))
    line = 2 if kind == "second line" else 1
    with pytest.raises(UsageError, match=rf"f\.toml:{line}: a key of more than 100 parts"):
        parse(Path("f.toml"), KEYS[kind].format(" . ".join([part] * 300_000)))


@pytest.mark.parametrize("value", [f"[{', '.join(['0.5'] * 500)}]", f'"{"." * 500}"', f'["{"a.b, " * 300}"]'])
def test_values_of_many_dots(value: str) -> None:
    assert parse(Path("f.toml"), f"x = {value}\n")
