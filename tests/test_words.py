"""One of a thing is not told in the plural."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from weightfiles import entry, safetensors

from drafcheck.decode import DecodeError, decode
from drafcheck.header import read_header
from drafcheck.lfs import lfs_pointer
from drafcheck.source import LocalFile
from drafcheck.words import are, count, ends, plural

PACKAGE = Path(__file__).parents[1] / "drafcheck"
NOUNS = (
    "bytes|tensors|rows|files|values|layers|tokens|steps|states|ids|numbers|columns|arguments|sizes|strides|flags|"
    "rules|findings|errors|warnings|notes|heads|keys|entries|shards|checkpoints|matrices|parameters|elements|times|"
    "characters|dimensions|lines|folders|requests|records|places|blocks|words|names|experts|opcodes|attempts|releases"
)
COUNTED = re.compile(rf" (?!for |holds |needs |complex )(?:[a-z]+ )?(?:{NOUNS})\b")
NEVER_ONE = {
    "all {n} values of d2t are": "one value is told otherwise",
    "its first {rows} values": "one value is told otherwise",
    "{len(matrices):,} matrices are": "one matrix is told otherwise",
    "{abs(step)} layers": "one layer is told otherwise",
    "in {len(of_this)} releases": "one release is told otherwise",
    " to {counts[-1]} checkpoints each": "more than the number before it",
    " (tried {tries} times)": "only said of several",
    "the file holds {in_file} layers": "only said of several",
    "{several} checkpoints: ": "only said of several",
    "id {depth} of {depth} layers": "an id of the last layer",
    "{len(checkpoint.files)} files": "more than a limit",
    "names {len(names)} files": "more than a limit",
    "has {size} bytes, more": "more than a limit",
    "has {source.size()} bytes, more": "more than a limit",
    "of {size} bytes, more": "more than a limit",
    "a pointer of {size} bytes": "not shorter than its first line",
    "pointer of {size} bytes": "not shorter than its first line",
    "a shape of {len(shape):,} dimensions": "more than a limit",
    "has {tensor.numel} values, more": "more than a limit",
    "{tensor.numel} values are more": "more than a limit",
    "that it does not hold": "more than a limit",
    "takes {limit:,} bytes at most": "a limit",
    "more than {limit} bytes": "a limit",
    " for {len(ids)} ids": "some of them twice",
    "changes {len(pulls)} pull requests": "more than a limit",
    "{tokens} draft tokens do not fit": "more than the tree has room for",
    "with pages of {page} tokens": "only said of larger pages",
    "characters...]": "more than a limit",
    "{more} bytes": "more than a limit",
}
"""Numbers that are told in the plural because they are never one, and why not."""


TEXTS = {"index.file", "key", "whose", "e.kind", "winner", "told"}
"""Names of words, not of numbers."""


def _told(text: str) -> Iterator[tuple[int, str]]:
    """The line and the source of each f-string in which a number stands before a plural."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                    continue
                limit = ast.unparse(value.value).lstrip("_").isupper()
                if not limit and COUNTED.match(str(after.value)) and _is_a_number(value):
                    yield node.lineno, ast.unparse(node)


def _is_a_number(value: ast.FormattedValue) -> bool:
    """Whether it may be one: neither a word that is made nor one that was read, which is cut short."""
    cut = value.format_spec is not None and ast.unparse(value.format_spec)[2:3] == "."
    if ast.unparse(value.value) in TEXTS or cut:
        return False
    called = value.value.func if isinstance(value.value, ast.Call) else None
    return called is None or (isinstance(called, ast.Name) and called.id in ("len", "abs", "int", "sum"))


def test_no_message_puts_a_bare_number_before_a_plural() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {text}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in _told(file.read_text())
        if not any(known in text for known in NEVER_ONE)
    ]
    assert not found, "\n".join(found)


def test_a_bare_number_before_a_plural_is_found() -> None:
    assert [line for line, _ in _told('f"has {size} bytes"\nf"has {len(x):,} sampled rows"')] == [1, 2]


def test_a_number_with_its_word_passes() -> None:
    assert not list(_told("f\"has {plural(size, 'byte')}, at most {LIMIT} bytes, {engine} loads it\""))


@pytest.mark.parametrize(("n", "said"), [(0, "0 bytes"), (1, "1 byte"), (2, "2 bytes"), (12000, "12000 bytes")])
def test_plural(n: int, said: str) -> None:
    assert plural(n, "byte") == said


def test_a_large_count_is_grouped_and_an_unknown_one_a_question_mark() -> None:
    assert [count(n, "row") for n in (1, 12000, None)] == ["1 row", "12,000 rows", "? rows"]


def test_verbs_agree() -> None:
    assert [(ends(n), are(n)) for n in (0, 1, 2)] == [("", "are"), ("s", "is"), ("", "are")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x", "has 1 byte: too short"),
        (b"xx", "has 2 bytes: too short"),
        ((1).to_bytes(8, "little"), "declares a header of 1 byte but only 0 bytes follow"),
        ((2).to_bytes(8, "little") + b"x", "declares a header of 2 bytes but only 1 byte follows"),
        (safetensors({"a": entry("U8", (1,), 0, 1)}, b""), "is truncated: its tensors need 1 byte and 0 are there"),
        (safetensors({"a": entry("U8", (2,), 0, 2)}, b"a"), "is truncated: its tensors need 2 bytes and 1 is there"),
        (safetensors({"a": entry("U8", (1,), 0, 1)}, b"ab"), "has 1 byte after its last tensor that belongs to none"),
        (safetensors({"a": entry("U8", (1,), 0, 1)}, b"abc"), "has 2 bytes after its last tensor that belong to none"),
        (safetensors({"a": entry("U8", (1,), 1, 2)}, b"ab"), "has a hole of 1 byte before the tensor at 1"),
        (safetensors({"a": entry("U8", (2,), 0, 1)}, b"a"), "has a tensor of 1 byte whose U8 of shape [2] needs 2"),
        (safetensors({"a": entry("U8", (1,), 0, 2)}, b"ab"), "has a tensor of 2 bytes whose U8 of shape [1] needs 1"),
    ],
)
def test_a_byte_of_a_header(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    told = read_header(LocalFile(file)).problems[0].message
    assert said in told
    assert not re.search(r"\b1 bytes", told)


@pytest.mark.parametrize(("size", "said"), [(1, "a file of 1 byte"), (20, "a file of 20 bytes")])
def test_a_pointer_to_a_byte(size: int, said: str) -> None:
    head = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {size}\n".encode()
    found = lfs_pointer(head, len(head), "model.safetensors")
    assert found is not None
    assert found.message.endswith(said)


@pytest.mark.parametrize(("data", "said"), [(b"x", "1 byte is no whole"), (b"xyz", "3 bytes are no whole")])
def test_a_byte_too_few(data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode("I64", data)
