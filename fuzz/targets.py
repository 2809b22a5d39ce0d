"""What is fuzzed: one function for each reader, which returns for every input or raises what it found wrong."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]

from safetensors import SafetensorError, deserialize  # noqa: E402

from drafcheck import header_json, json_bulk, jsonpos, lint  # noqa: E402
from drafcheck.checkpoint import parse_index  # noqa: E402
from drafcheck.contract_folders import checked  # noqa: E402
from drafcheck.errors import NothingToCheck, UsageError  # noqa: E402
from drafcheck.header import Header, read_header  # noqa: E402
from drafcheck.jsonpos import Document, read_document  # noqa: E402
from drafcheck.launch.read import read_launch  # noqa: E402
from drafcheck.place import LocalPlace  # noqa: E402
from drafcheck.settings import read as read_settings  # noqa: E402
from drafcheck.source import Memory  # noqa: E402
from drafcheck.tensor import Tensor, Trouble  # noqa: E402
from drafcheck.tokenizer import Tokenizer, TokenizerError  # noqa: E402
from drafcheck.torch_pickle import read_pickle  # noqa: E402

ENGINES = ("sglang==0.5.15", "vllm==0.33.0", "sglang==0.5.9", "vllm==0.11.0")
STRICTER = ("twice", "by a list", "an object as dtype", "dimensions, more", "described in more")
LAUNCHES = ("run.sh", "Dockerfile", "compose.yaml", "manifest.yaml", "server.service", "launch.json")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tiktoken.model")
CONTRACTS = ("acme/engine.toml", "acme/acme_class.toml", "acme/loader.toml", "sglang/acme_class.toml", "producers.toml")
DRAFTS = ("good/healthy", "good/fp8", "good/vllm-fp8", "good/awq", "DC507/one-projection-plain")


class Wrong(Exception):
    """An invariant does not hold."""


def _folder() -> Path:
    shared = Path(os.environ.get("DRAFCHECK_FUZZ_FOLDER", "/dev/shm"))  # run.py's own, which it removes
    return Path(tempfile.mkdtemp(prefix="drafcheck-fuzz-", dir=shared if shared.is_dir() else None))


FOLDER = _folder()


def forget() -> None:
    """Remove what was written."""
    shutil.rmtree(FOLDER, ignore_errors=True)


def _draft(name: str) -> Path:
    """A healthy draft beside its target, written once."""
    from drafts import Draft

    folder = FOLDER / name
    if not folder.exists():
        Draft().write(folder)
    return folder


def _inside(tensors: tuple[Tensor, ...], size: int) -> None:
    for tensor in tensors:
        if tensor.start != -1 and not 0 <= tensor.start <= tensor.stop <= size:
            raise Wrong(f"{tensor} lies outside of a file of {size} bytes")


def _linted(folder: Path, **options: object) -> None:
    try:
        report = lint(folder, **options)  # type: ignore[arg-type]
    except (UsageError, NothingToCheck):
        return
    for checkpoint in report.checkpoints:
        crashed = [finding.message for finding in checkpoint.findings if finding.rule == "DC999"]
        if crashed or checkpoint.outcome.value == "internal-error":
            raise Wrong(f"a rule crashed: {crashed}")


def _chosen(data: bytes, names: tuple[str, ...]) -> tuple[str, bytes]:
    return names[data[0] % len(names)] if data else names[0], data[1:]


def header(data: bytes) -> None:
    """A safetensors file, judged by the safetensors library as well."""
    found = read_header(Memory(data, "model.safetensors"))
    try:
        deserialize(data)
        accepts = True
    except SafetensorError:
        accepts = False
    messages = [problem.message for problem in found.problems]
    if any(problem.trouble is Trouble.LFS_POINTER for problem in found.problems):
        return
    if accepts == bool(messages) and not (accepts and any(word in messages[0] for word in STRICTER)):
        raise Wrong(f"the library says {accepts}, drafcheck {messages}")
    if not messages:
        _inside(found.tensors, len(data))
    if (together := _many_at_once(data)) != found:
        raise Wrong(f"read many at once it is {together}, one by one {found}")


def _many_at_once(data: bytes) -> Header:
    """The header as a long one is read, in short pieces."""
    limits = header_json._MANY, header_json._AT_ONCE
    header_json._MANY, header_json._AT_ONCE = 0, 400
    try:
        return read_header(Memory(data, "model.safetensors"))
    finally:
        header_json._MANY, header_json._AT_ONCE = limits


def _as_a_long_index(data: bytes) -> Document:
    """The index as a long one is read, in short pieces."""
    limits = jsonpos._LONG, json_bulk._AT_ONCE
    jsonpos._LONG, json_bulk._AT_ONCE = 0, 100
    try:
        return read_document(Memory(data, "model.safetensors.index.json"), trouble=Trouble.BAD_INDEX)
    finally:
        jsonpos._LONG, json_bulk._AT_ONCE = limits


def index(data: bytes) -> None:
    """An index: no file that it names lies outside of the checkpoint."""
    document = read_document(Memory(data, "model.safetensors.index.json"), trouble=Trouble.BAD_INDEX)
    together = _as_a_long_index(data)
    if (repr(together.data), together.problems) != (repr(document.data), document.problems):
        raise Wrong(f"read many at once it is {together}, one by one {document}")
    found = parse_index(document)
    for name in found.files:
        if name.startswith("/") or ".." in name.split("/"):
            raise Wrong(f"{name!r} lies outside")


def config(data: bytes) -> None:
    """The config of a draft, or of its target, with healthy weights."""
    engine, rest = _chosen(data, ENGINES)
    name, rest = _chosen(rest, ("config.json", "target_config.json"))
    folder = _draft("config")
    whole = (folder / name).read_bytes()
    try:
        (folder / name).write_bytes(rest)
        _linted(folder, engine=engine, target=str(folder / "target_config.json"))
    finally:
        (folder / name).write_bytes(whole)


def names(data: bytes) -> None:
    """Tensors of a healthy draft, plain or quantised, under other names: a line each, the first byte says of which.

    A line of one byte leaves the tensor out. The draft is checked for two ranks.
    """
    from test_property_names import copied, tensors_of
    from weights import write_safetensors

    engine, rest = _chosen(data, ENGINES)
    draft, rest = _chosen(rest, DRAFTS)
    old = sorted(tensors_of(draft))
    new = {old[line[0] % len(old)]: line[1:].decode(errors="replace") for line in rest.split(b"\n") if line}
    folder = FOLDER / "names"
    folder.mkdir(exist_ok=True)
    copied(draft, folder)
    both = ((new.get(name, name), tensor) for name, tensor in tensors_of(draft).items())
    write_safetensors(folder / "model.safetensors", {name: tensor for name, tensor in both if name})
    _linted(folder, engine=engine, tp=2)


def tokenizer(data: bytes) -> None:
    """The files of a tokenizer."""
    name, rest = _chosen(data, TOKENIZERS)
    folder = FOLDER / "tokenizer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if name == "tiktoken.model":
        (folder / "tokenizer_config.json").write_text("{}")
    (folder / name).write_bytes(rest)
    asked = Tokenizer(LocalPlace(folder))
    works: tuple[Callable[[], object], ...] = (
        lambda: asked.added,
        lambda: asked.table,
        lambda: [asked.shown(token) for token in (0, 1, 7, 128000)],
    )
    for work in works:
        try:
            work()
        except TokenizerError:
            continue


def pickle(data: bytes) -> None:
    """A PyTorch file, or the pickle in one."""
    from weightfiles import archive, legacy

    before = set(sys.modules)
    kind, rest = _chosen(data, ("file", "archive", "legacy"))
    if kind == "archive":
        rest = archive(rest, {"0": bytes(48)})
    elif kind == "legacy":
        rest = legacy(rest, {"0": (6, bytes(48))})
    found = read_pickle(Memory(rest, "pytorch_model.bin"))
    _inside(found.tensors, len(rest))
    new = {name for name in set(sys.modules) - before if not name.startswith(("encodings", "drafcheck"))}
    if new - {"pickletools", "_compat_pickle", "tarfile", "zipfile", "bz2", "_bz2", "lzma", "_lzma", "grp", "pwd"}:
        raise Wrong(f"these were imported: {new}")


def settings(data: bytes) -> None:
    """A settings file, also in force for a draft."""
    name, rest = _chosen(data, ("drafcheck.toml", "pyproject.toml"))
    path = FOLDER / name
    path.write_bytes(rest)
    try:
        read_settings(path)
    except UsageError:
        return
    _linted(_draft("settings"), engine=ENGINES[0], config=str(path))


def contracts(data: bytes) -> None:
    """One file of a folder of contracts; the draft is of the class that it describes."""
    from seeds import contract_files

    name, rest = _chosen(data, CONTRACTS)
    folder = FOLDER / "contracts"
    shutil.rmtree(folder, ignore_errors=True)
    for other, text in contract_files().items():
        if other.startswith(name.partition("/")[0]) or name == other:
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / other).write_text(text)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(rest)
    try:
        checked([folder])
    except UsageError:
        return
    draft = _draft("acme")
    text = (draft / "config.json").read_text()
    (draft / "config.json").write_text(text.replace("LlamaForCausalLMEagle3", "AcmeDraft"))
    engine = "acme==1.0" if name.startswith("acme") else ENGINES[0]
    book = FOLDER / "book.toml"
    book.write_text(f'extend-contracts = ["{folder}"]\n')
    _linted(draft, engine=engine, config=str(book))


def launch(data: bytes) -> None:
    """What starts a server."""
    name, rest = _chosen(data, LAUNCHES)
    path = FOLDER / name
    path.write_bytes(rest)
    try:
        read_launch(path)
    except UsageError:
        return
    _linted(_draft("launch"), launch=str(path))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "header": header,
    "index": index,
    "config": config,
    "names": names,
    "tokenizer": tokenizer,
    "pickle": pickle,
    "settings": settings,
    "contracts": contracts,
    "launch": launch,
}
