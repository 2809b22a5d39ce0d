"""What differs between an answer of vLLM's real loader (a row of fixtures/verdicts) and the plans of drafcheck."""

from __future__ import annotations

from typing import Any

from drafcheck.plan.model import LoadPlan, Refusal
from drafcheck.subject import Subject

STAGES = {
    "speculative_config": ("config", "class"),
    "model_init": ("construct", "class"),
    "load_weights": ("load", "files"),
}
SERVED = ("share", "compute_logits", "combine_hidden_states")  # it loaded, and the recording went on to use it
MAPPING = "draft_id_to_target_id"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def says_nothing(row: dict[str, Any]) -> str | None:
    """Why a refusal is one of the place where the loader was run, and not of its release; None for any other row."""
    error = row["error"] or {}
    if row["version"] == "0.22.1" and str(error.get("type")).startswith("StrictDataclass"):
        return "a check of transformers 5, where 0.22.1 runs with 4 as well"
    if row["version"] == "0.33.0" and "RoPE requires an even rotary dimension" in str(error.get("message")):
        return "a check of transformers 5.18, where 0.33.0 runs with 5.16 as well"
    if "PlatformEnum.UNSPECIFIED" in error.get("message", "") or "Failed to find a kernel" in error.get("message", ""):
        return "the recording ran on the CPU, which has no kernel for quantised layers"
    if "PagedAttention" in error.get("message", ""):
        return "the recording ran on the CPU, whose attention has no head size of 16; a GPU has FlexAttention for it"
    return None


def disagreements(row: dict[str, Any], s: Subject) -> list[str]:
    """What differs between the recorded row and the plan; nothing when they agree."""
    if s.selection is not None and s.selection.twice and not s.selection.ordered:
        return []  # which of two tensors of one name counts hangs on the order of the server's disk
    refusal = s.refused or (s.load.refused if s.load else None) or (s.selection.refused if s.selection else None)
    if refusal is not None and refusal.stage == "serve":
        refusal = None  # the recording builds and loads the class, and starts no engine
    error = row["error"] if row["error"] and row["error"]["stage"] not in SERVED else None
    # A size that is none is refused by whatever it meets first: neither stage nor message is foretold.
    if refusal is not None and refusal.cause == "config-value":
        return [] if row["error"] else [f"refused: {refusal}, recorded nothing"]
    problems = list(_refusal_differs(error, refusal))
    if not problems and (error is None or error["stage"] == "load_weights"):
        assert s.load is not None
        # What was loaded before a refusal hangs on the order of the files, which may be that of the server's disk.
        if error is None or (s.selection is not None and s.selection.ordered):
            problems += _tensors_differ(row, s.load, error)
            problems += _parameters_differ(row, s.load)
        problems += _sharing_differs(row, s.load)
    return problems


def _refusal_differs(error: dict[str, Any] | None, refusal: Refusal | None) -> list[str]:
    if (refusal is None) != (error is None):
        return [f"refused: {refusal}, recorded {error}"]
    if refusal is None or error is None:
        return []
    problems = [] if refusal.stage in STAGES[error["stage"]] else [f"stage {refusal.stage}, recorded {error['stage']}"]
    if refusal.stage in ("construct", "load") and not _says(refusal.error, f"{error['type']}: {error['message']}"):
        problems.append(f"error {refusal.error}, recorded {error}")
    return problems


def _says(told: str, recorded: str) -> bool:
    """Whether the message is the recorded one; the list of available parameters behind it is in no fixed order.

    ``...`` stands for what only the running engine knows.
    """
    parts = told.split("...")
    at = [recorded.find(part) for part in parts]
    shaped = len(parts) > 1 and at[0] == 0 and -1 not in at and at == sorted(at)
    return shaped or told == recorded or recorded.startswith(f"{told}. The available parameters")


def _tensors_differ(row: dict[str, Any], plan: LoadPlan, error: dict[str, Any] | None) -> list[str]:
    loaded = {write.tensor.name for write in plan.writes} | {tensor.name for tensor in plan.mappings}
    problems = [] if loaded == set(row["loaded"]) else [f"loaded {loaded ^ set(row['loaded'])}"]
    if error is not None:
        return problems
    # The recording listed the names of .safetensors files alone.
    dropped = {drop.tensor.name for drop in plan.dropped if drop.tensor.file.endswith(".safetensors")}
    return problems + ([] if dropped == set(row["dropped"]) else [f"dropped {dropped ^ set(row['dropped'])}"])


def _parameters_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    # The recording ends with the loader: what the engine fills from the target later counts as unwritten there.
    written = {write.parameter for write in plan.writes}
    unwritten = {*plan.unwritten, *(name for name in plan.fills_from_target if name not in written)}
    unwritten |= {MAPPING} & set(plan.parameters) if not plan.mappings else set()
    # Of no values none stays as it was.
    unwritten = {name for name in unwritten if 0 not in plan.parameters[name].shape}
    problems = [] if unwritten == set(row["unwritten"]) else [f"unwritten {unwritten ^ set(row['unwritten'])}"]
    partial = {p.parameter: round(p.fraction, 2) for p in plan.partial}
    recorded = {name: round(share, 2) for name, share in row["partial"]}
    return problems + ([] if partial == recorded else [f"partial {partial}, recorded {recorded}"])


def _sharing_differs(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    """What the real proposer took from the target; of releases that have no such method nothing was recorded."""
    if not isinstance(row["shared"], dict):
        return []
    ours = (EMBEDDING in plan.fills_from_target, HEAD in plan.fills_from_target)
    built = HEAD in plan.parameters  # a class without one of its own takes the target's as a matter of course
    recorded = (
        row["shared"]["embed_shared"] and EMBEDDING in plan.parameters,
        row["shared"]["lm_head_shared"] and built,
    )
    return [] if ours == recorded else [f"embedding and head shared {ours}, recorded {recorded}"]
