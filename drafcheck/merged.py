"""Configs that hold another one, with whose keys the engine fills up their own: vLLM's EAGLEConfig.

``[[merged]]`` in ``rules/<engine>/formats.toml`` tells which. Unlike what is made of a converted config, the one within
has a class that supplies what it leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drafcheck.config import DraftConfig
from drafcheck.contract import Engine, Table, in_force, load_toml
from drafcheck.conversion import AsRead, ConvertedConfig
from drafcheck.draftmode import draft_mode_name
from drafcheck.modeltypes import knows
from drafcheck.plan.model import Refusal

if TYPE_CHECKING:
    from drafcheck.finding import Location

_OF_THE_BODY = ("architectures", "model_type")


class MergedConfig(ConvertedConfig):
    """The keys of the top level, and for those that it leaves out the ones of the config within."""

    classless = False

    def at(self, *route: str | int) -> Location:
        """Where a key comes from: its classes and model type are those of the config within."""
        if route[:1] and route[0] in _OF_THE_BODY:
            return self.document.at(self.body, *route)
        return super().at(*route)


def form_of(engine: Engine, config: DraftConfig) -> Table | None:
    """How this release reads such a config; None for a config of another form."""
    form = in_force(load_toml(engine.name, "formats.toml").get("merged", []), engine)
    return form if form is not None and config.model_type == form["model_type"] else None


def merge(engine: Engine, form: Table, config: DraftConfig) -> AsRead:
    """The config that the draft class gets to see, or why the engine stops at it."""
    body, kind = config.data.get(form["body"]), config.data.get(form["kind"], form["usual"])
    error = form.get("refused") or _refusal(engine, form, body, kind)
    if error is not None or not isinstance(body, dict):
        return AsRead(config, refused=Refusal("config", str(error), "conversion", key=form["body"]))
    own = {form["body"], form["kind"], *_OF_THE_BODY}
    data = {**body, **{key: value for key, value in config.data.items() if key not in own}}
    data["architectures"] = [draft_mode_name(engine, name, str(kind)) for name in body["architectures"]]
    return AsRead(MergedConfig(config, form["body"], data))


def route_within(form: Table, written: DraftConfig, route: tuple[str, ...]) -> tuple[str, ...]:
    """Where config.json, as it is written, says what the engine reads at ``route``."""
    above = route[0] in written.data and route[0] not in _OF_THE_BODY
    return route if above else (form["body"], *route)


def _refusal(engine: Engine, form: Table, body: Any, kind: Any) -> str | None:
    """What this release says of such a config; None where it takes it."""
    if not isinstance(body, dict):
        return str(form["absent"] if body is None else form["no_table"])
    model_type, named = body.get("model_type"), body.get("architectures")
    if not isinstance(model_type, str):
        return str(form["no_type"])
    if knows(engine, model_type) is False:
        return str(form["unknown_type"]).replace("{name}", f"{model_type:.40}")
    if kind not in form["kinds"]:
        return str(form["unknown"]).replace("{name}", f"{kind!s:.40}")
    listed = isinstance(named, list) and all(isinstance(name, str) for name in named)
    return None if listed else str(form["no_classes"])
