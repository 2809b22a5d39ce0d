"""A nested config.json as a flat one, and back: ``rules/forms.toml`` says what stands where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drafcheck.contract import Table, load_toml
from drafcheck.conversion import as_written
from drafcheck.fitting import fitting_class, fitting_here
from drafcheck.heads import head_in, nested_for
from drafcheck.modeltypes import decoder_of, nested_keys
from drafcheck.plan.ids import as_ids
from drafcheck.trial import GONE, Changes, Route, changed, tried

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def flattened(s: Subject) -> Changes | None:
    """The changes that make the config a flat one for the class that fits the tensors.

    None where this release has no such class, or one with another decoder layer, or where it would still not build one
    from that config, or not of the size that the tensors have.
    """
    name, nested = fitting_here(s), load_toml("forms.toml")["nested"]
    body = s.written.data.get(nested["body"]) if s.written is not None else None
    if name is None or s.written is None or not isinstance(body, dict):
        return None
    form, model_type = _form(s, s.written.data.get(nested["kind"])), decoder_of(s.engine, name)
    changes = _moved(s, form, _raised(s, nested, body)) if form is not None else None
    if changes is None or model_type is None or body.get("model_type", model_type) != model_type:
        return None
    changes |= {("architectures",): [name], ("model_type",): model_type}
    trial = tried(s, changes)
    if trial is None or trial.refused is not None or trial.load is None or nested_keys(s.engine, trial.config):
        return None
    stopped = trial.load.refused
    return changes if stopped is None or stopped.cause == "name" else None


def nested_anew(s: Subject) -> Changes | None:
    """The changes that make a flat config a nested one, where the class that fits is built from such a one alone.

    None where a key is missing without which the release does not read it.
    """
    head, name = head_in(s), fitting_class(s)
    if head is None or name is None or s.selection is None or s.written is None:
        return None
    kind = nested_for(s.engine, head, (t.name for t in s.selection.tensors))
    known = as_written(s.engine, kind) if kind is not None else None
    if known is None or known[0]["body"] in s.written.data:
        return None
    changes = _lowered(s.written.data, *known) | {
        (known[0]["kind"],): kind,
        (known[0]["marker"],): s.written.data.get(known[0]["marker"], {"algorithm": kind}),
        ("architectures",): [name],
    }
    trial = tried(s, changes)
    return changes if trial is not None and trial.refused is None and trial.load is not None else None


def _lowered(flat: dict[str, Any], format_: Table, rule: Table) -> dict[Route, Any]:
    """The keys that the release looks for in the nested table moved there; those of the top level under their names."""
    taken = (rule.get(how, []) for how in ("take", "take_if_given", "take_if_true", "defaults"))
    above = {key for keys in taken for key in keys}
    above |= {*rule.get("renamed", {}).values(), *rule.get("less_one", {}).values(), *rule.get("placed", {}).values()}
    above |= {"architectures", *load_toml("forms.toml")["nested"]["kept"]}
    moved = {key: value for key, value in flat.items() if key not in above and key not in rule.get("renamed", {})}
    changes: dict[Route, Any] = {(key,): GONE for key in (*moved, *rule.get("renamed", {})) if key in flat}
    changes |= {(old,): flat[new] for new, old in rule.get("renamed", {}).items() if new in flat and old not in flat}
    return changes | {(format_["body"],): moved}


def named_anew(s: Subject) -> Changes | None:
    """The class that fits the tensors, and the keys that it reads where another exporter's class has them elsewhere."""
    name, form = fitting_here(s), _form(s, None)
    if name is None or s.written is None:
        return None
    changes: dict[Route, Any] = {("architectures",): [name]}
    for key, place in (form or {}).get("again", {}).items():
        value = s.written.get(*place.split("."))
        if value is not None and s.written.data.get(key) is None:
            changes[key,] = value
    for place, meant in (form or {}).get("implied", {}).items():
        if s.written.get(*place.split(".")) is True:
            changes |= {(key,): value for key, value in meant.items() if s.written.data.get(key) is None}
    return changes


def _form(s: Subject, named: object) -> Table | None:
    """How the kind of head that the tensors are is written flat; None where the config names another kind."""
    head = head_in(s)
    forms = load_toml("forms.toml").get("flat", [])
    return next((f for f in forms if head and f["kind"] == head.kind and named in (None, f["named"])), None)


def _raised(s: Subject, nested: Table, body: dict[str, Any]) -> dict[Route, Any]:
    """The table's keys at the top level, where nothing else stands under their names."""
    assert s.written is not None
    said = {key for key, value in s.written.data.items() if value is not None and key not in nested["own"]}
    changes: dict[Route, Any] = {(key,): GONE for key in s.written.data if key in nested["own"]}
    changes |= {(key,): GONE for key, value in s.written.data.items() if value is None and key not in body}
    changes |= {(key,): value for key, value in body.items() if key not in said}
    return changes


def _moved(s: Subject, form: Table, changes: dict[Route, Any]) -> dict[Route, Any] | None:
    """The keys of the format itself where flat configs have them; None for layer ids that number nothing."""
    assert s.written is not None
    for place, key in form.get("copied", {}).items():
        if s.written.data.get(key) is not None:
            changes[tuple(place.split("."))] = s.written.data[key]
    for place, key in form.get("less_one", {}).items():
        ids = as_ids(s.written.data.get(key))
        if ids is None:
            continue
        if min(ids, default=0) < 1:
            return None
        changes[tuple(place.split("."))] = [i - 1 for i in ids]
        changes[key,] = GONE
    for key, size in form.get("of_target", {}).items():
        count = s.target.integer(*s.target.route, size) if s.target is not None else None
        if count is not None and changed(s.written, changes).data.get(key) is None:
            changes[key,] = count
    return changes
