"""DC0xx: files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from cases import case
from drafts import Draft, dump
from pickles import write_torch
from weights import Weight, encode_header, write_safetensors, zeros

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n"
WEIGHTS = "model.safetensors"


def no_weights(draft: Draft) -> None:
    """Write no weight file of its own."""
    draft.weight_file = None


def safetensors(header: object, body: int) -> bytes:
    """A safetensors file with any header and ``body`` bytes of zeros."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


@case("DC001/nothing-there")
def nothing_there(draft: Draft) -> None:
    no_weights(draft)
    draft.config, draft.target = {}, None
    draft.files["notes.md"] = b"The checkpoint has been moved.\n"
    draft.writers.append(lambda folder: (folder / "config.json").unlink())


@case("DC002/missing")
def config_missing(draft: Draft) -> None:
    draft.writers.append(lambda folder: (folder / "config.json").unlink())


@case("DC002/not-json")
def config_not_json(draft: Draft) -> None:
    draft.files["config.json"] = b'{\n  "architectures": ["LlamaForCausalLMEagle3"],\n  "hidden_size": 32,\n}\n'


@case("DC002/not-an-object")
def config_not_an_object(draft: Draft) -> None:
    draft.files["config.json"] = dump([draft.config])


@case("DC002/duplicate-key")
def config_duplicate_key(draft: Draft) -> None:
    text = dump(draft.config).decode()
    draft.files["config.json"] = text.replace("{\n", '{\n  "rope_theta": 500000.0,\n', 1).encode()


@case("DC002/nan")
def config_nan(draft: Draft) -> None:
    draft.files["config.json"] = dump({**draft.config, "rms_norm_eps": float("nan")})


@case("DC003/weights")
def pointer_weights(draft: Draft) -> None:
    draft.files[WEIGHTS] = POINTER % (b"4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393", 2382319096)


@case("DC003/config")
def pointer_config(draft: Draft) -> None:
    draft.files["config.json"] = POINTER % (
        b"0e1d3cfd0b0aab1d4ee1a1f4b9e1a3c5b4f1d6a7c8e9f00112233445566778899"[:64],
        912,
    )


@case("DC004/truncated")
def truncated(draft: Draft) -> None:
    def cut(folder: Path) -> None:
        whole = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(whole[:-1000])

    draft.writers.append(cut)


@case("DC004/header-past-the-end")
def header_past_the_end(draft: Draft) -> None:
    draft.files[WEIGHTS] = struct.pack("<Q", 90_000) + b'{"fc.weight":'


@case("DC004/header-not-json")
def header_not_json(draft: Draft) -> None:
    draft.files[WEIGHTS] = safetensors(b"\xff\xfe{not json}", 64)


@case("DC004/overlap")
def overlap(draft: Draft) -> None:
    first = {"dtype": "BF16", "shape": [16], "data_offsets": [0, 32]}
    second = {"dtype": "BF16", "shape": [16], "data_offsets": [16, 48]}
    draft.files[WEIGHTS] = safetensors({"fc.weight": first, "norm.weight": second}, 48)


@case("DC004/hole")
def hole(draft: Draft) -> None:
    first = {"dtype": "BF16", "shape": [16], "data_offsets": [0, 32]}
    second = {"dtype": "BF16", "shape": [16], "data_offsets": [48, 80]}
    draft.files[WEIGHTS] = safetensors({"fc.weight": first, "norm.weight": second}, 80)


@case("DC004/size-unlike-shape")
def size_unlike_shape(draft: Draft) -> None:
    draft.files[WEIGHTS] = safetensors({"fc.weight": {"dtype": "BF16", "shape": [16], "data_offsets": [0, 30]}}, 30)


@case("DC004/duplicate-name")
def duplicate_name(draft: Draft) -> None:
    entry = b'"fc.weight":{"dtype":"BF16","shape":[16],"data_offsets":[%d,%d]}'
    draft.files[WEIGHTS] = safetensors(b"{" + entry % (0, 32) + b"," + entry % (32, 64) + b"}", 64)


@case("good/header-padding-and-metadata")
def header_padding(draft: Draft) -> None:
    header = encode_header(draft.weights, {"format": "pt", "trainer": "x" * 300})[8:].ljust(4096)
    body = b"".join(tensor.raw for tensor in draft.weights.values())
    draft.files[WEIGHTS] = struct.pack("<Q", len(header)) + header + body


LAYER_FILE = "model-00002-of-00002.safetensors"


def sharded(draft: Draft) -> dict[str, str]:
    """Move the decoder layer to a second shard and answer the map of the index."""
    draft.weight_file = "model-00001-of-00002.safetensors"
    layer = [name for name in draft.weights if name.startswith("midlayer.")]
    places = {name: LAYER_FILE if name in layer else draft.weight_file for name in draft.weights}
    draft.split(*layer, into=LAYER_FILE)
    draft.index(places)
    return places


@case("good/two-shards")
def two_shards(draft: Draft) -> None:
    sharded(draft)


@case("good/odd-shard-names")
def odd_shard_names(draft: Draft) -> None:
    draft.weight_file = "drafter step=4000.safetensors"
    draft.index(dict.fromkeys(draft.weights, draft.weight_file))


@case("DC005/missing-shard")
def missing_shard(draft: Draft) -> None:
    sharded(draft)
    draft.writers.append(lambda folder: (folder / LAYER_FILE).unlink())


@case("DC005/missing-shard-refused", "0.5.17")
def missing_shard_refused(draft: Draft) -> None:
    missing_shard(draft)


@case("DC005/stale-index")
def stale_index(draft: Draft) -> None:
    draft.index({name: WEIGHTS if "midlayer" not in name else LAYER_FILE for name in draft.weights})


@case("DC005/stale-index-refused", "0.5.17")
def stale_index_refused(draft: Draft) -> None:
    stale_index(draft)


@case("DC006/file-left-out")
def file_left_out(draft: Draft) -> None:
    kept = {name: "model-00001-of-00002.safetensors" for name in sharded(draft) if not name.startswith("midlayer.")}
    draft.index(kept)


@case("DC006/tensor-not-there")
def tensor_not_there(draft: Draft) -> None:
    draft.index({**dict.fromkeys(draft.weights, WEIGHTS), "embed_tokens.weight": WEIGHTS})


def ones(tensor: Weight) -> Weight:
    """The same bf16 tensor, every value one."""
    return Weight(tensor.dtype, tensor.shape, b"\x80\x3f" * (tensor.size // 2))


def backup(draft: Draft, norm: Weight) -> None:
    """A second weight file that repeats one tensor; without an index all files are read."""
    other = {"norm.weight": norm}
    draft.writers.append(lambda folder: write_safetensors(folder / "model_backup.safetensors", other))


@case("DC007/two-files")
def two_files(draft: Draft) -> None:
    backup(draft, ones(draft.weights["norm.weight"]))


@case("good/two-files-alike")
def two_files_alike(draft: Draft) -> None:
    backup(draft, draft.weights["norm.weight"])


@case("DC011/optimizer-and-state")
def leftovers(draft: Draft) -> None:
    draft.files |= {"trainer_state.json": dump({"global_step": 4000}), "training_args.bin": b"\x80\x02}."}
    draft.writers.append(lambda folder: write_torch(folder / "optimizer.pt", {"exp_avg": zeros("F32", 8)}))


@case("DC008/differ")
def both_differ(draft: Draft) -> None:
    other = {**draft.weights, "fc.weight": zeros("BF16", 32, 64)}
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", other))


@case("DC008/alike")
def both_alike(draft: Draft) -> None:
    same = dict(draft.weights)
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", same))


@case("DC009/calls-a-command")
def unsafe_pickle(draft: Draft) -> None:
    no_weights(draft)
    call = b"cposix\nsystem\n(X\x04\x00\x00\x00truetR0"
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", draft.weights, call))


@case("good/plain-state-dict")
def plain_state_dict(draft: Draft) -> None:
    """Weights as a torch checkpoint that rebuilds tensors and nothing else."""
    bin_only(draft)


@case("DC010/bin-only")
def bin_only(draft: Draft) -> None:
    no_weights(draft)
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", draft.weights))


@case("DC012/in-a-subfolder")
def in_a_subfolder(draft: Draft) -> None:
    no_weights(draft)

    def write(folder: Path) -> None:
        (folder / "checkpoint-4000").mkdir(exist_ok=True)
        write_safetensors(folder / "checkpoint-4000" / WEIGHTS, draft.weights)

    draft.writers.append(write)


@case("good/side-files-that-engines-want")
def side_files(draft: Draft) -> None:
    draft.files |= {
        "generation_config.json": dump({"bos_token_id": 1}),
        "tokenizer_config.json": dump({"model_max_length": 512}),
        "README.md": b"# A draft\n",
    }


@case("good/healthy")
def healthy(draft: Draft) -> None:
    """As it is."""


@case("good/healthy-0.4.9", "0.4.9.post2")
def healthy_early(draft: Draft) -> None:
    """As it is."""


@case("good/healthy-0.5.23", "0.5.23")
def healthy_late(draft: Draft) -> None:
    """As it is."""


@case("good/healthy-0.4.8", "0.4.8")
def healthy_first(draft: Draft) -> None:
    """As it is."""
