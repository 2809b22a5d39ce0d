"""The wiring plan: which hidden states of the target reach the drafter, in which order, and how wide they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from drafcheck.contract import Table, in_force, load_toml
from drafcheck.draftmode import flag_text, one_of
from drafcheck.lookup import MISSING, raw
from drafcheck.plan.ids import as_ids
from drafcheck.plan.layer_states import fill
from drafcheck.plan.model import WiringPlan
from drafcheck.targets import capturing_algorithms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.contract import Contract, Engine
    from drafcheck.plan.model import LoadPlan
    from drafcheck.targets import TargetClass

_PLACE = re.compile(r"(?:(?P<n>n)(?:\s*//\s*(?P<part>\d+))?)?\s*(?P<shift>[+-]?\s*\d+)?")


def plan_wiring(  # noqa: PLR0917 - the parts of a Subject, in its order
    config: DraftConfig,
    target: TargetConfig | None,
    target_class: TargetClass | None,
    contract: Contract,
    engine: Engine,
    algorithm: str,
    load: LoadPlan | None,
    runner: str = "",
) -> WiringPlan:
    """Work out what ``engine`` hands to the drafter; ``runner`` is the one asked for, where the engine has several.

    What needs the target's config stays None without it. Wrong types in the draft's config are read as the
    engine reads them: an exception there means "no ids".
    """
    plan = WiringPlan(states=contract.states, runner=runner_of(engine, config, target, runner))
    book = load_toml(engine.name, "targets.toml")
    reading = reading_of(engine, plan.runner)
    _expected(plan, config, contract, load)
    if contract.states == "last":
        _last_state(plan, contract, config, target)
        return plan
    if contract.states == "layers":
        fill(plan, config, target, target_class, contract, engine, algorithm)
        return plan
    if reading is None:
        return plan
    read_ids(plan, config, reading)
    plan.depth = target.num_hidden_layers if target is not None else None
    if one_of(algorithm, capturing_algorithms(engine)):
        plan.why_not = next(_obstacles(plan, config, reading, target_class, engine), None)
    else:
        plan.why_not = f"{flag_text(engine, 'algorithm', algorithm)} asks for none"
    if plan.why_not is not None:
        plan.captured = False
    elif plan.source == "default" and plan.depth is not None and plan.depth < _least(reading):
        plan.error = str(reading["too_few"])
    elif target_class is not None and plan.bad_ids is None:
        plan.captured = True
        _layers(plan, reading, target_class)
    _widths(plan, config, contract, target)
    if plan.fed is not None and plan.embed_width is not None and book["capture"].get("width_test"):
        plan.fc_applied = plan.fed != plan.embed_width
    if target_class is not None:
        _graphs(plan, book, reading, target_class, engine)
    return plan


def _least(reading: Table) -> float:
    """How many layers a target needs for the default ones; none where the release does not ask."""
    return reading["least"] if "least" in reading else float("-inf")


def _expected(plan: WiringPlan, config: DraftConfig, contract: Contract, load: LoadPlan | None) -> None:
    """What this version sizes fc for."""
    plan.num_aux = contract.value("num_aux", config)
    plan.target_hidden = contract.value("target_hidden", config)
    fcs = [p.shape for p in load.parameters.values() if is_fc(p.name)] if load is not None else []
    built = [shape[1] for shape in fcs if len(shape) == 2]  # a contract of the user's may say anything
    if built and built[0] >= 0:
        plan.fc_in = built[0]
    elif plan.num_aux is not None and plan.target_hidden is not None:
        plan.fc_in = plan.num_aux * plan.target_hidden


def _last_state(plan: WiringPlan, contract: Contract, config: DraftConfig, target: TargetConfig | None) -> None:
    """The class takes the embedding and the target's last hidden state, side by side, whatever the config says."""
    plan.embed_width = contract.value("hidden_size", config)
    plan.fc_applied = True
    if target is not None:
        plan.depth, plan.fed = target.num_hidden_layers, target.hidden_size


def is_fc(name: str) -> bool:
    """Whether a tensor or parameter name is that of fc's weight, under any prefix."""
    return name.endswith("fc.weight") and name.split(".")[-2:] == ["fc", "weight"]


def reading_of(engine: Engine, runner: str) -> Table | None:
    """How this release reads layer ids under a runner (empty: it has one); None when the book does not say."""
    entries = load_toml(engine.name, "targets.toml").get("hidden_states", [])
    return in_force([entry for entry in entries if entry.get("runner", runner) == runner], engine)


def runner_of(engine: Engine, config: DraftConfig, target: TargetConfig | None, asked: str) -> str:
    """The model runner that serves: the one asked for, else the release's choice for this draft and target.

    Empty for an engine without a choice.
    """
    for entry in load_toml(engine.name, "targets.toml").get("runner", []):
        if asked or not engine.within(entry.get("versions", "")):
            continue
        if any(key in config.data for key in entry.get("unless", [])):
            continue
        if "targets" not in entry or _serves(entry["targets"], target):
            return str(entry["name"])
    return asked


def _serves(classes: list[str], target: TargetConfig | None) -> bool:
    return target is not None and target.architecture in classes and "quantization_config" not in target.data


def read_ids(plan: WiringPlan, config: DraftConfig, reading: Table) -> None:
    """Note the ids of the first key that holds something; what a wrong type comes to is the book's to say."""
    lenient = reading.get("other_types") == "default"
    for entry in reading["ids"]:
        value = raw(config, entry["key"])
        hidden = "unless" in entry and bool(_table(config, entry["unless"]))
        if hidden or value is MISSING or value is None or (lenient and not value):
            continue
        if lenient and not isinstance(value, list):
            return
        plan.source, plan.plus = entry["key"], entry.get("plus", 0)
        plan.ids = as_ids(value)
        plan.bad_ids = json_type(value) if plan.ids is None else None
        return


def _table(config: DraftConfig, key: str) -> dict[str, object]:
    value = raw(config, key)
    return value if isinstance(value, dict) else {}


def json_type(value: object) -> str:
    """What to call a JSON value that should have been a list of integers."""
    if isinstance(value, list):
        return "a list that holds other things than integers"
    names = {dict: "an object", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _obstacles(
    plan: WiringPlan, config: DraftConfig, reading: Table, target_class: TargetClass | None, engine: Engine
) -> Iterator[str]:
    """What keeps the states from being captured, in the order in which the engine meets it."""
    switch = raw(config, reading["use_aux"]) if reading["use_aux"] else MISSING
    if switch is not MISSING and not switch:
        yield f"{reading['use_aux']} is {json.dumps(switch)}"
    if target_class is None:
        return
    if not target_class.registered:
        yield f"{engine} has no class {target_class.architecture}"
    if not target_class.captures:
        yield f"{target_class.architecture} does not hand them over in {engine}"
    if plan.ids == () and target_class.ids_rule != "ignored":
        plan.inputs = plan.layer_outputs = ()
        yield f"{plan.source} is empty"


def _layers(plan: WiringPlan, reading: Table, target_class: TargetClass) -> None:
    if plan.ids is None or target_class.ids_rule == "ignored":
        plan.source = "default"
        plan.inputs = default_inputs(target_class.default or tuple(reading["default"]), plan.depth)
    else:
        plan.inputs = inputs_of(target_class.ids_rule, tuple(i + plan.plus for i in plan.ids), plan.depth)
    if plan.inputs is not None:
        plan.layer_outputs = arriving(plan.inputs, plan.depth, target_class.final)


def default_inputs(places: tuple[str, ...], depth: int | None) -> tuple[int, ...] | None:
    """The layer inputs that expressions such as ``n // 2`` or ``n - 3`` stand for; None when the depth is unknown.

    Raises ValueError for an expression of another form.
    """
    return None if depth is None else tuple(_place(text, depth) for text in places)


def _place(text: str, depth: int) -> int:
    found = _PLACE.fullmatch(text.strip())
    if found is None or not text.strip():
        raise ValueError(f"not a layer: {text!r}")
    base = depth // int(found["part"] or 1) if found["n"] else 0
    return base + int((found["shift"] or "0").replace(" ", ""))


def inputs_of(rule: str, ids: tuple[int, ...], depth: int | None) -> tuple[int, ...] | None:
    """The layer inputs that explicit ids stand for under a rule of targets.toml; None when that cannot be known."""
    shifted = tuple(i + 1 for i in ids)
    if rule == "as_is":
        return ids
    if rule == "plus_one":
        return shifted
    if rule == "plus_one_if_first_is_one":
        return shifted if ids[:1] == (1,) else ids
    if rule == "as_is_if_max_is_depth" and depth is not None:
        return ids if max(ids, default=-1) == depth else shifted
    return None


def arriving(inputs: tuple[int, ...], depth: int | None, final: bool) -> tuple[int, ...]:
    """The layer outputs that arrive: each once, in layer order, and only those that the target's loop reaches."""
    last = max(inputs, default=0) if depth is None else depth if final else depth - 1
    return tuple(i - 1 for i in sorted(set(inputs)) if 0 <= i <= last)


def _widths(plan: WiringPlan, config: DraftConfig, contract: Contract, target: TargetConfig | None) -> None:
    """How wide the incoming state and the embeddings are."""
    one = target.hidden_size if target is not None else None
    hidden = contract.value("hidden_size", config)
    plan.embed_width = hidden if one is None or plan.target_hidden != hidden else one
    if one is not None and plan.captured is False and plan.inputs is None:
        plan.fed = one
    elif one is not None and plan.layer_outputs is not None:
        plan.fed = one * len(plan.layer_outputs)


def _graphs(plan: WiringPlan, book: Table, reading: Table, target_class: TargetClass, engine: Engine) -> None:
    """The layers in the CUDA graphs, where this release records them with its default ones, whatever the ids say."""
    affected = book["capture"].get("graph_uses_default", "")
    if not (plan.captured and plan.ids and affected and engine.within(affected)):
        return
    usual = default_inputs(target_class.default or tuple(reading["default"]), plan.depth)
    if usual is not None:
        plan.graph_outputs = arriving(usual, plan.depth, target_class.final)
        plan.notes.append("CUDA graphs of this release are recorded with the default layers, whatever the ids say")
