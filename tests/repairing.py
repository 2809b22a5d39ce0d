"""What tests of repairs share: a checkpoint checked, the edits its findings lead to, and the mended checkpoint."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from make_fixtures import FIXTURES

from drafcheck.finding import Finding
from drafcheck.fix.edits import Add, Edit, Replace
from drafcheck.fix.mend import Mended, mend
from drafcheck.fix.pieces import Spliced
from drafcheck.fix.registry import Wishes, load_repairs
from drafcheck.place import LocalPlace
from drafcheck.runner import Examination, examine
from drafcheck.session import Options, Session, Setup
from drafcheck.tensor import Tensor

SAFE = Wishes()
SGLANG = Options(engine="sglang==0.5.15")


def options_of(case: str) -> Options:
    """The options in the args.txt of a fixture; paths as they are from here."""
    words = shlex.split((FIXTURES / case / "args.txt").read_text().replace("{case}", str(FIXTURES / case)))
    values = 1.0 if "--values" in words else None
    words = [word for word in words if word != "--values"]
    named = {words[i].removeprefix("--"): words[i + 1] for i in range(0, len(words), 2)}
    given = {key.replace("-", "_"): int(value) if key == "tp" else value for key, value in named.items()}
    return Options(**given, values=values)  # type: ignore[arg-type]


def setup_for(path: Path | str, options: Options) -> Setup:
    """How a checkpoint is checked with these options."""
    return Session(options).setup(str(path))


def checked(path: Path | str, options: Options) -> Examination:
    """A checkpoint with its findings."""
    return examine(str(path), setup_for(path, options))


def edits_for(seen: Examination, finding: Finding, wishes: Wishes = SAFE) -> list[Edit]:
    """What the repairs of one finding ask for; the unsafe ones only when that is wished."""
    known = load_repairs().get(finding.rule, [])
    assert seen.subject is not None
    asked = [one for one in known if one.cost is None or wishes.unsafe]
    return [edit for one in asked for edit in one.work(seen.subject, [finding], wishes)]


def written(edit: Edit) -> bytes:
    """All bytes of the tensor that an edit writes."""
    assert isinstance(edit, (Add, Replace))
    spliced = Spliced("", edit.content.pieces)
    return spliced.read(0, spliced.size())


def asked(folder: Path | str, code: str, options: Options = SGLANG, wishes: Wishes = SAFE) -> list[Edit]:
    """What the findings of one rule lead to; fixable is held against the safe ones."""
    seen = checked(folder, options)
    found = [f for f in seen.findings if f.rule == code]
    assert found
    safe = [edit for finding in found for edit in edits_for(seen, finding)]
    assert any(f.fixable for f in found) == bool(safe)
    return [edit for finding in found for edit in edits_for(seen, finding, wishes)] if wishes.unsafe else safe


def mended(path: Path | str, options: Options, wishes: Wishes = SAFE) -> Mended:
    """The checkpoint repaired, in rounds, with nothing written."""
    return mend(str(path), setup_for(path, options), LocalPlace(Path(path)), wishes)


def mended_draft(folder: Path, wishes: Wishes = SAFE, **options: Any) -> Mended:
    """A draft that a test has written, repaired for SGLang 0.5.15 unless another engine is named."""
    return mended(folder, Options(**{"engine": "sglang==0.5.15", **options}), wishes)


def contents(done: Mended, names: Sequence[str] | None = None) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Dtype, shape and the hash of the bytes of every tensor, by name, as the checkpoint will be."""
    return hashed(done.last, names)


def hashed(seen: Examination, names: Sequence[str] | None = None) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """The same of a checkpoint that was checked."""
    assert seen.subject is not None
    checkpoint = seen.subject.checkpoint
    tensors = [t for file in checkpoint.files for t in file.header.tensors if names is None or t.name in names]
    return {t.name: (t.dtype, t.shape, hashlib.sha256(checkpoint.read(t)).hexdigest()) for t in tensors}


def untouched(done: Mended) -> list[Tensor]:
    """The tensors of the first state whose bytes no edit was to change."""
    changed = {edit.tensor.name for one in done.rounds for edit in one.edits if hasattr(edit, "tensor")}
    subject = done.first.subject
    assert subject is not None
    return [t for file in subject.checkpoint.files for t in file.header.tensors if t.name not in changed]


def all_codes() -> list[str]:
    """The fixtures that fail, as ``DC101/layers-0.5.9``."""
    found = (path.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("DC*/*/args.txt"))
    return sorted(found, key=os.fspath)
