"""DC008 to DC011: in which form do the weights come, and what lies beside them?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.entries import without_tensors
from drafcheck.checks.files import problems
from drafcheck.finding import Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.states import asks_for_attack, is_leftover, is_state, other_pickles
from drafcheck.tensor import Trouble
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drafcheck.checkpoint import WeightFile
    from drafcheck.subject import Subject
    from drafcheck.tensor import Problem


@rule("DC008", "ambiguous-weights", Severity.WARNING, needs=("weights",))
def ambiguous_weights(s: Subject) -> Iterator[Hit]:
    """The weights are there twice, as safetensors and as a PyTorch file.

    ## What it does
    Reports `.bin` and `.pt` files with tensors of the same names beside the files that the engine reads, says which are
    read, and whether names, dtypes and shapes agree (values are not compared). Also one that asks for the classes
    of somebody's program (of other code DC009 speaks). State of the training is not among them (DC011).

    ## Why is this bad?
    The engine reads one of them and never looks at the other. After a training that saved into an old folder the one
    that is read can be the old one; other engines and converters may choose the other.

    ## Fix
    Remove the file that is not meant.
    """
    selection = s.selection
    if selection is None or selection.uses_pickles:
        return
    read = {t.name: (t.dtype, t.shape) for t in selection.tensors} if selection.unwanted else {}
    for file in selection.unwanted:
        if is_state(file.name):  # which names the trainer's classes: no engine takes it for weights
            continue
        other = {t.name: (t.dtype, t.shape) for t in file.header.tensors}
        if not file.is_safetensors and read.keys() & other.keys():
            differ = sorted(n for n in read.keys() | other.keys() if read.get(n) != other.get(n))
            yield _ambiguous(s, selection.files, file, differ)
        problem = _unsafe(file)
        if problem is not None and not _is_attack(file):
            yield _beside(s, file, problem)


def _unsafe(file: WeightFile) -> Problem | None:
    """What a file asks for, of whatever name."""
    return next((problem for problem in file.header.problems if problem.trouble is Trouble.UNSAFE_PICKLE), None)


def _is_attack(file: WeightFile) -> bool:
    from drafcheck.unjudged import attacks  # there is rarely such a file

    return attacks(file, unseen=True)


def _beside(s: Subject, file: WeightFile, problem: Problem) -> Hit:
    """Of a file that this engine does not open."""
    return Hit(
        f"{s.engine} does not open {file.name} beside the weights that it reads, but others may: {problem.message}",
        (Location(file=file.name),),
        help=f"remove {file.name}",
    )


def _ambiguous(s: Subject, read: tuple[WeightFile, ...], other: WeightFile, differ: list[str]) -> Hit:
    names = listed([file.name for file in read], 2)
    same = "names, dtypes and shapes agree (the values were not compared)"
    from drafcheck.fix.repairs.files import is_redundant  # weights are rarely there twice

    outcome = f"they differ in {count(len(differ), 'tensor')}: {listed(differ)}" if differ else same
    return Hit(
        f"the weights are there twice: {s.engine} reads {names} and not {other.name}; {outcome}",
        (Location(file=read[0].name), Location(file=other.name)),
        help=f"remove {other.name}, or {names} if that is the older one",
        fixable=is_redundant(s, other, whole=False),
    )


@rule("DC009", "unsafe-pickle", Severity.ERROR)
def unsafe_pickle(s: Subject) -> Iterator[Hit]:
    """A PyTorch file asks for code beyond what rebuilds tensors.

    ## What it does
    Reads the opcodes of the pickle without running any, and reports every name that is not one of those that a
    plain state dict needs, with its place: also of pickles that lie beside that of the tensors, behind it or behind the
    archive, or in an archive inside the file, in files whose pickle or archive is broken (of an archive without its
    directory in the first 16 MB), and in what is called a safetensors file and is none. A 7z archive under the name of
    a weight file counts as such, and so does what could not be looked through to its end: more than two million
    opcodes, an archive in more than three others, a file packed in an unknown way. Also what needs no such name:
    attributes set of a function or a class, methods of a dict replaced, a text in another code, memory asked for by a
    number. Torch is not needed, for files of before 1.6 neither. Of files that the loader does not open those are
    reported that ask for what attacks ask for: what Python brings along, other than plain values, and what is known to
    run code in other packages (scanners flag it); not those that name the classes of somebody's program. Among them is
    the state of a training (`training_args.bin`, `optimizer.pt`), where `getattr` alone says nothing, and in a folder
    on disk the first 64 files called `.pth`, `.pkl`, `.pickle`, `.ckpt` or `.joblib`.

    ## Why is this bad?
    Whoever loads it without `weights_only=True` runs that code (NVIDIA-NeMo/Automodel pull request 3240,
    ZDI-CAN-31759). Engines load with it and stop, unless the code lies beside or behind what they read: then they serve
    the file.

    ## Fix
    Do not load the file. Ask its author for safetensors, or for the plain state dict without other objects.
    """
    yield from problems(s, Trouble.UNSAFE_PICKLE)
    for file in s.selection.unwanted if s.selection is not None else ():
        problem = _unsafe(file)
        if problem is not None and _is_attack(file):
            yield _beside(s, file, problem)
    for file in _never_weights(s):
        problem = _unsafe(file)
        if problem is not None and asks_for_attack(file):
            yield _beside(s, file, problem)


def _never_weights(s: Subject) -> Iterator[WeightFile]:
    """The state of a training, other pickles, and what is called safetensors, which the loader takes for no weights."""
    if s.selection is None or s.checkpoint.config_only:
        return
    weights = {file.name for file in (*s.selection.chosen, *s.selection.unwanted)}
    yield from (file for file in s.checkpoint.files if file.name not in weights)
    yield from other_pickles(s.checkpoint)


@rule("DC010", "pickle-weights", Severity.NOTE, needs=("weights",))
def pickle_weights(s: Subject) -> Iterator[Hit]:
    """The weights are there only as PyTorch files.

    ## What it does
    Notes that the files that the engine reads are `.bin` or `.pt` files.

    ## Why is this bad?
    It is not, on the server (accept length 2.30 -> 2.30 on SGLang 0.5.15.post1). Such files can hold code, are read
    more slowly, and some tools take safetensors only.

    ## Fix
    Convert without loss: `drafcheck fix`. It copies the bytes of plain tensors and converts nothing when the file holds
    anything else, which the note then names: a tensor that is transposed, negated, sparse or quantised, a compressed
    archive, an entry that is no tensor, or bytes behind the last storage. For such a file load it with
    `torch.load(path, weights_only=True)`, make of each entry a plain tensor
    (`t.resolve_neg().resolve_conj().contiguous().clone()`), leave out what is none, and write them with
    `safetensors.torch.save_file`.
    """
    if s.selection is None or without_tensors(s) or any(file.header.faults for file in s.selection.files):
        return  # nothing to convert, or nothing that should be
    if s.selection.uses_pickles:
        from drafcheck.fix.repairs.files import why_not_converted

        names = [file.name for file in s.selection.files]
        why = why_not_converted(s, s.selection.files)
        yield Hit(
            f"the weights are there only as PyTorch pickles: {listed(names)}"
            + (f"; `drafcheck fix` does not convert them: {why}" if why is not None else ""),
            (Location(file=names[0]),),
            help=_conversion(s.selection.files),
            fixable=why is None,
        )


def _conversion(files: Sequence[WeightFile]) -> str:
    """How to write pickles as safetensors with torch, also those that `drafcheck fix` does not convert."""
    kept = "" if any(file.header.uncopied for file in files) else " without loss"
    words = (
        f"convert{kept}: tensors = torch.load(path, weights_only=True), then safetensors.torch.save_file("
        "{n: t.contiguous().clone() for n, t in tensors.items()}, path)"
    )
    for file in files:
        there = {t.name for t in file.header.tensors}
        calls = [(n, u.call) for n, u in file.header.uncopied.items() if u.call not in ("", "contiguous()")]
        if calls:
            words += f"; of `{calls[0][0]:.200}` t.{calls[0][1]}"
        if any(not u.call and (u.stops or n not in there) for n, u in file.header.uncopied.items()):
            words += "; keep what is no plain tensor in a file of its own"
        if file.header.uncopied:
            break
    return words


@rule("DC011", "training-leftovers", Severity.NOTE)
def training_leftovers(s: Subject) -> Iterator[Hit]:
    """State of the training lies beside the weights.

    ## What it does
    Notes optimizer, scheduler, random-number and trainer state in the folder, by file name.

    ## Why is this bad?
    No engine reads it. An optimizer's state is twice the size of the weights, and everyone who downloads the draft
    pays for it; `training_args.bin` is a pickle with objects in it.

    ## Fix
    Leave these files out of the upload.
    """
    names = sorted({*s.checkpoint.other, *(file.name for file in s.checkpoint.files)})
    found = [name for name in names if is_leftover(name)]
    if found:
        yield Hit(
            f"{count(len(found), 'file')} of training state beside the weights: {listed(found)}",
            (Location(file=found[0]),),
            help="leave these files out of the upload",
        )
