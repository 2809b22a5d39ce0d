"""Tokens as text, from every form in which a target keeps its tokenizer, and from files that are none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cases_reference import KEPT, LOST, own_target, reference, tokenizer
from drafts import DRAFT_VOCAB, VOCAB, Draft, Json
from hypothesis import given
from hypothesis import strategies as st
from weights import spread

from drafcheck import lint, source
from drafcheck.errors import UsageError
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.tokenizer import START, VOCABULARY_LIMIT, TokenizerError, open_tokenizer


def dump(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def vocabulary(decoder: Json, vocab: object, **more: object) -> Json:
    return {"decoder": decoder, "model": {"vocab": vocab}, **more}


BYTES: Json = {"type": "ByteLevel"}


def test_byte_level(tmp_path: Path) -> None:
    vocab = {"Ġthe": 0, "Ċ": 1, "ä½": 2, "Ńł": 3, "łŃ好": 4, "\x1b": 5, "x" * 99: 6}
    found = open_tokenizer(dump(tmp_path / "tokenizer.json", vocabulary(BYTES, vocab)))
    shown = [found.shown(token) for token in (0, 1, 2, 4, 5, 6, 7, -1)]
    assert shown == ["' the'", r"'\n'", r"b'\xe4\xbd'", "'łŃ好'", r"'\x1b'", f"'{'x' * 24}'...", None, None]


def test_byte_level_within_a_sequence(tmp_path: Path) -> None:
    steps = {"type": "Sequence", "decoders": [{"type": "Strip"}, BYTES]}
    assert open_tokenizer(dump(tmp_path / "t.json", vocabulary(steps, {"Ġa": 0}))).shown(0) == "' a'"


@pytest.mark.parametrize(
    "vocab", ({"▁the": 0, "<0x0A>": 1}, [["▁the", -1.0], ["<0x0A>", -2.5]]), ids=("bpe", "unigram")
)
def test_sentence_pieces(tmp_path: Path, vocab: object) -> None:
    dump(tmp_path / "tokenizer.json", vocabulary({"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}, vocab))
    found = open_tokenizer(tmp_path)
    assert (found.shown(0), found.shown(1), found.shown(2)) == ("' the'", r"'\n'", None)


def test_ranks_with_added_tokens_beside_them(tmp_path: Path) -> None:
    """As Kimi-K2 has it: tiktoken.model, and the control tokens in tokenizer_config.json."""
    pieces = [b"!", b" a", b"\xe4\xbd"]
    lines = [base64.b64encode(piece) + b" %d\n" % rank for rank, piece in enumerate(pieces)]
    (tmp_path / "tiktoken.model").write_bytes(b"".join(lines))
    dump(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {"3": {"content": "[EOS]", "special": True}}})
    for path in (tmp_path, tmp_path / "tiktoken.model"):
        found = open_tokenizer(path)
        assert [found.shown(token) for token in range(5)] == ["'!'", "' a'", r"b'\xe4\xbd'", "'[EOS]'", None]


def test_added_tokens_go_first(tmp_path: Path) -> None:
    added = [{"id": 1, "content": "<|end|>\u202e", "special": True}, {"id": "2", "content": "x"}, 5, {"id": 3}]
    found = open_tokenizer(dump(tmp_path / "t.json", vocabulary(BYTES, {"a": 1}, added_tokens=added)))
    assert found.shown(1) == r"'<|end|>\u202e'"
    assert list(found.added) == [1]


def test_added_tokens_alone_cost_the_start_of_the_file(tmp_path: Path) -> None:
    """A target's tokenizer of 5 MB beside a healthy draft: its vocabulary is not parsed."""
    large = tokenizer({KEPT[9]: "<tool_call>"})
    large["model"]["merges"] = ["x" * 50] * 100_000
    draft = Draft()
    own_target(draft, {"tokenizer.json": large}, eos_token_id=KEPT[7])
    draft.write(tmp_path)
    source.bytes_read.clear()
    lint(tmp_path, target=tmp_path / "target", engine="sglang==0.5.15")
    read = {Path(path).name: count for path, count in source.bytes_read.items()}
    assert read["tokenizer.json"] == START
    assert (tmp_path / "target" / "tokenizer.json").stat().st_size > START * 10


def findings(room: Path, code: str, **options: Path) -> list[Finding]:
    return [f for f in lint(room, engine="sglang==0.5.15", **options).findings if f.rule == code]


@pytest.fixture
def differing(tmp_path: Path) -> Path:
    draft = Draft()
    reference(draft, spread(DRAFT_VOCAB, VOCAB, salt=3))
    own_target(draft, {"tokenizer.json": tokenizer()}, eos_token_id=2)
    draft.write(tmp_path / "draft")
    return tmp_path / "draft"


def test_the_targets_own_tokenizer_is_found(differing: Path) -> None:
    mapping = differing / "reference" / "mapping.safetensors"
    [plain] = findings(differing, "DC311", reference=mapping, target=differing / "target")
    [given] = findings(differing, "DC311", reference=mapping, tokenizer=differing / "target")
    assert "33: 37 ' w37'/33 ' w33', 34: 39 ' w39'/35" in plain.message
    assert plain.message == given.message
    report = lint(differing, engine="sglang==0.5.15", reference=mapping, target=differing / "target").checkpoints[0]
    assert report.reference is not None
    assert report.reference.differences[0].model_dump() == {
        "draft_id": 33,
        "here": 37,
        "there": 33,
        "here_text": "' w37'",
        "there_text": "' w33'",
    }


BROKEN: dict[str, Callable[[Path], object]] = {
    "absent.json": lambda path: None,
    "empty.json": lambda path: path.write_bytes(b""),
    "garbage.json": lambda path: path.write_bytes(b"\xff\xfe{"),
    "list.json": lambda path: dump(path, []),
    "config.json": lambda path: dump(path, {"model_type": "llama"}),
    "text.json": lambda path: dump(path, {"model": "bpe", "added_tokens": "none", "decoder": 5}),
    "number.json": lambda path: dump(path, vocabulary(BYTES, 5)),
    "deep.json": lambda path: path.write_text('{"model": ' + "[" * 100_000),
    "ranks.model": lambda path: path.write_bytes(b"no ranks\n"),
    "odd.model": lambda path: path.write_bytes(b"YQ== 1 2\n"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_tokenizer_is_wrong_usage(name: str, differing: Path, tmp_path: Path) -> None:
    BROKEN[name](tmp_path / name)
    with pytest.raises(UsageError) as error:
        findings(differing, "DC311", reference=differing / "reference", tokenizer=tmp_path / name)
    assert str(error.value).startswith("--tokenizer")
    assert "\n" not in str(error.value)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tiktoken.model"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(VOCABULARY_LIMIT + 1)
        with pytest.raises(TokenizerError, match=f"{name} has {VOCABULARY_LIMIT + 1} bytes"):
            open_tokenizer(tmp_path / name).shown(1)


def test_a_broken_tokenizer_of_the_target_is_passed_over(differing: Path) -> None:
    """Nobody asked for texts: the ids are shown without them."""
    (differing / "target" / "tokenizer.json").write_bytes(b"\xff")
    (differing / "target" / "generation_config.json").write_bytes(b"\xff")
    found = findings(differing, "DC311", reference=differing / "reference", target=differing / "target")
    assert "33: 37/33, 34: 39/35" in found[0].message


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda v: st.lists(v, max_size=3)))
def test_no_value_makes_it_crash(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    room = tmp_path_factory.mktemp("t")
    for content in ({"model": value}, {"added_tokens": [value, {"id": value, "content": value}], "decoder": value}):
        whole = {"model": {"vocab": {"a": value, "b": 1}}, **content}
        for name, inside in (("tokenizer.json", whole), ("tokenizer_config.json", {"added_tokens_decoder": value})):
            dump(room / name, inside)
        try:
            open_tokenizer(room).shown(1)
        except TokenizerError as error:
            assert "tokenizer.json" in str(error)


def unreachable(
    room: Path, files: dict[str, Json], edit: Callable[[Draft], object] = id, **keys: object
) -> list[Finding]:
    draft = Draft()
    edit(draft)
    own_target(draft, files, **keys)
    draft.write(room / "draft")
    return findings(room / "draft", "DC314", target=room / "draft" / "target")


def test_generation_config_decides(tmp_path: Path) -> None:
    """What a chat model ends its answers with; the base model's end in config.json does not matter then."""
    files: dict[str, Json] = {"generation_config.json": {"eos_token_id": KEPT[3]}}
    assert unreachable(tmp_path / "with", files, eos_token_id=LOST[0]) == []
    [found] = unreachable(tmp_path / "without", {}, eos_token_id=[LOST[0]])
    assert (found.severity, found.confidence) == (Severity.NOTE, Confidence.CERTAIN)
    assert str(LOST[0]) in found.message


def test_a_lone_number_may_be_a_default(tmp_path: Path) -> None:
    """Llama's class says 2 whatever the tokenizer is; a tokenizer that has the token settles it."""
    [found] = unreachable(tmp_path / "alone", {}, eos_token_id=LOST[0])
    assert (found.severity, found.confidence) == (Severity.NOTE, Confidence.LIKELY)
    files: dict[str, Json] = {"tokenizer.json": tokenizer({LOST[0]: "<|odd end|>"})}
    [found] = unreachable(tmp_path / "confirmed", files, eos_token_id=LOST[0])
    assert (found.severity, found.confidence) == (Severity.NOTE, Confidence.CERTAIN)
    assert f"{LOST[0]} `<|odd end|>`" in found.message


@pytest.mark.parametrize("value", (None, "2", True, -1, [], [True], {}, [[2]], 2.0, VOCAB, 10**30))
def test_what_is_no_token_is_ignored(tmp_path: Path, value: object) -> None:
    assert unreachable(tmp_path, {"generation_config.json": {"eos_token_id": value}}, eos_token_id=value) == []


def test_full_vocabulary_reaches_everything(tmp_path: Path) -> None:
    assert unreachable(tmp_path, {}, Draft.full_vocabulary, eos_token_id=LOST[0]) == []


def test_a_faulty_mapping_has_its_own_finding(tmp_path: Path) -> None:
    def absolute(draft: Draft) -> None:
        from cases_vocabulary import absolute

        absolute(draft)

    assert unreachable(tmp_path, {}, absolute, eos_token_id=LOST[0]) == []


def test_nested_language_models_have_their_own_end(tmp_path: Path) -> None:
    """Of a multimodal target the end of the language model counts."""

    def nest(draft: Draft) -> None:
        assert draft.target is not None
        draft.target = {"architectures": ["LlamaForCausalLM"], "text_config": {**draft.target, "eos_token_id": LOST[1]}}

    [found] = unreachable(tmp_path, {}, nest, eos_token_id=KEPT[0])
    assert str(LOST[1]) in found.message
    assert found.locations[-1].key == "text_config.eos_token_id"
