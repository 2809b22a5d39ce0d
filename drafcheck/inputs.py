"""What a checkpoint is checked against: its target, and whatever else the options name."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from drafcheck.checkpoint import BESIDE, CONFIG, Checkpoint, read_target
from drafcheck.contract import Engine, load_toml
from drafcheck.errors import UsageError
from drafcheck.place import Place, locate
from drafcheck.selection import suggestion
from drafcheck.session import Options, Setup
from drafcheck.subject import Subject
from drafcheck.targets import target_class

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.runner import Examination

Spot = Callable[[], tuple[Place, str | None]]
"""Finds the folder of a target, and the file in it when it is not its config.json."""


def refuse_unknown_words(engine: Engine, options: Options) -> None:
    """Raises UsageError for an algorithm, a dtype or a runner that the engine has in no release."""
    facts = load_toml(engine.name, "engine.toml")
    words = (("--algorithm", options.algorithm, "algorithms"), ("--dtype", options.dtype, "dtypes"))
    for flag, word, kind in words:
        known = facts.get(kind, [])
        if word is not None and known and word.lower() not in (k.lower() for k in known):
            raise UsageError(f"{engine.name} has no {flag[2:]} {word!r}{suggestion(word, known)}: {', '.join(known)}")
    runners = facts.get("runners", [])
    if options.runner is not None and options.runner not in runners:
        raise UsageError(f"{engine.name} has no runner {options.runner!r}: {', '.join(runners) or 'there is only one'}")


def read_inputs(seen: Examination, s: Subject, options: Options) -> None:
    """Read the target, the tokenizer and the reference into ``s``. Raises UsageError for one that cannot be read."""
    found = _target(s.checkpoint, s.config, options)
    if found is not None:
        seen.target, spot = found
        opened = seen.attempt("reading the target's config", lambda: _told(seen.setup, spot))
        if opened is not None:
            s.target, s.target_place = opened
            s.target_path = seen.target
            s.target.document.file = _address_of(seen.target, s.checkpoint)
    if options.tokenizer is not None:
        from drafcheck.tokenizer import open_tokenizer

        path = options.tokenizer
        s.tokenizer, s.tokenizer_given = seen.attempt("opening the tokenizer", lambda: open_tokenizer(path)), True
    if options.reference is not None:
        from drafcheck.reference import open_reference

        given = options.reference
        s.reference = seen.attempt("reading the reference", lambda: open_reference(given))
    if options.target_weights is not None:
        from drafcheck.matrix import opened as weights_at
        from drafcheck.targethead import refuse_foreign

        weights = options.target_weights
        s.target_weights = seen.attempt("opening the target's weights", lambda: weights_at(weights, "--target-weights"))
        seen.attempt("looking at the target's weights", lambda: refuse_foreign(s, str(weights)))
    if s.target is not None:
        target = s.target
        s.target_class = seen.attempt("looking up the target class", lambda: target_class(s.engine, target))


def _told(setup: Setup, spot: Spot) -> tuple[TargetConfig, Place | None]:
    """The target's config, and its folder when that is its own.

    Raises UsageError, with file and line where it is the settings that name the target.
    """
    try:
        place, name = spot()
        return read_target(place, name or CONFIG), place if name in (None, CONFIG) else None
    except UsageError as error:
        if setup.settings is None or not setup.names_target:
            raise
        raise setup.settings.wrong(str(error), "target") from None


def _address_of(target: str, checkpoint: Checkpoint) -> str:
    """The config.json that a target's path stands for: findings point there, and not into the draft's folder.

    As all places, relative to the checkpoint when it lies inside.
    """
    is_file = target.endswith(".json") or os.path.isfile(target)  # noqa: PTH113
    address = target if is_file else f"{target.rstrip('/')}/config.json"
    return address.removeprefix(checkpoint.place.address("").rstrip("/") + "/")


def _target(checkpoint: Checkpoint, config: DraftConfig | None, options: Options) -> tuple[str, Spot] | None:
    """What to call the target and where its config is.

    It is ``--target``, else a folder that the draft's config names, else target_config.json beside it.
    """
    if options.target is not None:
        given = options.target
        return str(given), lambda: locate(given)
    place = checkpoint.place
    for key in load_toml("discovery.toml")["target_keys"]:
        named = config.text(*key.split(".")) if config is not None else None
        if named and place.complete and place.is_file(f"{named}/{CONFIG}"):
            found = place.address(named)
            return found, partial(locate, found)
    if place.holds(BESIDE):  # one that cannot be read is said to be, not passed over
        return place.address(BESIDE), lambda: (place, BESIDE)
    return None
