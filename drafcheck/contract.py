"""The contract book: rules/**/*.toml, which engine release is meant, and what that release requires."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from packaging.version import InvalidVersion, Version

from drafcheck.errors import UsageError
from drafcheck.placeholders import placeholders

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


@functools.cache
def rules_folder() -> Path:
    """Where the contract book lies: inside the package (wheel), or beside it (source tree)."""
    inside = Path(__file__).parent / "rules"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "rules"


_FOLDERS: ContextVar[tuple[Path, ...]] = ContextVar("folders", default=())
"""Folders with contracts of the user's own, which come before the built-in book."""

_cached: list[Callable[[], None]] = []


def of_the_book(work: Callable[P, T]) -> Callable[P, T]:
    """Call ``work``, which reads the contract book, once for the same arguments and the same folders."""

    @functools.cache
    def kept(_: tuple[Path, ...], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return kept(_FOLDERS.get(), *args, **kwargs)  # type: ignore[arg-type]

    _cached.append(kept.cache_clear)
    return call


@contextmanager
def extended(folders: tuple[Path, ...], *, anew: bool = False) -> Iterator[None]:
    """Put folders laid out as rules/ before the built-in book. ``anew``: forget what was read before.

    They are taken as they are: ``drafcheck.contract_folders.checked`` says whether they can be.
    """
    for forget in _cached if anew else []:
        forget()
    token = _FOLDERS.set(folders)
    try:
        yield
    finally:
        _FOLDERS.reset(token)


def is_extended() -> bool:
    """Whether there are contracts of the user's own."""
    return bool(_FOLDERS.get())


@of_the_book
def load_toml(*parts: str) -> Table:
    """The parsed TOML file ``rules/<parts>``; an empty table when the book has no such file.

    A file in a folder of the user's stands for the built-in one of that name; engine.toml adds to it.
    Read once in a process; callers must not change what they get.
    """
    found = (_parsed(folder.joinpath(*parts)) for folder in (*_FOLDERS.get(), rules_folder()))
    tables = [table for table in found if table is not None]
    if parts[-1] == "engine.toml" and len(tables) > 1:
        return functools.reduce(_added, tables)
    return tables[0] if tables else {}


def _parsed(path: Path) -> Table | None:
    try:
        with path.open("rb") as stream:
            table: Table = tomllib.load(stream)
            return table
    except (FileNotFoundError, NotADirectoryError):
        return None


def _added(own: Table, book: Table) -> Table:
    """Lists and tables joined, one's own first; of anything else one's own."""
    lists = {key: [*own.get(key, []), *value] for key, value in book.items() if isinstance(value, list)}
    mine = {key: own.get(key, {}) for key, value in book.items() if isinstance(value, dict)}
    tables = {key: {**first, **book[key], **first} for key, first in mine.items()}
    return {**book, **own, **lists, **tables}


def is_own(*parts: str) -> bool:
    """Whether the file ``rules/<parts>`` stands in a folder of the user's own."""
    return any(folder.joinpath(*parts).is_file() for folder in _FOLDERS.get())


class Engine(NamedTuple):
    """One engine release. ``version`` is as asked for, ``known`` the release whose contract is used.

    ``exact`` is False when the book has no entry for the release asked for.
    """

    name: str
    version: str
    known: Version
    exact: bool
    how: str = "given"  # given, installed or newest

    def within(self, versions: str) -> bool:
        """Whether the release lies in a PEP 440 range such as ``>=0.4.9,<0.5.12``."""
        return holds(versions, self.known)

    def __str__(self) -> str:
        """Such as ``sglang 0.5.9``."""
        return f"{self.name} {self.version}"


_COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, "<": operator.lt}


@functools.lru_cache(maxsize=4096)
def bounds(versions: str) -> tuple[tuple[str, Version], ...]:
    """The parts of a range such as ``>=0.4.9,<0.5.12``; raises ValueError naming the range when it is not one.

    The comparisons of PEP 440 that the book needs, final and post releases only: ``packaging.specifiers`` would cost
    a tenth of a whole run at import.
    """
    return tuple(_bound(part.strip(), versions) for part in versions.split(",") if part.strip())


def _bound(part: str, versions: str) -> tuple[str, Version]:
    sign = next((sign for sign in _COMPARE if part.startswith(sign)), None)
    try:
        return sign or "", Version(part[len(sign) :] if sign else "")
    except InvalidVersion as error:
        raise ValueError(f"not a version range: {versions!r}") from error


def holds(versions: str, version: Version) -> bool:
    """Whether a range such as ``>=0.4.9,<0.5.12`` holds ``version``; an empty range holds every one."""
    return all(_COMPARE[sign](version, bound) for sign, bound in bounds(versions))


def in_force(revisions: list[Table], engine: Engine) -> Table | None:
    """The first revision whose ``versions`` hold the engine's release; no ``versions`` means all."""
    for revision in revisions:
        if engine.within(revision.get("versions", "")):
            return revision
    return None


def engines() -> list[str]:
    """The engines that the book knows, in alphabetical order."""
    folders = (*_FOLDERS.get(), rules_folder())
    return sorted({path.parent.name for folder in folders for path in folder.glob("*/engine.toml")})


@of_the_book
def releases(name: str) -> tuple[Version, ...]:
    """The releases of an engine that the book describes, oldest first."""
    return tuple(sorted({Version(v) for v in load_toml(name, "engine.toml").get("releases", [])}))


def resolve_engine(text: str | None) -> Engine:
    """The engine release meant by ``sglang==0.5.9``, ``sglang`` or None.

    Without a version: the installed one, read from its metadata without importing it, else the newest known.
    A release that the book lacks is read by its nearest predecessor (the oldest one when there is none).
    Raises UsageError for an unknown engine or a version that is none.
    """
    name, _, wanted = (text or str(load_toml("discovery.toml")["default_engine"])).partition("==")
    name = name.strip().lower()
    known = releases(name) if name in engines() else ()
    if not known:
        raise UsageError(f"unknown engine {name!r}: known are {', '.join(engines())}")
    if wanted.strip():
        return _asked_for(name, wanted.strip(), known, "given")
    installed = _installed(load_toml(name, "engine.toml").get("package", name))
    if installed:
        return _asked_for(name, installed, known, "installed")
    return Engine(name, str(known[-1]), known[-1], exact=True, how="newest")


def _asked_for(name: str, wanted: str, known: tuple[Version, ...], how: str) -> Engine:
    try:
        version = Version(wanted)
    except InvalidVersion:
        raise UsageError(f"not a version of {name}: {wanted!r}; write {name}=={known[-1]}") from None
    if version.is_devrelease and version < known[0]:
        return Engine(
            name, str(version), known[-1], exact=False, how=how
        )  # a build from a working tree: 0.0.0.dev1+g...
    base = Version(version.public)  # 0.5.15+cu12 is 0.5.15, built for CUDA 12
    earlier = [v for v in known if v <= base]
    nearest = earlier[-1] if earlier else known[0]
    return Engine(name, str(version), nearest, exact=nearest == base, how=how)


def _installed(package: str) -> str | None:
    # importlib.metadata is slow to import: only wanted when no version was given.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Contract(NamedTuple):
    """What one release requires of one draft class: the entries of ``rules/<engine>/<class>.toml`` in force.

    Of several entries for one quantity, message or placeholder the first counts.

    ``read``: how each quantity is read from config.json; ``messages``: what it says when it refuses. ``flags``,
    ``refuse``, ``params``, ``required``, ``sharing``, ``expand``, ``computed``, ``splits``, ``skips``, ``unknown``: all
    in force.
    ``names``, ``loaders``, ``mapping``: the first. ``skips``: what the loader passes over for some configs;
    ``unknown``: what it says to names that lead nowhere; ``required``: what it insists on.
    """

    name: str  # such as sglang/llama_eagle3
    architecture: str
    algorithms: tuple[str, ...]
    kind: str  # eagle3, eagle1, dflash ...
    states: str  # which of the target's hidden states it is fed: aux, last or layers
    not_described: tuple[str, ...]  # config keys with which the class is built in a way that the book does not know
    summary: str
    read: Table
    defaults: Table
    values: Table
    flags: tuple[Table, ...]
    refuse: tuple[Table, ...]
    names: Table
    skips: tuple[Table, ...]
    unknown: tuple[Table, ...]
    stacked: Table
    loaders: Table
    messages: Table
    mapping: Table
    required: tuple[Table, ...]
    sharing: tuple[Table, ...]
    params: tuple[Table, ...]
    expand: Table
    computed: tuple[Table, ...] = ()  # keys that change what is computed and not what is loaded
    proven: bool = True  # False: read in the engine's source, and its classes were not run
    quantised: Table = {}  # how a quantization_config is read, where that is described  # noqa: RUF012
    engine: Engine | None = None
    splits: tuple[Table, ...] = ()  # what tensor parallelism has to divide
    otherwise: tuple[tuple[str, str], ...] = ()  # flags with which it is built so, each with the key that sets it
    only: tuple[tuple[str, int | str], ...] = ()  # config keys, each with the only value that the book describes

    def undescribed(self, config: DraftConfig, beside: Collection[str] = ()) -> str | None:
        """The config key for which the book has no contract yet; None when the class is built as described.

        ``beside``: the names of other files of the checkpoint.
        """
        from drafcheck.lookup import MISSING, flag, is_integer, raw

        there = [key for key in self.not_described if raw(config, key) not in (MISSING, None, False, 0)]
        if self.quantised:  # it says which of them are described
            from drafcheck.plan.quantised import KEY, undescribed

            there = [*filter(None, [undescribed(self, config, beside)]), *(key for key in there if key != KEY)]
        there += [key for name, key in self.otherwise if flag(self, name, config)]
        key = next(iter(there), None)
        values = ((name, raw(config, name), usual) for name, usual in self.only)
        said = (item for item in values if is_integer(item[1]) or isinstance(item[1], str))
        other = (f"{name} {value}" for name, value, usual in said if value != usual)
        return key or next(other, None) or self._layer_unsaid(config)

    def _layer_unsaid(self, config: DraftConfig) -> str | None:
        """What the config lacks where nothing says which layer the head is; None for a config that is refused."""
        from drafcheck.plan.names import is_unnamed
        from drafcheck.plan.parameters import refused_config

        if not is_unnamed(self, config) or refused_config(self, config) is not None:
            return None
        return f"no usable {self.read[self.names['layer']['count']][0]}"

    def value(self, name: str, config: DraftConfig) -> int | None:
        """The integer that this release gets for ``name`` (hidden_size, num_aux, target_hidden ...).

        None when the config has no usable value and the class has no default.
        """
        from drafcheck.lookup import integer

        return integer(self, name, config)

    def flag(self, name: str, config: DraftConfig) -> bool:
        """Whether this release takes the flag ``name`` for set; False for a flag it does not have."""
        from drafcheck.lookup import flag

        return flag(self, name, config)


def contract_files(engine: str) -> list[str]:
    """The names of the draft class files of an engine, without their ending."""
    facts = load_toml(engine, "engine.toml")
    return list(dict.fromkeys([*map(str, facts.get("contracts", [])), *facts.get("classes", {})]))


def contract_for(engine: Engine, architecture: str | None) -> Contract | None:
    """The contract in force for a draft class of this release, or None when the book has none."""
    from drafcheck.contract_tables import contract_table, files_for

    if architecture is None:
        return None
    for stem in files_for(engine.name, architecture):
        book = contract_table(engine.name, stem)
        if architecture in book.get("architectures", []):
            revision = in_force(book.get("revision", []), engine)
            return _contract(f"{engine.name}/{stem}", architecture, book, revision, engine) if revision else None
    return None


def _contract(name: str, architecture: str, book: Table, revision: Table, engine: Engine) -> Contract:
    def every(section: str) -> tuple[Table, ...]:
        return tuple(entry for entry in book.get(section, []) if engine.within(entry.get("versions", "")))

    def first(section: str) -> Table:
        return in_force(book.get(section, []), engine) or {}

    def merged(section: str) -> Table:
        facts = {key: value for entry in reversed(every(section)) for key, value in entry.items()}
        return {key: value for key, value in facts.items() if key not in ("versions", "source")}

    return Contract(
        name=name,
        architecture=architecture,
        algorithms=tuple(book.get("algorithms", [])),
        kind=str(book.get("kind", "")),
        states=str(book.get("states", "aux")),
        not_described=tuple(book.get("not_described", {}).get("keys", [])),
        summary=str(revision.get("summary", "")),
        read=merged("read"),
        defaults=book.get("defaults", {}),
        values=book.get("values", {}),
        flags=every("flag"),
        refuse=every("refuse"),
        names=first("names"),
        skips=every("skip"),
        unknown=every("unknown"),
        stacked=book.get("stacked", {}),
        loaders=first("loaders"),
        messages=merged("messages"),
        mapping=first("mapping"),
        required=every("required"),
        sharing=every("sharing"),
        params=every("param"),
        expand={key: value for entry in reversed(every("expand")) for key, value in placeholders(entry).items()},
        computed=every("computed"),
        splits=every("split"),
        quantised=first("quantised"),
        engine=engine,
        proven=_is_proven(book.get("proof"), revision),
        only=tuple(book.get("not_described", {}).get("other_than", {}).items()),
        otherwise=tuple(book.get("not_described", {}).get("flags", {}).items()),
    )


def _is_proven(proof: Table | None, revision: Table) -> bool:
    """Whether the real class was run in a release of this era; a contract of the user's own need not say."""
    executed = proof.get("executed", []) if proof is not None else None
    return executed is None or any(holds(revision.get("versions", ""), Version(v)) for v in executed)
