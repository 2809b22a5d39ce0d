"""The shapes of the three plans; the modules beside this one compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import eq
from types import MappingProxyType
from typing import NamedTuple, overload

from drafcheck.finding import Confidence
from drafcheck.tensor import Entry, Tensor
from drafcheck.tensors import Piece, Tensors


class Parameter(NamedTuple):
    """A parameter that the engine creates.

    ``shape`` is what this version builds from this config. ``formula`` holds one text per dimension,
    such as ``num_heads * head_dim`` (fused parameters: the sum). ``initial`` is what it holds when nothing is
    loaded: ``ones``, ``zeros``, ``random`` (a layer's own initialisation) or ``empty`` (uninitialised memory).
    ``load`` is how it is loaded: ``plain``, ``vocab``, ``qkv``, ``merged``, ``row``, ``column``, ``replicated``,
    ``experts`` or ``experts_row`` (a shard for each projection of each expert, ``3.gate``), ``exact`` (a check of the
    loader's own, whose message ``says`` names), ``copied`` (torch's ``copy_`` alone) or ``joined`` (only once all
    shards are there). ``rows`` names the message where the number of rows alone is looked at first.
    ``shards`` maps the shard names of a fused parameter to their rows, in order.
    """

    name: str
    shape: tuple[int, ...]
    formula: tuple[str, ...]
    initial: str
    load: str
    shards: Mapping[str, int] = MappingProxyType({})
    shard_formulas: Mapping[str, str] = MappingProxyType({})
    spare: bool = False  # built, but the forward pass never uses it
    says: str = ""
    spare_shards: tuple[str, ...] = ()  # shards of a fused parameter that the forward pass never uses
    whole: bool = False  # holds whole numbers
    rows: str = ""
    unsplit: bool = False  # every rank has all of it, however it is loaded
    pads: Mapping[str, int] = MappingProxyType({})  # shards that are filled up to a multiple before they are joined

    def share(self, shards: Sequence[str]) -> float:
        """The part of a fused parameter that these shards make up."""
        total = sum(self.shards.values())  # below zero where no size is known, each of them being -1
        return sum(self.shards.get(shard, 0) for shard in shards) / total if total else 0.0


class Parameters(dict[str, Parameter]):
    """The parameters of a class by name."""

    @cached_property
    def modules(self) -> frozenset[str]:
        """The names of everything that holds a parameter: ``model``, ``model.layers`` and so on."""
        parts = [name.split(".")[:-1] for name in self]
        return frozenset(".".join(part[: n + 1]) for part in parts for n in range(len(part)))


class Write(NamedTuple):
    """A tensor that reaches a parameter. ``shard`` is the part of a fused parameter, or None.

    ``cut`` is the number of rows or columns of the tensor that the loader throws away without a word, ``short`` the
    number that it fills with zeros, ``bare`` the number that stay as they were; ``repeated``: one column is copied into
    all.
    """

    tensor: Tensor
    parameter: str
    shard: str | None = None
    cut: int = 0
    short: int = 0
    repeated: bool = False
    bare: int = 0


UNKNOWN = "unknown"
"""Why most tensors are dropped that are: there is no parameter of that name."""


class Drop(NamedTuple):
    """A tensor that changes nothing. ``why``: ``design`` (t2d, rotary buffers), ``tied``, ``alone`` (its counterpart is
    missing), ``unknown`` (no parameter of that name), ``no-slot`` (a bias without a parameter) or ``target`` (a tensor
    of the target, in whose checkpoint the head lies).
    """

    tensor: Tensor
    why: str
    zero: bool | None = None  # whether all its bytes are zero; None: not looked at


class Drops(Sequence[Drop]):
    """Drops in the order in which the loader meets the tensors: one by one, or a piece of tensors without a parameter.

    What is said of the tensors of a piece is made when it is asked for: there may be a million.
    """

    __slots__ = ("_length", "_parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        """None so far."""
        self._parts: list[list[Drop] | Piece] = []
        self._length = 0

    def append(self, drop: Drop) -> None:
        """Add one."""
        if not self._parts or isinstance(self._parts[-1], Piece):
            self._parts.append([])
        self._parts[-1].append(drop)  # type: ignore[arg-type]
        self._length += 1

    def extend(self, drops: Iterable[Drop]) -> None:
        """Add some."""
        for drop in drops:
            self.append(drop)

    def add(self, piece: Piece) -> None:
        """Add all tensors of a piece, each of which is ``unknown``."""
        self._parts.append(piece)
        self._length += len(piece.tensors)

    def __iter__(self) -> Iterator[Drop]:
        """One after the other."""
        for part in self._parts:
            if isinstance(part, Piece):
                yield from (Drop(tensor, UNKNOWN) for tensor in part.tensors)
            else:
                yield from part

    def __len__(self) -> int:
        """How many."""
        return self._length

    @overload
    def __getitem__(self, at: int) -> Drop: ...
    @overload
    def __getitem__(self, at: slice) -> list[Drop]: ...
    def __getitem__(self, at: int | slice) -> Drop | list[Drop]:
        """One of them, or some in a list. Raises IndexError."""
        return list(self)[at]

    def __eq__(self, other: object) -> bool:
        """Whether the other is a sequence of the same drops, of whatever type."""
        return isinstance(other, Sequence) and len(other) == self._length and all(map(eq, self, other))

    def __repr__(self) -> str:
        """As a list."""
        return f"Drops({list(self)})"

    @property
    def names(self) -> Iterator[str]:
        """What the tensors are called."""
        parts = self._parts
        return chain.from_iterable(p.names if isinstance(p, Piece) else (d.tensor.name for d in p) for p in parts)

    def because(self, why: str) -> list[Drop]:
        """Those of one reason."""
        if why == UNKNOWN:
            return [drop for drop in self if drop.why == why]
        return [drop for part in self._parts if not isinstance(part, Piece) for drop in part if drop.why == why]


class Partial(NamedTuple):
    """A fused parameter of which some shards are never written. ``fraction`` is the unwritten share."""

    parameter: str
    missing: tuple[str, ...]
    fraction: float


class Refusal(NamedTuple):
    """The engine stops. ``stage``: ``config``, ``class``, ``construct``, ``files`` or ``load``.

    ``error`` quotes the shape of the engine's message. ``cause`` is a short machine word that checks
    use to decide whose finding it is: ``model-type``, ``architecture``, ``layers``, ``config-key``,
    ``no-files``, ``entry`` (what is no tensor), ``missing-shard``, ``name``, ``shape``, ``kind`` (what no
    parameter can be copied from), ``missing`` (tensors that the loader insists on),
    ``unfilled`` (and it insists on all). ``read``: nobody saw the release refuse it; it stands in its source.
    """

    stage: str
    error: str
    cause: str
    tensor: Tensor | None = None
    parameter: str | None = None
    key: str | None = None
    read: bool = False


class Lost:
    """Refusals in the order of their tensors: one by one, or a piece of tensors all of whose names are refused.

    What is said to the names of a piece is worked out when it is asked for: there may be a million.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        """None so far."""
        self._parts: list[Refusal | tuple[Piece, Callable[[Tensor], Refusal]]] = []

    def append(self, refusal: Refusal) -> None:
        """Add one."""
        self._parts.append(refusal)

    def add(self, piece: Piece, say: Callable[[Tensor], Refusal]) -> None:
        """Add the tensors of a piece; ``say`` is what is said to the name of one of them."""
        self._parts.append((piece, say))

    def __iter__(self) -> Iterator[Refusal]:
        """One after the other, each worked out."""
        for part in self._parts:
            if isinstance(part, Refusal):
                yield part
            else:
                yield from map(part[1], part[0].tensors)

    def because(self, cause: str) -> Iterator[Refusal]:
        """Those of one cause."""
        refusals = self if cause == "name" else (part for part in self._parts if isinstance(part, Refusal))
        return (refusal for refusal in refusals if refusal.cause == cause)

    def tensors(self, cause: str = "") -> Iterator[Tensor]:
        """The tensors of the refusals of one cause, or of all."""
        for part in self._parts:
            if not isinstance(part, Refusal):
                yield from part[0].tensors if cause in ("", "name") else ()
            elif part.tensor is not None and cause in ("", part.cause):
                yield part.tensor


MAPPING = "d2t"
"""The place of a stopper that is taken for the mapping."""


class Stopper(NamedTuple):
    """An entry of a pickle that is no tensor, at which the loader stops; ``place``: the parameter that it was to fill.

    ``place`` is "" for one that leads nowhere, and MAPPING for one that is taken for d2t.
    """

    entry: Entry
    error: str
    place: str = ""


class Layer(NamedTuple):
    """A layer that a quantisation may pack. ``state``: ``built`` quantised, ``left`` plain, or ``either``: it depends.

    ``packed``: whether the file holds quantised parts of it; ``shards`` are those that are, ``plain`` those that are
    not (an empty name is the whole of it), ``missing`` the parts that a packed shard lacks, with the shard.
    """

    name: str
    state: str
    packed: bool
    shards: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class LoadPlan:
    """What the loader does with every tensor, and who fills every parameter."""

    contract: str
    parameters: Parameters = field(default_factory=Parameters)
    writes: list[Write] = field(default_factory=list)
    dropped: Drops = field(default_factory=Drops)
    unwritten: list[str] = field(default_factory=list)
    partial: list[Partial] = field(default_factory=list)
    refused: Refusal | None = None
    fills_from_target: list[str] = field(default_factory=list)
    mappings: list[Tensor] = field(default_factory=list)  # every tensor read as d2t; the last one counts
    mapping_semantics: str = "offset"
    collisions: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # two names for one place, other contents
    unread: Tensors = field(default_factory=Tensors)  # not reached: the loader stopped before
    nameless: Tensors = field(default_factory=Tensors)  # no parameter of that name, reached or not
    seen: Tensors = field(default_factory=Tensors)  # every tensor of the files that the loader reads
    waiting: dict[str, list[Tensor]] = field(default_factory=dict)  # parameter -> tensors whose counterpart never came
    layers: list[Layer] = field(default_factory=list)  # those that the config's quantisation is about
    lost: Lost = field(default_factory=Lost)  # every refusal, were the first one mended
    stoppers: list[Stopper] = field(default_factory=list)  # what is no tensor, and stops the load
    plain: Parameters | None = None  # those that parts of quantised layers stand for, with their sizes; None without

    @property
    def vacant(self) -> set[str]:
        """The parameters that no tensor reaches, whoever fills them."""
        return set(self.parameters) - {w.parameter for w in self.writes}

    @property
    def wants(self) -> bool:
        """Whether the loader, which asks for every parameter, stops because nothing fills one."""
        return self.refused is not None and self.refused.cause == "unfilled"

    def stops_in_place_of(self, place: str) -> bool:
        """Whether something that is no tensor lies under the name of a parameter, or of the mapping."""
        return any(stopper.place == place for stopper in self.stoppers)

    @property
    def mapping(self) -> Tensor | None:
        """The tensor read as d2t: of several, the last one."""
        return self.mappings[-1] if self.mappings else None

    @property
    def has_gaps(self) -> bool:
        """Whether a parameter that the forward pass uses is unwritten, all of it or a part."""
        unwritten = any(not self.parameters[name].spare for name in self.unwritten)
        return unwritten or any(self.lacking(partial) for partial in self.partial)

    def lacking(self, partial: Partial) -> tuple[str, ...]:
        """The shards of a fused parameter that are missed: never written, and used."""
        spare = self.parameters[partial.parameter].spare_shards
        return tuple(shard for shard in partial.missing if shard not in spare)

    def writes_to(self, parameter: str) -> list[Write]:
        """The writes that reach ``parameter``, in file order."""
        return [w for w in self.writes if w.parameter == parameter]


@dataclass(slots=True)
class WiringPlan:
    """What the target hands to the drafter.

    ``captured`` is None when it cannot be known (no target given). ``layer_outputs`` are 0-based: k is
    the output of target layer k; None when unknown. ``fc_in`` is the width of fc's input that this
    version builds, ``fed`` the width that really arrives (both in elements).
    """

    states: str = "aux"  # which states the class is fed: aux, last or layers
    captured: bool | None = None
    why_not: str | None = None  # when captured is False: one clause, lower case
    inputs: tuple[int, ...] | None = None  # the engine's own list: k is the state that enters layer k
    layer_outputs: tuple[int, ...] | None = None
    error: str | None = None  # what the engine stops with when it picks the layers
    graph_outputs: tuple[int, ...] | None = None  # those in CUDA graphs, where a release records them with others
    source: str = "default"  # "default" or the dotted config key the ids come from
    ids: tuple[int, ...] | None = None  # as written in the config
    plus: int = 0  # what the engine adds to each of them, because of the key that they stand under
    runner: str = ""  # the model runner that serves, where the engine has several
    bad_ids: str | None = None  # the JSON type of what stands in their place, when the engine can not take it
    depth: int | None = None  # num_hidden_layers of the target
    embed_width: int | None = None  # width of the embeddings that the width test compares with
    num_aux: int | None = None  # how many states this version sizes fc for
    target_hidden: int | None = None  # the width this version assumes for one state
    fc_in: int | None = None
    fed: int | None = None
    fc_applied: bool | None = None  # False: the width test skips fc
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class VocabularyPlan:
    """Which target token each draft id becomes.

    ``raw`` are the values of d2t as stored, ``targets`` the token that this engine computes for each
    draft id (None: no d2t, or not readable). ``t2d`` holds one byte a target token, 1 where kept.
    ``certainty`` says how sure ``meant`` is; ``unreadable`` why ``raw`` or ``t2d`` is missing although the
    tensor is there. ``unread`` has, for each of d2t, t2d and lm_head, why its values could not be had.
    ``vocab`` is the best known size of the target's vocabulary, in tokens: the target's own, else the draft config's,
    else t2d's length (``vocab_source``: ``target``, ``config``, ``t2d`` or ``none``).
    """

    raw: Sequence[int] | None = None
    targets: Sequence[int] | None = None
    t2d: bytes | None = None
    d2t_tensor: Tensor | None = None
    t2d_tensor: Tensor | None = None
    semantics: str = "none"  # how the *engine* reads d2t: none, offset, absolute
    casts: bool = False  # whether it casts any dtype to int64
    meant: str | None = None  # how the values were meant: offset, absolute, identity, inverse, flags; None: cannot tell
    head_rows: int | None = None  # rows of lm_head in the file
    draft_vocab: int | None = None  # what the config says
    target_vocab: int | None = None
    head_from_target: bool = False
    tied: bool = False
    certainty: Confidence = Confidence.CERTAIN
    unreadable: str | None = None
    unread: dict[str, str] = field(default_factory=dict)
    head_tensor: Tensor | None = None
    vocab: int | None = None
    vocab_source: str = "none"
