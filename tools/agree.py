"""What differs between an answer of SGLang's real loader (a row of fixtures/verdicts) and the plans of drafcheck."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from drafcheck.plan.model import LoadPlan, Refusal
from drafcheck.plan.wiring import is_fc
from drafcheck.subject import Subject

STAGES = {"load_weights": "load", "files": "files", "construct": "construct", "class": "class", "config": "config"}
"""How the scripts call the stage at which an engine stopped, and how a plan does."""

MAPPING = "<hot_token_id>"
"""What the scripts call the table that an engine makes of d2t."""


def says_nothing(row: dict[str, Any]) -> str | None:
    """Why a row is no answer of its release: the path without a GPU, on which it is recorded, asks for more."""
    frames = row.get("trace") or [""]
    rope = row["stage"] == "construct" and row["error"] == "AssertionError: " and "rotary_embedding" in frames[-1]
    if row["error"] is None and any("ModelConfig: ZeroDivisionError" in note for note in row.get("notes") or ()):
        return "the scripts go on where the engine's config of the model has stopped, with a class for targets"
    return "without a GPU, MLA has to have a rope scaling" if rope else None


def disagreements(row: dict[str, Any], s: Subject) -> list[str]:
    """What differs between the recorded row and the plan; nothing when they agree."""
    refusal = s.refused or (s.load.refused if s.load else None) or (s.selection.refused if s.selection else None)
    problems = list(_refusal_differs(row, refusal))
    if refusal is not None and _is_nonsense(refusal):
        return problems  # what was loaded until then is not foretold either
    if not problems and row["stage"] in ("done", "load_weights"):
        assert s.load is not None
        problems += _tensors_differ(row, s.load, all_read=bool(s.contract and s.contract.names.get("order")))
        problems += _parameters_differ(row, s.load)
        problems += _mapping_differs(row, s)
    return problems


def _mapping_differs(row: dict[str, Any], s: Subject) -> list[str]:
    """The first eight target tokens that the engine computed from d2t."""
    assert s.vocabulary is not None
    if row["hot_token_id"] is None or s.load is None or s.load.mapping is None:
        return []
    if s.vocabulary.d2t_tensor in s.load.unread:
        return []  # the loader stopped before: what an earlier tensor left there serves nobody
    if s.vocabulary.unreadable and any(isinstance(token, float) for token in row["hot_token_id"]):
        return []  # values with fractions: drafcheck says that they are none, and not which tokens become of them
    computed = (s.vocabulary.targets or [])[:8]
    return [] if computed == row["hot_token_id"] else [f"tokens {computed}, recorded {row['hot_token_id']}"]


def _refusal_differs(row: dict[str, Any], refusal: Refusal | None) -> Iterator[str]:
    if (refusal is None) != (row["error"] is None):
        yield f"refused: {refusal}, recorded {row['error']}"
    elif refusal is not None:
        nonsense = _is_nonsense(refusal)
        if refusal.stage != STAGES[row["stage"]] and not nonsense:
            yield f"stage {refusal.stage}, recorded {row['stage']}"
        exact = refusal.stage in ("construct", "load") and not nonsense
        if exact and not _says(refusal.error, row["error"]):
            yield f"error {refusal.error}, recorded {row['error']}"


def _is_nonsense(refusal: Refusal) -> bool:
    """A size that is none is refused by whatever it meets first: neither stage nor message is foretold."""
    return refusal.cause == "config-value"


def _says(shape: str, error: str) -> bool:
    """Whether an error is of that shape; ``...`` stands for what only the running engine knows, such as a dtype."""
    parts = [part.strip() for part in shape.split("...") if part.strip()]
    at = [error.find(part) for part in parts]
    return shape[:200] == error[:200] or ("..." in shape and at[0] == 0 and -1 not in at and at == sorted(at))


def _tensors_differ(row: dict[str, Any], plan: LoadPlan, *, all_read: bool) -> list[str]:
    """``all_read``: the loader reads everything before it writes; what a refusal leaves out was yielded as well."""
    loaded: dict[str, set[str]] = defaultdict(set)
    unseen = _written_over(row, plan)
    for write in plan.writes:
        if write.parameter not in _empty(plan) and write.tensor.name not in unseen:
            loaded[write.tensor.name].add(write.parameter)
    for tensor in plan.mappings:
        loaded[tensor.name].add(MAPPING)
    recorded = {name: set(parameters) for name, parameters in row["loaded"].items()}
    recorded |= _waited(row, plan)
    _forget_refused(recorded, loaded, plan)
    problems = [] if loaded == recorded else [f"loaded {dict(loaded)}, recorded {recorded}"]
    nowhere = {write.tensor.name for write in plan.writes} - set(loaded)
    dropped = {drop.tensor.name for drop in plan.dropped} | {t.name for t in plan.unread if all_read} | nowhere
    differ = dropped ^ (set(row["dropped"]) - set(_waited(row, plan)))
    return problems + ([f"dropped {differ}"] if differ else [])


def _forget_refused(recorded: dict[str, set[str]], loaded: dict[str, set[str]], plan: LoadPlan) -> None:
    """Leave out the tensor at which the loader stops: the shards of a fused one that it wrote before serve nobody."""
    if plan.refused is not None and plan.refused.tensor is not None:
        for found in (recorded, loaded):
            found.pop(plan.refused.tensor.name, None)


def _written_over(row: dict[str, Any], plan: LoadPlan) -> set[str]:
    """Tensors written over by a later one after all were read: the recording sees what is left in the parameter."""
    late = {write.tensor.name for write in plan.writes if write.parameter in row.get("late", ())}
    return {before.name for before, _ in plan.collisions} & late


def _waited(row: dict[str, Any], plan: LoadPlan) -> dict[str, set[str]]:
    """Tensors that were written together with a later one: the recording sees only the write at the later one."""
    waited: dict[str, set[str]] = {}
    for name, parameter in plan.parameters.items():
        parts = {write.tensor.name for write in plan.writes if write.parameter == name and parameter.load == "joined"}
        if any(name in row["loaded"].get(part, ()) for part in parts):
            waited |= {part: {name} for part in parts & set(row["dropped"])}
    return waited


def _empty(plan: LoadPlan) -> set[str]:
    """The parameters without an element: whether they were written is not seen; the recording says they were not."""
    return {name for name, parameter in plan.parameters.items() if 0 in parameter.shape}


def _parameters_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    # The recording ends with the loader: what the engine fills from the target later counts as unwritten there.
    written = {write.parameter for write in plan.writes} - _empty(plan)
    from_target = [name for name in plan.fills_from_target if name not in written]
    unwritten = {*plan.unwritten, *from_target, *_empty(plan)}
    problems = [] if unwritten == set(row["unwritten"]) else [f"unwritten {unwritten ^ set(row['unwritten'])}"]
    partial = {p.parameter: round(p.fraction, 2) for p in plan.partial}
    recorded = {name: round(share, 2) for name, share in row["partial"]}
    if partial != recorded:
        problems.append(f"partial {partial}, recorded {recorded}")
    fc = next((p.shape[1] for p in plan.parameters.values() if is_fc(p.name)), None)
    if fc != row["fc_in"]:
        problems.append(f"fc in {fc}, recorded {row['fc_in']}")
    return problems
