"""The load plan: what the loader of one release does with every tensor, and who fills every parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafcheck.lookup import MISSING, in_question, raw, settled_for
from drafcheck.plan.entries import take_entries
from drafcheck.plan.fit import Fit, fit, join, no_vector, padded, unfit
from drafcheck.plan.many import runs
from drafcheck.plan.model import Drop, LoadPlan, Partial, Refusal, Write
from drafcheck.plan.mtp_names import as_stored
from drafcheck.plan.names import Route, is_unnamed, route, stopped_at_sight
from drafcheck.plan.parameters import build_parameters, refused_config, refused_to_serve, written_out
from drafcheck.source import SourceError
from drafcheck.tensor import Tensor
from drafcheck.tensors import Piece, Tensors
from drafcheck.words import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.files import Selection
    from drafcheck.plan.insisted import Run


BIAS_BYTES = 32768
"""A bias without a parameter is read, to see whether it is all zero, when it is no larger than this."""

TWIN_BYTES = 1 << 24
"""Two tensors for one parameter are compared when they are no larger than this."""


def plan_load(
    config: DraftConfig,
    selection: Selection,
    contract: Contract,
    read: Callable[[Tensor], bytes] | None = None,
    refused: Refusal | None = None,
) -> LoadPlan:
    """Work out what happens to the tensors of ``selection``, in the order in which the engine reads them.

    ``read`` gives the bytes of a tensor; it is only used for small bias tensors that have no parameter. ``refused`` is
    what stopped the release before the class was built: of its plan only the thought remains.

    A refusal ends the load, as it does in the engine: later tensors stand in ``unread``. The plan goes on in
    thought, so that ``lost`` holds every refusal there would be, the first included.
    """
    plan = LoadPlan(contract.name, refused=refused or refused_config(contract, config))
    if plan.refused and (plan.refused.cause == "config-value" or is_unnamed(contract, config)):
        return plan
    plan.parameters = build_parameters(contract, config)
    plan.seen = Tensors.of(selection.tensors)
    _quantise(contract, config, plan)
    plan.fills_from_target = _shared(contract, config, plan)
    plan.refused = plan.refused or selection.refused
    contract = settled_for(contract, plan.seen)
    state = _State(contract, config, plan, selection.stops, read, _strays(contract, plan.seen))
    if (asking := next((entry for entry in contract.required if entry.get("runs")), None)) is not None:
        from drafcheck.plan.insisted import Run  # for these classes alone

        state.run = Run(asking)
    looked = plan.seen if "at_sight" in contract.names else ()
    at_sight = next((t for t in looked if stopped_at_sight(contract.names, t.name) is not None), None)
    if at_sight is not None and plan.refused is None:
        plan.refused = state.refusal(at_sight, route(contract, at_sight.name, plan.parameters), None)
    if plan.refused is None and any("named" in entry for entry in contract.required):
        from drafcheck.plan.insisted import unnamed  # for this class alone

        plan.refused = unnamed(contract, config, plan)
    for part in take_entries(plan, selection, contract):  # before what is no tensor, and behind it
        for piece, end in runs(contract, plan.parameters, part):
            state.take_all(piece, end)
        if plan.stoppers and plan.refused is None:
            plan.refused = Refusal("load", plan.stoppers[0].error, "entry")
    state.settle()
    return plan


def _quantise(contract: Contract, config: DraftConfig, plan: LoadPlan) -> None:
    """Put the parts of quantised layers in the place of plain ones, where the config speaks of a quantisation."""
    if contract.quantised:
        from drafcheck.plan.quantised import quantise  # for these drafts alone

        quantise(contract, config, plan)


def _shared(contract: Contract, config: DraftConfig, plan: LoadPlan) -> list[str]:
    """The parameters that the engine takes from the target: whatever the file holds, or when it holds none."""
    filled = []
    for entry in contract.sharing:
        differ = [contract.value(name, config) for name in entry.get("unless_differ", [])]
        own = "absent" in entry and plan.seen.has(entry["absent"])
        if in_question(contract, entry, config) and not own and len(set(differ)) <= 1:
            filled += [n for n in written_out(contract, entry["parameter"], config) if n in plan.parameters]
    return list(dict.fromkeys(filled))


def _strays(contract: Contract, tensors: Tensors) -> tuple[str, ...]:
    if contract.names.get("loader") != "mtp":
        return ()
    from drafcheck.plan.mtp_names import strays

    return strays(contract, [t.name for t in tensors])


_BY_END = {"design": "design", "elsewhere": "target"}


@dataclass(slots=True)
class _State:
    """A load under way."""

    contract: Contract
    config: DraftConfig
    plan: LoadPlan
    stops: Mapping[Tensor, str]  # those that can not be copied, with what torch says
    read: Callable[[Tensor], bytes] | None
    strays: tuple[str, ...] = ()  # beginnings of names under which a head lies that is not read
    written: dict[str, set[str]] = field(default_factory=dict)
    first: dict[tuple[str, str | None], Tensor] = field(default_factory=dict)
    held: dict[str, dict[str, tuple[Tensor, Route]]] = field(default_factory=dict)
    reached: bool = False  # whether a tensor is the head's own
    run: Run | None = None  # where modules are loaded anew for each run of names

    def take_all(self, piece: Piece, end: str) -> None:
        """One after the other; ``end`` is that of all routes where they have the same one and lead nowhere."""
        stray = end == "elsewhere" and self.strays and any(name.startswith(self.strays) for name in piece.names)
        if not end or self.run is not None or stray:
            for tensor in piece.tensors:
                self.take(tensor)
            return
        if end == "elsewhere":
            if self.plan.refused is not None:
                self.plan.unread.add(piece)
            else:
                self.plan.dropped.extend(Drop(tensor, _BY_END[end]) for tensor in piece.tensors)
            return
        if end == "refused" and self.plan.refused is None:  # the load stops at the first of them
            self.take(piece.tensors[0])
            piece = Piece(piece.tensors[1:])
        self.reached = True
        self.plan.nameless.add(piece)
        if end == "refused":
            self.plan.lost.add(piece, self._refused)
        if self.plan.refused is not None:
            self.plan.unread.add(piece)
        else:
            self.plan.dropped.add(piece)

    def _refused(self, tensor: Tensor) -> Refusal:
        """What is said to the name of a tensor that is refused."""
        refusal = self.refusal(tensor, route(self.contract, tensor.name, self.plan.parameters), None)
        assert refusal is not None
        return refusal

    def take(self, tensor: Tensor) -> None:
        """What the loader does with one tensor."""
        found = route(self.contract, tensor.name, self.plan.parameters)
        if self.run is not None and found.end != "design":
            self._refuse_unless_all(self.run.enters(found.parameter or found.looked_for))
        self.reached = self.reached or found.end != "elsewhere"
        if found.end == "elsewhere" and tensor.name.startswith(self.strays):
            found = self._stray(tensor)
        if found.end in ("unknown", "refused") and self._why(tensor) == "unknown":
            self.plan.nameless.append(tensor)
        if found.shard is not None and self.plan.parameters[found.parameter].load == "joined":
            self._hold(tensor, found)
            return
        fitted = self._fit(tensor, found)
        refusal = self.refusal(tensor, found, fitted)
        if refusal is not None:
            self.plan.lost.append(refusal)
            if self.plan.refused is None and fitted is not None and fitted.before:
                self.written.setdefault(found.parameter, set()).update(fitted.before)
            self.plan.refused = self.plan.refused or refusal
        if self.plan.refused is not None:
            self.plan.unread.append(tensor)
            return
        if found.end == "mapping":
            self._meet(tensor, ("", None))
            self.plan.mappings.append(tensor)
        elif fitted is not None:
            self._write(tensor, found, fitted)
        else:
            self.plan.dropped.append(self._drop(tensor, found))

    def _stray(self, tensor: Tensor) -> Route:
        """A tensor of a head that is not read: what would not be wanted anyway is no loss."""
        unwanted = any(part in tensor.name for part in self.contract.names.get("drop", []))
        return Route("design" if unwanted else "unknown", looked_for=tensor.name)

    def _fit(self, tensor: Tensor, found: Route) -> Fit | None:
        if not found.parameter:
            return None
        shape: Fit | tuple[int, ...] = tensor.shape
        if "relaid" in self.contract.names:
            from drafcheck.plan.relaid import relaid  # for these classes alone

            shape = relaid(self.contract, self.config, tensor)
        if isinstance(shape, Fit):
            return shape
        built = as_stored(self.contract, self.plan.parameters[found.parameter], [tensor])
        return fit(self.contract, built, found.shard, shape)

    def _hold(self, tensor: Tensor, found: Route) -> None:
        """Keep a part until its counterpart comes, then lay them one below the other."""
        if self.plan.refused is not None:
            self.plan.unread.append(tensor)
        shards = self.plan.parameters[found.parameter].shards
        held = self.held.setdefault(found.parameter, {})
        if str(found.shard) in held:
            self._displace(held[str(found.shard)][0], tensor)
        held[str(found.shard)] = (tensor, found)
        if len(held) < len(shards):
            return
        parts = [held[shard] for shard in shards]
        del self.held[found.parameter]
        built = as_stored(self.contract, self.plan.parameters[found.parameter], [part for part, _ in parts])
        fitted = join(self.contract, built, [part.shape for part, _ in parts])
        if fitted.error is not None:
            refusal = Refusal("load", fitted.error, "shape", tensor, found.parameter)
            self.plan.lost.append(refusal)
            if self.plan.refused is not None:
                self._forget(part for part, _ in parts)
            else:
                self.plan.refused = refusal
                self.plan.unread.append(tensor)
                self._forget(part for part, _ in parts)
        elif self.plan.refused is None:
            for part, where in parts:
                self._write(part, where, padded(built, str(where.shard), part.shape))
        else:
            self._forget(part for part, _ in parts)

    def _forget(self, parts: Iterable[Tensor]) -> None:
        """Parts that were read and wait for one that never comes, or does not fit."""
        self.plan.dropped.extend(Drop(part, "alone") for part in parts if part not in self.plan.unread)

    def _displace(self, before: Tensor, tensor: Tensor) -> None:
        """A second tensor for a part that still waits: the first one is forgotten."""
        self._forget([before])
        if self.plan.refused is None and not self._alike(before, tensor):
            self.plan.collisions.append((before, tensor))

    def refusal(self, tensor: Tensor, found: Route, fitted: Fit | None) -> Refusal | None:
        """What the loader says when it stops at this tensor; None when it does not."""
        if found.end == "refused":
            error = found.error.replace("{name}", found.looked_for).replace("{written}", tensor.name)
            if found.shows:
                value = raw(self.config, found.shows)
                error = error.replace("{repr}", repr(None if value is MISSING else value))
            return Refusal("load", error, "name", tensor, found.looked_for)
        if found.end == "mapping" and (refusal := no_vector(self.contract, tensor)) is not None:
            return refusal
        return unfit(tensor, found.parameter, fitted, self.stops.get(tensor)) if fitted is not None else None

    def _write(self, tensor: Tensor, found: Route, fitted: Fit) -> None:
        parameter = self.plan.parameters[found.parameter]
        self.plan.writes.append(Write(tensor, found.parameter, found.shard, *fitted[1:5]))
        self._meet(tensor, (found.parameter, found.shard))
        shards = set(parameter.shards) if found.shard is None else {found.shard}
        self.written.setdefault(found.parameter, set()).update(shards)
        if self.run is not None:
            self.run.written.add(found.parameter)

    def _refuse_unless_all(self, entry: Table | None) -> None:
        """Stop at the end of a run in which not all came that is wanted of one; None: it goes on."""
        missing = self.run.missing(self.plan) if self.run is not None and entry is not None else []
        if missing and entry is not None and self.plan.refused is None:
            self.plan.refused = self._insisted(entry, missing)

    def _insisted(self, entry: Table, missing: list[str]) -> Refusal:
        """What is said of parameters that are missing; of those that the target would fill it comes to no sharing."""
        for name in (name for name in missing if name in self.plan.fills_from_target):
            self.plan.fills_from_target.remove(name)
            self.plan.unwritten.append(name)
        first = missing[0].removeprefix(entry.get("within", ""))
        error = numbered(entry["error"].replace("{first}", first), missing)
        return Refusal("load", error, "unfilled" if entry.get("every") else "missing", parameter=missing[0])

    def _meet(self, tensor: Tensor, place: tuple[str, str | None]) -> None:
        """Note a second name for a place that is written already, unless the two tensors are alike."""
        before = self.first.setdefault(place, tensor)
        if before.name != tensor.name and not self._alike(before, tensor):
            self.plan.collisions.append((before, tensor))

    def _alike(self, a: Tensor, b: Tensor) -> bool:
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        one, other = (self._bytes(t, TWIN_BYTES) for t in (a, b))
        return one is None or other is None or one == other  # what cannot be read is not known to differ

    def _bytes(self, tensor: Tensor, most: int) -> bytes | None:
        """The bytes of a tensor of no more than ``most`` of them; None when they cannot be read."""
        if self.read is None or not 0 <= (tensor.stop - tensor.start or 2 * tensor.numel) <= most:  # of views about
            return None
        try:
            return self.read(tensor)
        except SourceError:
            return None

    def _drop(self, tensor: Tensor, found: Route) -> Drop:
        why = _BY_END.get(found.end) or self._why(tensor)
        return Drop(tensor, why, self._is_zero(tensor) if why == "no-slot" else None)

    def _why(self, tensor: Tensor) -> str:
        if any(part in tensor.name for part in self.contract.names.get("harmless", [])):
            return "design"
        if "lm_head" in tensor.name and self.contract.flag("tied", self.config):
            return "tied"
        return "no-slot" if tensor.name.endswith(".bias") else "unknown"

    def _is_zero(self, tensor: Tensor) -> bool | None:
        data = self._bytes(tensor, BIAS_BYTES)
        return None if data is None else not any(data)

    def settle(self) -> None:
        """Who was never written, who only in part, and what the loader insists on."""
        for name, held in self.held.items():
            self.plan.waiting[name] = [tensor for tensor, _ in held.values() if tensor not in self.plan.unread]
            self.plan.dropped.extend(Drop(tensor, "alone") for tensor in self.plan.waiting[name])
        self._count()
        if "none_read" in self.contract.names and self.plan.refused is None and not self.reached:
            self.plan.refused = Refusal("load", self.contract.names["none_read"], "missing")
        for begin, error in self.contract.names.get("none_of", []):
            if self.plan.refused is None and not any(name.startswith(begin) for name in self.written):
                self.plan.refused = Refusal("load", error, "missing")
        if self.run is not None:
            self._refuse_unless_all(self.run.enters(""))
        for entry in (entry for entry in self.contract.required if not entry.keys() & {"runs", "named"}):
            if self.plan.refused is None and in_question(self.contract, entry, self.config):
                self.plan.refused = self._insists(entry)
        self.plan.refused = self.plan.refused or refused_to_serve(self.contract, self.config)

    def _insists(self, entry: Table) -> Refusal | None:
        """What the loader says once everything is read, where something is missing or one too many."""
        every = bool(entry.get("every"))
        if entry.get("waiting"):
            missing = [name for name, waiting in self.plan.waiting.items() if waiting]
        elif "under" in entry or "having" in entry:
            missing = [name for name in self.plan.unwritten if is_meant(entry, name)]
        elif "within" in entry or entry.get("shared_too"):
            from drafcheck.plan.insisted import insisted_on  # for these classes alone

            missing = insisted_on(entry, self.plan, self.contract.mapping.get("parameter"))
        else:
            bare = list(self.plan.unwritten) if entry.get("unwritten_only") else self._bare()
            if loads := entry.get("loads"):
                bare = [name for name in bare if self.plan.parameters[name].load in loads]
            missing = bare if every else [n for n in entry["parameters"] if n in self.plan.unwritten]
        if missing:
            return self._insisted(entry, missing)
        strays = self._strays_of(entry) if "stray" in entry else {}
        if not strays:
            return None
        error, first = numbered(entry["stray"], list(strays)), next(iter(strays.values()))
        refusal = Refusal("load", error, "name", first, first.name)
        self.plan.lost.append(refusal)
        return refusal

    def _strays_of(self, entry: Table) -> dict[str, Tensor]:
        """The tensors of a part of the class that is counted, by their names there, that have no place in it."""
        strip = self.contract.names.get("strip", [])
        dropped = [drop.tensor for drop in self.plan.dropped]
        bare = {next((t.name[len(p) :] for p in strip if t.name.startswith(p)), t.name): t for t in dropped}
        return {name: tensor for name, tensor in bare.items() if is_meant(entry, name)}

    def _bare(self) -> list[str]:
        """Every parameter that something of the file was to fill and nothing does, or not all of it."""
        mapping = self.contract.mapping.get("parameter")
        asked = [] if self.plan.mappings or mapping in self.plan.fills_from_target else [mapping]
        unmapped = [str(name) for name in asked if name in self.plan.parameters]
        return [*unmapped, *self.plan.unwritten, *(partial.parameter for partial in self.plan.partial)]

    def _count(self) -> None:
        """What becomes of draft ids is the vocabulary plan's matter."""
        mapping = self.contract.mapping.get("parameter")
        for name, parameter in ((n, p) for n, p in self.plan.parameters.items() if n != mapping):
            written = self.written.get(name)
            if written is None:
                if name not in self.plan.fills_from_target:
                    self.plan.unwritten.append(name)
            elif missing := [s for s in parameter.shards if s not in written]:
                self.plan.partial.append(Partial(name, tuple(missing), parameter.share(missing)))


def is_meant(entry: Table, name: str) -> bool:
    """Whether an entry of ``[[required]]`` speaks of this name, by its beginning or by a part of it."""
    return name.startswith(tuple(entry.get("under", ()))) or any(part in name for part in entry.get("having", ()))
