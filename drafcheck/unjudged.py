"""Whether a folder of models may hide a draft, or code, because what is in it could not be read."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from drafcheck.checkpoint import CONFIG
from drafcheck.contract import load_toml
from drafcheck.magic import ZIP, begins_pickle
from drafcheck.source import SourceError
from drafcheck.states import asks_for_attack, names_attack
from drafcheck.tensor import Problem, Trouble

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint, WeightFile
    from drafcheck.pickle_listing import Asked

MOST_PICKLES = 64
"""So many pickles of a whole model are looked at for code; more of them in one folder are data."""

_OF_A_MODEL = ("architectures", "model_type", "hidden_size")


def config_hides(checkpoint: Checkpoint) -> bool:
    """Whether a folder without weights has the config of a model that could not be read.

    Other programs have a config.json too, and some write it with comments: only what could not be opened at all, and
    what names a model, counts.
    """
    problem = config_problem(checkpoint)
    if problem is None or problem.trouble is not Trouble.BAD_CONFIG:
        return problem is not None
    try:
        start = checkpoint.place.source(CONFIG).read(0, 1 << 16)
    except SourceError:
        return True
    return any(f'"{key}"'.encode() in start for key in _OF_A_MODEL)


def config_problem(checkpoint: Checkpoint) -> Problem | None:
    """Why the config.json that is there could not be read."""
    if checkpoint.config is not None:
        return None
    troubles = (p for p in checkpoint.problems if p.trouble is not Trouble.NO_CONFIG)
    return next(troubles, None)


def weights_hide(checkpoint: Checkpoint) -> bool:
    """Whether a file that engines would take for weights could not be read, or would run code."""
    return any(_hides(file, checkpoint) for file in checkpoint.files)


def holds_code(checkpoint: Checkpoint) -> bool:
    """Whether a pickle asks for code that engines would open, or that is an attack. Reads the listings of the first 64.

    Those that engines would open come first.
    """
    opened = _pickles(checkpoint)
    others = (file for file in checkpoint.files if not file.is_safetensors and file not in opened)
    posing = (file for file in checkpoint.files if file.is_safetensors and _poses(file))
    return any(_is_unsafe(file, checkpoint) for file in islice(chain(opened, others, posing), MOST_PICKLES))


def why_unread(checkpoint: Checkpoint) -> str | None:
    """What is wrong with the first file of a folder in which no tensor could be read; None where one could."""
    if any(file.header.tensors for file in checkpoint.files):
        return None
    return next((problem.message for file in checkpoint.files for problem in file.header.faults), None)


def _hides(file: WeightFile, checkpoint: Checkpoint) -> bool:
    problem = next(iter(file.header.faults), None)
    if problem is None:
        return not file.header.tensors and _may_hold_them_elsewhere(file, checkpoint)
    if problem.trouble is Trouble.UNSAFE_PICKLE:
        return _is_unsafe(file, checkpoint)
    if _is_of_weights(file) or problem.trouble is Trouble.LFS_POINTER:
        return True
    if file.size == 0 and problem.trouble is Trouble.UNREADABLE:
        return not checkpoint.place.is_folder(file.name)
    if problem.trouble is Trouble.UNREADABLE:  # whole, and something else than weights: a list, a program
        return _may_hold_them_elsewhere(file, checkpoint)
    return _starts_as_torch(file) and not _is_foreign(file, checkpoint)


def _is_foreign(file: WeightFile, checkpoint: Checkpoint) -> bool:
    """Whether a file is a zip archive of something else, and neither its name nor a config says that it is weights."""
    return not (_is_of_weights(file) or _names_model(checkpoint)) and _is_another_archive(file)


def _names_model(checkpoint: Checkpoint) -> bool:
    """Whether the config says that the files beside it are weights, or could not be read."""
    if checkpoint.config is None:
        return config_problem(checkpoint) is not None
    return any(key in checkpoint.config.data for key in _OF_A_MODEL)


def _is_another_archive(file: WeightFile) -> bool:
    """Such as a program or a document, under a name that weights have too."""
    from drafcheck.torch_zip import is_another

    try:
        return is_another(file.source)
    except SourceError:
        return False
    finally:
        file.source.close()


def _may_hold_them_elsewhere(file: WeightFile, checkpoint: Checkpoint) -> bool:
    """Whether a pickle without tensors at its top is likely to be weights all the same, by its name or a config."""
    return not file.is_safetensors and (_is_of_weights(file) or config_problem(checkpoint) is not None)


def _is_of_weights(file: WeightFile) -> bool:
    """By its name: what else ends in .bin and .pt may be anything, such as a firmware."""
    return file.is_safetensors or file.name.startswith("pytorch_model")


def _poses(file: WeightFile) -> bool:
    """Whether a file has the name of safetensors and not their beginning: its header need not be read to find out."""
    try:
        return file.source.read(8, 9) != b"{"
    except SourceError:
        return False
    finally:
        file.source.close()


def _starts_as_torch(file: WeightFile) -> bool:
    try:
        head = file.source.read(0, 4)
    except SourceError:
        return True
    finally:
        file.source.close()
    return head == ZIP or begins_pickle(head)


def _pickles(checkpoint: Checkpoint) -> list[WeightFile]:
    """The pickles that an engine would open: with a config beside them, or of the usual name."""
    if any(file.is_safetensors for file in checkpoint.files):
        return [file for file in checkpoint.files if file.name.startswith("pytorch_model")]
    whole = checkpoint.place.holds(CONFIG)
    return [f for f in checkpoint.files if (whole or _is_of_weights(f)) and not _is_training_state(f)]


def _is_training_state(file: WeightFile) -> bool:
    return file.name.endswith(tuple(load_toml("discovery.toml")["training_state"]))


def _is_unsafe(file: WeightFile, checkpoint: Checkpoint) -> bool:
    """Whether a pickle asks for code, and an engine would open it or it is an attack."""
    if all(p.trouble is not Trouble.UNSAFE_PICKLE for p in file.header.problems):
        return False
    if _is_training_state(file):  # which names the classes of the trainer, and no engine opens it
        return asks_for_attack(file)
    safe = any(f.is_safetensors for f in checkpoint.files)
    opened = file in _pickles(checkpoint) and not safe
    return (opened and not _is_foreign(file, checkpoint)) or attacks(file)


def attacks(file: WeightFile, *, unseen: bool = False) -> bool:
    """Whether a pickle asks for what an attack does, or for nothing that a pickler names and means harm all the same.

    ``unseen``: what was not looked through to its end counts as well. In a folder of models it does only where code is
    known to be behind that place: data may be that long.

    Of what is no pickle by its beginning, and in archives of other programs, a random byte may look like the latter.
    """
    from drafcheck.pickle_sweep import sweep

    try:
        found, cut = sweep(file.source)
    except SourceError:
        return False
    finally:
        file.source.close()
    paths = [asked.path for asked in found]
    if names_attack(file.name, paths):
        return True
    if _asks_in_strings(file, found):
        return True
    behind = cut and not paths and all(cut not in problem.message for problem in file.header.problems)
    if cut and (unseen or behind):
        return not _is_another_archive(file)
    odd = not all(map(_is_name, paths)) or not (paths or cut)
    return odd and _starts_as_torch(file) and not _is_another_archive(file)


def _asks_in_strings(file: WeightFile, found: list[Asked]) -> bool:
    """Whether a pickle gives torch.load a string that asks for code, or one that is not looked at."""
    from drafcheck.pickle_strings import LOADS, strings
    from drafcheck.torch_pickle import read_pickle

    loads = [asked for asked in found if asked.path == LOADS]
    if any(asked.member for asked in loads):  # torch.save does not write that into an archive
        return True
    try:
        return bool(loads) and any(
            piece is None or any(p.trouble is Trouble.UNSAFE_PICKLE for p in read_pickle(piece).problems)
            for piece in strings(file.source)
        )
    except SourceError:
        return False
    finally:
        file.source.close()


def _is_name(path: str) -> bool:
    return path.isascii() and all(part.isidentifier() for part in path.split("."))
