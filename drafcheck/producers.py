"""Who wrote a checkpoint, told from what its exporter leaves in the files: ``rules/producers.toml`` holds the clues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from operator import lt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import InvalidVersion, Version

from drafcheck.contract import Table, holds, load_toml
from drafcheck.finding import Confidence, Location
from drafcheck.lookup import MISSING, raw
from drafcheck.tensors import Tensors

if TYPE_CHECKING:
    from drafcheck.subject import Subject

BOOK = "producers.toml"
BY_TOKEN, BY_FREQUENCY = "by token", "by frequency"
_SURE = (Confidence.GUESS, Confidence.LIKELY, Confidence.CERTAIN)
_LONGEST = 40  # characters of a version, or of a value that is quoted
_NEAR = 2  # a candidate has at least so many points


class Evidence(NamedTuple):
    """One thing that speaks for a producer: ``what`` in words, and where it stands."""

    what: str
    place: Location | None = None


class Producer(NamedTuple):
    """Who wrote the files, and what that writer means by them; see rules/producers.toml.

    ``version`` is as the files say, None when they do not. ``ids_convention``: a layer id k is the ``outputs`` of
    layer k or the ``inputs`` (what enters layer k), None when not known; ``ids_confidence`` takes into account how sure
    the producer is. ``ids_key`` is where it writes them, empty when it never does. ``ids_default`` are the layer inputs
    trained on unless told otherwise, as expressions in n; empty when the files cannot tell. ``lost``: why the layers
    trained on may not stand in the config, a clause. ``norms``: what the norm flags mean. ``draft_ids``: see
    ``order_of_draft_ids``.
    """

    name: str
    version: str | None
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    export: str | None = None
    ids_convention: str | None = None
    ids_key: str = ""
    ids_confidence: Confidence = Confidence.GUESS
    ids_default: tuple[str, ...] = ()
    default_confidence: Confidence = Confidence.GUESS
    lost: str = ""
    norms: Mapping[str, str] = MappingProxyType({})
    draft_ids: str = ""

    def __str__(self) -> str:
        """Such as ``speculators 0.9.0 (Eagle3Converter)``."""
        return " ".join(part for part in (self.name, self.version, f"({self.export})" if self.export else None) if part)


class Told(NamedTuple):
    """The producer, or None with those who come near: ``candidates`` are names, the nearest first."""

    producer: Producer | None
    candidates: tuple[str, ...] = ()


def producer_of(s: Subject) -> Told:
    """Tell who wrote the checkpoint of ``s``; worked out once."""
    if s.told is None:
        s.told = Told(None)  # whoever asks again after a crash gets this
        files = _Files(s)
        s.told = _tell(files)
        files.forget()
    return s.told


def weaker(*sure: Confidence) -> Confidence:
    """The least of several confidences."""
    return min(sure, key=_SURE.index)


def may_leave_theta_out(s: Subject) -> bool:
    """Whether the checkpoint is, or may be, one of a trainer whose configs state no theta: it took the default."""
    told = producer_of(s)
    names = (told.producer.name,) if told.producer is not None else told.candidates
    writers = [entry for entry in load_toml(BOOK).get("producer", []) if entry["name"] in names]
    return any(means.get("theta") == "absent" for entry in writers for means in entry.get("means", []))


def order_of_draft_ids(s: Subject) -> str:
    """How draft ids and tokens go together: ``by token`` (t2d tells d2t), ``by frequency``, or empty: not known.

    By token only where the writer is certain or likely; by frequency where anyone who may be the writer has them so.
    """
    told = producer_of(s)
    names = (told.producer.name,) if told.producer is not None else told.candidates
    writers = [entry for entry in load_toml(BOOK).get("producer", []) if entry["name"] in names]
    if any(entry.get("draft_ids") == BY_FREQUENCY for entry in writers):
        return BY_FREQUENCY
    known = told.producer is not None and told.producer.confidence is not Confidence.GUESS
    return told.producer.draft_ids if told.producer is not None and known else ""


def _tell(files: _Files) -> Told:
    book = load_toml(BOOK)
    if not files.there or not book:
        return Told(None)
    found = [(entry, [c for c in entry["clue"] if files.show(c)]) for entry in book["producer"]]
    ranked = sorted(((sum(c["points"] for c in clues), entry, clues) for entry, clues in found), key=lambda r: -r[0])
    (points, entry, clues), second = ranked[0], ranked[1][0]
    sure = next((level for level in _SURE[::-1] if points >= book["confidence"][level.value]), None)
    if sure is None or points - second < book["confidence"]["lead"]:
        return Told(
            None, tuple(e["name"] for p, e, _ in ranked if p >= max(_NEAR, points - book["confidence"]["lead"]))
        )
    return Told(_producer(files, entry, clues, sure))


def _producer(files: _Files, entry: Table, clues: list[Table], sure: Confidence) -> Producer:
    version = files.text(entry["version"]) if "version" in entry else None
    means: Table = next((m for m in entry.get("means", []) if _holds(m, version) and files.show(m.get("when", {}))), {})
    evidence = {e: None for clue in clues if clue["points"] > 0 for e in files.evidence(clue)}
    return Producer(
        entry["name"],
        version,
        sure,
        tuple(evidence),
        export=means.get("export"),
        ids_convention=means.get("ids"),
        ids_key=means.get("ids_key", ""),
        ids_confidence=weaker(sure, Confidence(means.get("ids_confidence", "certain"))),
        ids_default=tuple(means.get("default", ())),
        default_confidence=weaker(sure, Confidence(means.get("default_confidence", "certain"))),
        lost=means.get("lost", ""),
        norms=means.get("norms", {}),
        draft_ids=str(means.get("draft_ids") or entry.get("draft_ids") or ""),
    )


def _holds(means: Table, version: str | None) -> bool:
    if "versions" not in means:
        return True
    try:
        return version is not None and holds(means["versions"], Version(version))
    except InvalidVersion:
        return False


class _Files:
    """What a clue may ask of a checkpoint; everything that costs something is worked out at the first use."""

    def __init__(self, s: Subject) -> None:
        self._s = s
        self._config = s.checkpoint.config  # as written: an engine may read it as another
        self._tests: dict[str, Callable[[Any], bool]] = {
            "keys": lambda wanted: all(self._value(key) is not MISSING for key in wanted),
            "is": lambda wanted: all(_same(self._value(key), value) for key, value in wanted.items()),
            "without": lambda wanted: all(self._value(key) is MISSING for key in wanted),
            "architectures": lambda wanted: self._config is not None and self._config.architecture in wanted,
            "tensors": lambda wanted: all(map(self._tensors.has, wanted)),
            "no_tensors": lambda wanted: bool(self._tensors) and not any(map(self._tensors.has, wanted)),
            "files": lambda wanted: any(name in self._listed for name in wanted),
            "metadata": lambda wanted: any(key in self._metadata for key in wanted),
            "dtype": lambda wanted: self._dtypes == {wanted},
            "d2t": lambda wanted: wanted == self._order,
        }

    @property
    def there(self) -> bool:
        """Whether there is anything to tell from."""
        return self._config is not None or bool(self._tensors)

    def forget(self) -> None:
        """Let go of the tests, which hold these files and so the text of a million names."""
        self._tests.clear()

    def show(self, clue: Table) -> bool:
        """Whether everything that the clue asks for is there."""
        return all(test(clue[name]) for name, test in self._tests.items() if name in clue)

    def text(self, key: str) -> str | None:
        """The text under a config key; None when it is none, or longer than any version."""
        value = self._value(key)
        return value if isinstance(value, str) and 0 < len(value) <= _LONGEST else None

    def evidence(self, clue: Table) -> Iterator[Evidence]:
        """What was found of a clue that holds, piece by piece."""
        for key in (*clue.get("keys", ()), *clue.get("is", ())):
            value = self._value(key)
            yield Evidence(f"{key} is {value}" if _is_short(value) else key, self._at(key))
        if "architectures" in clue and self._config is not None:
            yield Evidence(f"architectures names {self._config.architecture}", self._at("architectures"))
        for part in clue.get("tensors", ()):
            tensor = self._tensors.holding(part)[0]
            yield Evidence(f"a tensor {tensor.name}", Location(file=tensor.file, tensor=tensor.name))
        for name in clue.get("files", ()):
            if name in self._listed:
                yield Evidence(f"a file {name}", Location(file=name))
        yield from map(Evidence, self._absences(clue))

    def _absences(self, clue: Table) -> Iterator[str]:
        yield from (f"no {key} in config.json" for key in clue.get("without", ()))
        yield from (f"no tensor {part}" for part in clue.get("no_tensors", ()))
        for key in clue.get("metadata", ()):
            if key in self._metadata:
                yield f"metadata of the weights has {key}" if key else "no metadata in the weights"
        if "dtype" in clue:
            yield f"all floats are {clue['dtype']}"
        if "d2t" in clue:
            yield "d2t is not in ascending order"

    def _value(self, key: str) -> Any:
        return raw(self._config, key) if self._config is not None else MISSING

    def _at(self, key: str) -> Location | None:
        return self._config.at(*key.split(".")) if self._config is not None else None

    @cached_property
    def _tensors(self) -> Tensors:
        return self._s.selection.tensors if self._s.selection is not None else Tensors()

    @cached_property
    def _listed(self) -> frozenset[str]:
        there = self._s.checkpoint
        return frozenset((*there.other, *(file.name for file in there.files)))

    @cached_property
    def _metadata(self) -> frozenset[str]:
        """The keys; an empty one when no safetensors file has any."""
        files = self._s.selection.files if self._s.selection is not None else ()
        headers = [file.header for file in files if file.is_safetensors]
        keys = {key for header in headers for key in header.metadata}
        return frozenset(keys or ({""} if headers else ()))

    @cached_property
    def _dtypes(self) -> set[str]:
        return {dtype for piece in self._tensors.pieces for dtype, _ in piece.kinds if "F" in dtype}

    @cached_property
    def _order(self) -> str | None:
        plan = self._s.vocabulary
        if plan is None or plan.raw is None or len(plan.raw) == 0:
            return None
        from drafcheck.plan.vocabulary import to_targets  # loaded by whoever made the plan

        tokens = to_targets(plan.raw, "offset")
        return "sorted" if all(map(lt, tokens, tokens[1:])) else "unsorted"


def _is_short(value: object) -> bool:
    """Whether a value can be quoted; true and false say no more than the key does."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    return -1e15 < value < 1e15 if isinstance(value, (int, float)) else len(value) <= _LONGEST


def _same(value: object, wanted: object) -> bool:
    """Equality that does not take true for 1."""
    return value == wanted and isinstance(value, bool) is isinstance(wanted, bool)
