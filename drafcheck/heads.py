"""What kind of draft head a set of tensors is, told from names and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import Engine, Table, load_toml
from drafcheck.draftmode import class_name, rewriting
from drafcheck.plan.wiring import is_fc
from drafcheck.targets import draft_kind, registered, registered_since
from drafcheck.tensors import Tensors

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

# Endings and parts, not regular expressions: compiling four of them took a hundredth of a whole run.
_ATTENTION = ("q_proj.weight", "q_a_proj.weight", "qkv_proj.weight", "fused_qkv_a_proj_with_mqa.weight")
_OUTPUT = ("o_proj.weight", "down_proj.weight")


class Head(NamedTuple):
    """A kind of draft head: ``kind`` as in rules/heads.toml, ``label`` for messages (``an EAGLE-3 head``)."""

    kind: str
    label: str


class _Traits(NamedTuple):
    tensors: Tensors
    wide: bool | None  # the first layer's attention takes twice the hidden size
    fc: float | None  # input of fc in hidden sizes; 0 without fc, None when it cannot be told

    @property
    def layers(self) -> int:
        """How many decoder layers there are; of each name it takes a look, so only where it is asked for."""
        return len({_depth(t.name) for t in self.tensors if _in_layer(t.name)})


def head_of(tensors: Iterable[Tensor]) -> Head | None:
    """The kind of head that the tensors are; None when they are of no known kind."""
    traits = _traits(Tensors.of(tensors))
    found = next((h for h in load_toml("heads.toml").get("head", []) if _fits(h, traits)), None)
    return Head(found["kind"], found["label"]) if found is not None and traits.tensors else None


def head_in(s: Subject) -> Head | None:
    """The kind of head in the files that the loader takes; told once for all rules."""
    if s.selection is None:
        return None
    if s.heads is None:
        s.heads = (head_of(s.selection.tensors),)
    return s.heads[0]


def told_algorithm(s: Subject, config: DraftConfig) -> str | None:
    """The algorithm that the tensors tell, else the path, of those under which an engine looks for another class.

    Where no rule of the engine makes names of an algorithm, the first that serves such tensors.

    A config that names the class of a language model leaves open which kind of head it is for: it would be wrong to
    hold an EAGLE-1 head against the class for EAGLE-3 because nobody named a method.
    """
    head, book = head_in(s), load_toml(s.engine.name, "registry.toml")
    served = book.get("algorithms", {}).get(head.kind, []) if head is not None else []
    if not book.get("rewrite"):
        return next(iter(served), None)
    if head is not None:
        return next((name for name in served if rewriting(s.engine, name) is not None), None)
    from drafcheck.method import method_of

    found = method_of(s.checkpoint.place.address(""), config, s.engine)
    return found.name if found is not None and rewriting(s.engine, found.name) is not None else None


def label_of(kind: str) -> str:
    """What to call a kind of head in a message; the kind itself when the book has no such kind."""
    return next((str(h["label"]) for h in load_toml("heads.toml").get("head", []) if h["kind"] == kind), kind)


def _traits(tensors: Tensors) -> _Traits:
    outputs, attention, fcs = tensors.holding(*_OUTPUT), tensors.holding(*_ATTENTION), tensors.holding("fc.weight")
    hidden = next((t.shape[0] for t in outputs if t.name.endswith(_OUTPUT) and len(t.shape) == 2), 0)
    first = sorted(
        (t for t in attention if t.name.endswith(_ATTENTION) and len(t.shape) == 2), key=lambda t: _depth(t.name)
    )
    fc = next((t for t in fcs if is_fc(t.name) and len(t.shape) == 2), None)
    return _Traits(
        tensors,
        wide=first[0].shape[1] == 2 * hidden if first and hidden else None,
        fc=0 if fc is None else fc.shape[1] / fc.shape[0] if fc.shape[0] else None,
    )


def _depth(name: str) -> int:
    return _layer_number(name) or 0


def _layer_number(name: str) -> int | None:
    """The number in ``...layers.3.mlp...``, or None; numbers of absurd length are none."""
    _, found, rest = f".{name}".partition(".layers.")
    number, dot, _ = rest.partition(".")
    return int(number) if found and dot and number.isascii() and number.isdigit() and len(number) < 7 else None


def _in_layer(name: str) -> bool:
    dotted = f".{name}"
    return ".midlayer." in dotted or ".layer." in dotted or _layer_number(name) is not None


def _fits(head: Table, traits: _Traits) -> bool:
    return (
        _named(head, traits.tensors)
        and ("wide" not in head or traits.wide is head["wide"])
        and ("fc" not in head or _fc_fits(head["fc"], traits.fc))
        and ("layers" not in head or traits.layers == head["layers"])
        and ("bare" not in head or _bare(head["bare"], traits.tensors))
    )


def _named(head: Table, tensors: Tensors) -> bool:
    has = tensors.has
    wanted = any(map(has, head["any"])) if "any" in head else True
    return wanted and all(map(has, head.get("all", []))) and not any(map(has, head.get("none", [])))


def _fc_fits(wanted: str, fc: float | None) -> bool:
    if wanted == "absent":
        return fc == 0
    return bool(fc) and (wanted == "any" or fc == int(wanted))


def _bare(name: str, tensors: Tensors) -> bool:
    names = (tensor.name for tensor in tensors.holding(name))
    return any(n == name or (n.endswith("." + name) and not _in_layer(n)) for n in names)


def misfit(s: Subject) -> tuple[str, str, Head] | None:
    """The class that this release builds, the kind of head it is for, and the head that the tensors are instead.

    None when the class can hold the tensors, when either is of no known kind, or when there is no draft class.
    """
    if s.config is None or s.selection is None:
        return None
    name, kind = draft_class(s.engine, s.config, s.contract, s.algorithm)
    head = head_in(s)
    if name is None or kind is None or head is None:
        return None
    return (name, kind, head) if head.kind in load_toml("heads.toml")["cannot_hold"].get(kind, []) else None


def draft_class(
    engine: Engine, config: DraftConfig, contract: Contract | None, algorithm: str
) -> tuple[str | None, str | None]:
    """The draft class that this release builds from a config, by its written name, and the kind of head it is for."""
    if contract is not None:
        return contract.architecture, contract.kind
    looked_for = {name: class_name(engine, config, name, algorithm) for name in config.architectures}
    name = next((n for n, found in looked_for.items() if registered(engine, found)), None)
    return name, draft_kind(engine, looked_for[name]) if name is not None else None


def class_for(engine: Engine, head: Head, names: Iterable[str]) -> str | None:
    """The draft class of ``engine`` that takes such a head under these tensor names; None when it has none.

    The release asked for may lack the class: see ``drafcheck.targets.registered``.
    """
    entry = _fitting(engine, head, names)
    return None if entry is None else str(entry["class"])


def taken_since(engine: Engine, head: Head, names: Iterable[str]) -> str | None:
    """The first release that takes such a head in that class; None when no known one does."""
    entry = _fitting(engine, head, names)
    return None if entry is None else entry.get("since") or registered_since(engine, entry["class"])


def nested_for(engine: Engine, head: Head, names: Iterable[str]) -> str | None:
    """The kind of nested config from which alone the class that takes such a head is built; None for another class."""
    entry = _fitting(engine, head, names)
    return None if entry is None else entry.get("nested")


def _fitting(engine: Engine, head: Head, names: Iterable[str]) -> Table | None:
    text = "\n".join(names)
    for entry in load_toml(engine.name, "registry.toml").get("fits", []):
        wanted = all(part in text for part in entry.get("when", []))
        if entry["kind"] == head.kind and wanted and not any(part in text for part in entry.get("unless", [])):
            found: Table = entry
            return found
    return None
