"""What was written, looked at once more before it is delivered: by the safetensors library, and by the rules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from drafcheck.checkpoint import BESIDE, open_folder
from drafcheck.finding import Severity
from drafcheck.fix.mend import FailedRepairError, Mended
from drafcheck.place import LocalPlace
from drafcheck.runner import Examination, examine
from drafcheck.session import Setup


class _Staged(LocalPlace):
    """A folder that will have another name."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    def address(self, name: str) -> str:
        """The path that a file will have."""
        return f"{self._name.rstrip('/')}/{name}"


def _findings(seen: Examination) -> set[tuple[str, Severity]]:
    """What was found, but of files that are no regular ones, which a copy leaves out."""
    odd = {p.location.file for p in seen.subject.checkpoint.no_index} if seen.subject is not None else set()
    return {(f.rule, f.severity) for f in seen.findings if not any(place.file in odd for place in f.locations)}


def checked(mended: Mended, folder: Path, name: str) -> Examination:
    """How the files in ``folder``, which will be called ``name``, check.

    Raises FailedRepairError when the library does not open a file, or when anything is found that was not foreseen.
    """
    for file in mended.state.files:
        if file.endswith(".safetensors"):
            _open(folder / file)
    _need_folders(mended, folder)
    seen = examine(name, _setup(mended), partial(open_folder, name, _Staged(folder, name)))
    foreseen, found = map(_findings, (mended.last, seen))
    if seen.crashed or foreseen != found:
        codes = ", ".join(sorted(code for code, _ in foreseen ^ found)) or "a rule that failed"
        raise FailedRepairError(f"what was written does not check as it should ({codes}): nothing was delivered")
    return seen


def _need_folders(mended: Mended, folder: Path) -> None:
    """Raises FailedRepairError where the index names a file in a folder, which is not taken along."""
    subject, base = mended.last.subject, mended.state.base
    index = subject.checkpoint.index if subject is not None else None
    inside = [f for f in (index.files if index is not None else ()) if "/" in f and not (folder / f).exists()]
    lost = next((f for f in inside if base.is_file(f)), None)
    if lost is not None:
        raise FailedRepairError(
            f"the index names {lost:.200}, in a folder, and folders are not taken along: "
            "move it beside config.json first; nothing was delivered"
        )


def _setup(mended: Mended) -> Setup:
    """As the repair was checked, with the same target: a folder beside the checkpoint is not found from elsewhere."""
    setup, target = mended.last.setup, mended.last.target
    if target is None or target == mended.state.base.address(BESIDE):
        return setup
    return replace(setup, options=replace(setup.options, target=target))


def _open(path: Path) -> None:
    """Let the library read the header, and the first bytes of every tensor."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            names = list(file.keys())
            for tensor in names:
                file.get_slice(tensor).get_shape()
    except (SafetensorError, OSError) as error:
        raise FailedRepairError(f"the safetensors library does not open {path.name}: {error}") from None
