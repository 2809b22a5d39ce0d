"""Weight files as they are to be: a safetensors header over the pieces of tensors, and the index that lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drafcheck.errors import UsageError
from drafcheck.fix.edits import Content
from drafcheck.fix.pieces import Spliced, size_of
from drafcheck.header_json import DTYPE_BITS, METADATA

if TYPE_CHECKING:
    from drafcheck.checkpoint import Index, WeightFile

_ALIGNMENT = 8  # the library pads its headers to this many bytes, so that tensors can be mapped as they lie
_SHARD = re.compile(r"(?:pytorch_)?model(-\d+-of-\d+)?\.(?:bin|pt)")


def kept_by(file: WeightFile) -> str:
    """What keeps a file with problems from being written anew: it can not be read, or more is in it than tensors."""
    stopping = any(problem.stops for problem in file.header.problems)
    return f"{file.name} can not be read whole" if stopping else file.header.problems[0].message


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to write, under the name that it will have."""

    name: str
    content: Content


def safetensors(file: str, entries: Sequence[Entry], metadata: Mapping[str, str]) -> Spliced:
    """A safetensors file of these tensors, in their order as far as each lies at a place that its dtype can be read at.

    Raises UsageError for two tensors of one name and for names that are no text or that of the metadata.
    """
    entries = _aligned(entries)
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, content in ((e.name, e.content) for e in entries):
        if name == METADATA:
            raise UsageError(f"{file} can have no tensor called {name}, which safetensors keeps for itself")
        if name in header:
            raise UsageError(f"two tensors of {file} would be called {name:.200}: nothing was changed")
        size = size_of(content.pieces)
        shape = list(content.shape)
        header[name] = {"dtype": content.dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return Spliced(file, [_packed(file, header), *(piece for e in entries for piece in e.content.pieces)])


def _aligned(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The same order unless a tensor would then begin between two of its values: then wide dtypes come first."""
    at = 0
    for entry in entries:
        if at % _width(entry):
            return sorted(entries, key=_width, reverse=True)
        at += size_of(entry.content.pieces)
    return entries


def _width(entry: Entry) -> int:
    return max(DTYPE_BITS[entry.content.dtype] // 8, 1)


def _packed(file: str, header: Mapping[str, Any]) -> bytes:
    try:
        raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{file} has a tensor whose name is no text: it can not be written again") from None
    raw += b" " * (-len(raw) % _ALIGNMENT)
    return len(raw).to_bytes(8, "little") + raw


def name_in_safetensors(file: str) -> str:
    """What a pickle is called once it is written as safetensors: ``pytorch_model.bin`` becomes model.safetensors."""
    if file.endswith(".safetensors"):
        return file
    shard = _SHARD.fullmatch(file)
    return f"model{shard[1] or ''}.safetensors" if shard else f"{file.rpartition('.')[0]}.safetensors"


def names_listed(index: Index) -> Mapping[str, Any]:
    """What the index lists, as it stands there: names that lead outside the folder, or to no text, are among them."""
    table = (index.document.data or {}).get("weight_map")
    return table if isinstance(table, Mapping) else {}


def index_text(files: Mapping[str, Iterable[tuple[str, int]]], old: Mapping[str, Any], lost: Mapping[str, Any]) -> str:
    """An index of ``files``: each with the names and sizes in bytes of its tensors.

    What else the ``old`` one says stays, and so do the entries ``lost`` of tensors that are in no file.
    """
    entries = [(name, file, size) for file, tensors in files.items() for name, size in tensors]
    metadata = old.get("metadata")
    kept = dict(metadata) if isinstance(metadata, dict) else {}
    if not lost or "total_size" not in kept:
        kept["total_size"] = sum(size for _, _, size in entries)
    table = {**lost, **{name: file for name, file, _ in entries}}
    return json.dumps({**old, "metadata": kept, "weight_map": dict(sorted(table.items()))}, indent=2) + "\n"
