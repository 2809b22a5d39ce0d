"""The first inputs of each harness, made from the fixtures and from the corpora of the tests; and words to put in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from targets import CONTRACTS, DRAFTS, ENGINES, LAUNCHES, ROOT, TOKENIZERS

FIXTURES = ROOT / "fixtures"
LONGEST = 16 << 10
"""Bytes of a seed: longer files teach little and slow everything down."""


@cache
def contract_files() -> dict[str, str]:
    """A small folder of contracts that is accepted: a class for a known engine, and an engine."""
    from test_contract_folders import TINY

    engine = 'releases = ["1.0", "1.1"]\npackage = "acme"\ncontracts = ["acme_class"]\ndefault_algorithm = "EAGLE3"\n'
    return {
        "acme/engine.toml": engine,
        "acme/acme_class.toml": TINY.replace(">=0.5.10", ">=1.0"),
        "acme/loader.toml": 'patterns = [".safetensors"]\n',
        "sglang/engine.toml": 'contracts = ["acme_class"]\n',
        "sglang/acme_class.toml": TINY,
        "producers.toml": "",
    }


def _files(*patterns: str) -> Iterator[bytes]:
    for pattern in patterns:
        for path in sorted(FIXTURES.glob(pattern)):
            if path.is_file() and path.stat().st_size <= LONGEST:
                yield path.read_bytes()


def _numbered(number: int, files: Iterator[bytes]) -> Iterator[bytes]:
    return (bytes([number]) + data for data in files)


def header() -> Iterator[bytes]:
    """Small files of the tests, healthy and not, and headers of fixtures without what follows them."""
    from test_header import ACCEPTED, REFUSED
    from weightfiles import entry, safetensors

    yield from (data for data in (*REFUSED.values(), *map(safetensors, ACCEPTED.values())) if len(data) < LONGEST)
    yield safetensors({"__metadata__": {"format": "pt"}, "a": entry("I64", (3, 1), 0, 24)}, bytes(24))
    yield safetensors({"a": entry(), "b": entry(start=4, stop=8)}, bytes(8))


def index() -> Iterator[bytes]:
    """Those of the fixtures."""
    yield from _files("*/*/*.index.json")


def config() -> Iterator[bytes]:
    """Drafts and targets, each for one of the engines."""
    drafts = enumerate(_files("good/*/config.json", "producers/*/config.json"))
    yield from (bytes([number % len(ENGINES), 0]) + data for number, data in drafts)
    yield from (
        bytes([number % len(ENGINES), 1]) + data for number, data in enumerate(_files("good/*/target_config.json"))
    )


def names() -> Iterator[bytes]:
    """Each tensor of each draft under another name, and missing; for one of the engines."""
    from test_property_names import EDITS, tensors_of

    for draft, name in enumerate(DRAFTS):
        for number, tensor in enumerate(sorted(tensors_of(name))):
            new = EDITS["elsewhere" if number % 2 else "missing"](tensor) or ""
            yield bytes([number % len(ENGINES), draft, number]) + new.encode()


def tokenizer() -> Iterator[bytes]:
    """Each kind of file."""
    for number, name in enumerate(TOKENIZERS):
        yield from _numbered(number, _files(f"*/*/{name}", f"*/*/target/{name}"))
    yield bytes([2]) + b"IQ== 0\nIg== 1\nIw== 2\n"


def pickle() -> Iterator[bytes]:
    """Everything malicious and honest that the tests make."""
    from malicious import EVIL, GOOD, corpus, honest
    from malicious_calls import ORDINARY, REFUSED, more

    made = (*corpus().values(), *more().values(), *REFUSED.values(), *ORDINARY.values(), *list(honest().values())[::9])
    yield from (b"\1" + GOOD, b"\2" + GOOD, b"\1" + EVIL, b"\2" + EVIL)
    yield from (b"\0" + data for data in made if len(data) < LONGEST)


def settings() -> Iterator[bytes]:
    """Settings as in the documentation, in both files."""
    yield from _numbered(0, _files("*/*/drafcheck.toml"))
    text = b'select = ["DC1"]\nignore = ["DC106"]\nfail-on = "warning"\nengine = "sglang==0.5.9"\n'
    more = b'[[suppress]]\nrule = "DC101"\nreason = "known"\nuntil = "2027-01-01"\npath = "x/*"\n'
    yield b"\0" + text + more
    yield b"\1[tool.drafcheck]\n" + text
    yield b'\0engine = ["sglang", "vllm==0.33.0"]\nextend-contracts = ["x"]\n[severity]\nDC010 = "error"\n'


def contracts() -> Iterator[bytes]:
    """The files of a folder, and those of the book."""
    files = contract_files()
    for number, name in enumerate(CONTRACTS):
        yield bytes([number]) + files[name].encode()
    book = ((0, "*/engine.toml"), (1, "*/llama_eagle3.toml"), (2, "*/loader.toml"), (4, "producers.toml"))
    for number, pattern in book:
        for path in sorted((ROOT / "rules").glob(pattern)):
            yield bytes([number]) + path.read_bytes()[:LONGEST]


def launch() -> Iterator[bytes]:
    """The launch files of the fixtures, each under the name that it has."""
    for path in sorted((FIXTURES / "launch").iterdir()):
        if path.is_file() and path.suffix != ".txt":
            yield bytes([_kind(path)]) + path.read_bytes()[:LONGEST]
    yield from _numbered(0, _files("*/*/*.sh"))


def _kind(path: Path) -> int:
    same = [n for n, name in enumerate(LAUNCHES) if Path(name).suffix == path.suffix]
    return 1 if "ockerfile" in path.name else same[0] if same else 0


JSON = '{ } [ ] : , null true -1 1e999 NaN 1.5 "a" "\\ud800" 18446744073709551616 {"a":1,"a":2} [0]'
WORDS: dict[str, str] = {
    "header": JSON + ' "dtype" "shape" "data_offsets" "__metadata__" "F4" "BF16" "I64"',
    "index": JSON + ' "weight_map" "metadata" ../ model.safetensors \\\\ /etc/passwd',
    "config": JSON
    + """
        "architectures" "model_type" "text_config" "rope_scaling" "rope_parameters" "head_dim" "auto_map"
        "quantization_config" "transformer_layer_config" "speculators_model_type" "layer_types"
        "aux_hidden_state_layer_ids" "eagle_config" "eagle_aux_hidden_state_layer_ids"
        "hidden_size" "num_hidden_layers" "draft_vocab_size"
        "dflash_config"
        "num_key_value_heads" "torch_dtype" "max_position_embeddings" "rope_theta" "tie_word_embeddings" "vocab_size"
    """,
    "names": """
        model. layers.0. midlayer. self_attn. mlp. q_proj k_proj v_proj qkv_proj gate_proj up_proj gate_up_proj o_proj
        .weight .weight_scale .input_scale .qweight .scales .bias norm fc lm_head embed_tokens d2t t2d
    """,
    "tokenizer": JSON
    + ' "added_tokens" "added_tokens_decoder" "model" "vocab" "type" "BPE" "Unigram" "content" "decoder"',
    "pickle": "cos\nsystem\n \x93 \x94 \x80\x02 \x85R tR Q PK\x03\x04 PK\x01\x02 PK\x05\x06 ustar X\x02\0\0\0os (dp0",
    "settings": '[[ ]] = """ ignore select [tool.drafcheck] reason until 1979-05-27 engine [[suppress]] fail-on',
    "contracts": """
        [[revision]] [[param]] [[names]] [[flag]] versions= when= shape= [[expand]] [read] [stacked] >=0.5 {layer} {n}
        [[mapping]] [[sharing]] [[required]] [proof] extends= loader="mtp" "first" initial= source= unless= [[split]]
    """,
    "launch": """
        sglang.launch_server vllm serve --speculative- --speculative-config $( ${ ` <<EOF \\ && || docker run image:
        command: args: - ExecStart= CMD[ ENTRYPOINT ' " {" --model --tp $@ "${A[@]}" env: kind: | > FROM RUN bash -c
    """,
}
"""Words that the mutations put in, with blanks between them (no line end counts as one)."""


def write(target: str, folder: Path) -> int:
    """Write the seeds of a harness into a folder; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for data in globals()[target]():
        (folder / f"seed-{count:04}").write_bytes(data)
        count += 1
    return count


def write_words(target: str, file: Path) -> None:
    """Write the dictionary of a harness in libFuzzer's form."""
    words = re.split(r"[ ]|\n +", WORDS[target])
    lines = ("".join(f"\\x{byte:02x}" for byte in word.encode("latin-1")) for word in words if word)
    file.write_text("".join(f'"{line}"\n' for line in dict.fromkeys(lines)))
