"""The wiring of drafts that are fed the outputs of the target's layers which their config lists: DFlash and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from drafcheck.contract import Table, load_toml
from drafcheck.draftmode import flag_text, one_of
from drafcheck.lookup import present_key, raw
from drafcheck.plan.ids import as_ids

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.contract import Contract, Engine
    from drafcheck.plan.model import WiringPlan
    from drafcheck.targets import TargetClass


def fill(  # noqa: PLR0917 - the parts of a Subject, in its order
    plan: WiringPlan,
    config: DraftConfig,
    target: TargetConfig | None,
    target_class: TargetClass | None,
    contract: Contract,
    engine: Engine,
    algorithm: str,
) -> None:
    """What arrives: the states of the layers listed, or of the default ones, where the target class has the hook."""
    book = load_toml(engine.name, "targets.toml").get("layer_states", {})
    if not book:
        return
    plan.source = present_key(config, book["ids"])
    plan.ids = as_ids(raw(config, book["ids"]))
    plan.fc_applied = True
    if target is None:
        return
    plan.depth = target.num_hidden_layers
    if not one_of(algorithm, book["algorithms"]):
        plan.captured, plan.why_not = False, f"{flag_text(engine, 'algorithm', algorithm)} asks for none"
    elif target_class is not None:
        plan.captured = hooked(engine, target_class.architecture, book, dspark="spark" in contract.kind)
        plan.why_not = None if plan.captured else f"{target_class.architecture} does not hand them over in {engine}"
    if plan.captured:
        _layers(plan, contract, config, target)


def hooked(engine: Engine, architecture: str, book: Table, *, dspark: bool) -> bool:
    """Whether the release can hand the outputs of listed layers of a target class to a draft."""
    since = first_with(architecture, book, dspark=dspark)
    return since is not None and engine.known >= Version(since)


def first_with(architecture: str, book: Table, *, dspark: bool) -> str | None:
    """The first release in which a target class hands over the outputs of listed layers; None when none does."""
    tables = [book["since"], *([book["dspark"]] if dspark else [])]
    found = [version for table in tables for version, names in table.items() if architecture in names.split()]
    return min(found, key=Version) if found else None


def _layers(plan: WiringPlan, contract: Contract, config: DraftConfig, target: TargetConfig) -> None:
    layers = contract.value("num_layers", config)
    if plan.ids is None:
        plan.source = "default"
        outputs = default_layers(plan.depth, layers)
    else:
        outputs = plan.ids
    if outputs is None:
        return
    plan.inputs = tuple(k + 1 for k in outputs)
    plan.layer_outputs = tuple(k for k in outputs if plan.depth is None or 0 <= k < plan.depth)
    if target.hidden_size is not None:
        plan.fed = len(plan.layer_outputs) * target.hidden_size


def default_layers(depth: int | None, layers: int | None) -> tuple[int, ...] | None:
    """The target layers whose outputs feed a draft of so many layers that lists none, spread from 1 to depth - 3."""
    if depth is None or layers is None or layers < 1:
        return None
    if layers == 1:
        return (depth // 2,)
    span = depth - 4
    return tuple(round(1 + i * span / (layers - 1)) for i in range(layers)) if span >= 0 else None
