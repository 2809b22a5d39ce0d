"""How each checkpoint of one call is checked: the command line first, then the settings in force for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from drafcheck.address import is_remote
from drafcheck.contract import Engine, extended, resolve_engine
from drafcheck.errors import UsageError
from drafcheck.registry import Rule, load_rules
from drafcheck.selection import choose
from drafcheck.settings import OF_SAFETY, Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from drafcheck.launch.find import Found
    from drafcheck.launch.model import Launch
    from drafcheck.settings import SettingsFile
    from drafcheck.suppress import Ignore

T = TypeVar("T")


@dataclass(slots=True)
class Options:
    """How to check, as the command line says it; None means: work it out."""

    target: str | Path | None = None
    engine: str | None = None  # several separated by commas; all: the newest of each
    algorithm: str | None = None
    dtype: str | None = None
    reference: str | Path | None = None
    select: Collection[str] = ()
    ignore: Collection[str] = ()
    lfs: Literal["error", "config-only"] = "error"  # what weights that are Git LFS pointers lead to
    config: str | Path | None = None  # the settings file; without it one is looked for only when ``search``
    search: bool = False
    fail_on: str | None = None
    tokenizer: str | Path | None = None
    contracts: Collection[str | Path] = ()  # folders with contracts of the user's own
    launch: str | Path | None = None  # the file whose command starts the engine; - for standard input
    tp: int | None = None  # the tensor parallelism of the launch
    runner: str | None = None  # the engine's model runner, where it has several
    values: float | None = None  # the share of the tensors' bytes that is read, 1 for all of them; None: only headers
    target_weights: str | Path | None = None  # the target's folder or address, for its head and embedding
    watched: bool = False  # somebody is looking at standard error: show how far a long reading has come


@dataclass(slots=True)
class Setup:
    """What holds for the checkpoints under one settings file: ``options`` are those of the call, completed by it."""

    options: Options
    engine: Engine
    rules: Mapping[str, Rule]
    chosen: Mapping[str, Rule]
    settings: SettingsFile | None = None
    ignores: tuple[Ignore, ...] = ()
    folders: tuple[Path, ...] = ()
    names_target: bool = False  # the target is that of the settings
    launch: Launch | None = None
    beside: tuple[Engine, ...] = ()  # the other engines of this run
    left_out: tuple[str, ...] | None = None  # rules, by settings in the checkpoint itself; None without such settings

    def each(self) -> list[Setup]:
        """One of its own for every engine that was asked for."""
        asked = (self.engine, *self.beside)
        return [replace(self, engine=e, beside=(*asked[:n], *asked[n + 1 :])) for n, e in enumerate(asked)]


class Session:
    """One call: settings are read once, however many checkpoints they govern."""

    def __init__(self, options: Options) -> None:
        """Raises UsageError when ``options.config`` can not be used."""
        self._options = options
        self._search = Search(options.config, upward=options.search)
        self._made: dict[tuple[Path | None, str, bool], Setup] = {}
        self._launches: dict[str, Found] = {}

    def setup(self, checkpoint: str) -> Setup:
        """How the checkpoint at that path is checked. Raises UsageError for words that mean nothing."""
        found = self._search.find(checkpoint)
        path = found.path if found is not None else None
        if found is not None and found.values.plugins:
            from drafcheck.plugins import refuse_strange

            refuse_strange(found, checkpoint)
        if found is not None and found.values.extend_contracts and not self._options.contracts:
            # A checkpoint could bring the contract that takes whatever is wrong with it.
            found.refuse_own(checkpoint, "extend-contracts", "contracts are not read")
        launch = self._options.launch or (found.values.launch if found is not None else None)
        own = found is not None and found.lies_in(checkpoint)
        key = (path, checkpoint if launch else "", own)  # of several commands, the one for that checkpoint counts
        if key not in self._made:
            self._made[key] = self._make(found, checkpoint)
        return self._made[key]

    def _make(self, found: SettingsFile | None, checkpoint: str) -> Setup:
        if found is None:
            return self._setup(self._options, checkpoint)
        from drafcheck.suppress import ignores

        given = self._options
        made = self._setup(_completed(given, found), checkpoint, found, given)
        if found.lies_in(checkpoint):
            made = _of_the_checkpoint(made, given)
        named = given.target is None and bool(found.values.target)
        return replace(made, settings=found, ignores=ignores(found, dict(made.rules)), names_target=named)

    def _setup(
        self, options: Options, checkpoint: str, found: SettingsFile | None = None, given: Options | None = None
    ) -> Setup:
        """``given`` are the options of the command line alone: the rest is of the settings, which errors then name."""
        rules = load_rules()
        if found is not None and found.values.plugins:
            from drafcheck.plugins import plugin_rules

            rules = {**rules, **plugin_rules(found)}

        def told(key: str, work: Callable[[], T]) -> T:
            try:
                return work()
            except UsageError as error:
                if found is None or getattr(given, key):
                    raise
                raise found.wrong(str(error), key) from None

        folders = _folders(options, found if given is not None and not given.contracts else None)
        launch = None
        with extended(folders):
            if options.launch is not None:
                told("engine", lambda: _refuse_several(options.engine, "a launch line starts one engine"))
                options, launch = told("launch", lambda: self._launched(options, given or options, checkpoint))
            engine, *others = told("engine", lambda: _engines(options.engine))
        told("select", lambda: choose(rules, options.select))
        chosen = told("ignore", lambda: choose(rules, options.select, options.ignore))
        return Setup(options, engine, rules, chosen, folders=folders, launch=launch, beside=tuple(others))

    def _launched(self, options: Options, given: Options, checkpoint: str) -> tuple[Options, Launch]:
        """The options completed by the launch file, which is read once."""
        from drafcheck.launch.options import launched
        from drafcheck.launch.read import read_launch

        file = str(options.launch)
        if file not in self._launches:
            self._launches[file] = read_launch(file)
        return launched(options, given, self._launches[file], checkpoint)


def _of_the_checkpoint(made: Setup, given: Options) -> Setup:
    """What is left of settings that a checkpoint brings along: they may not call it healthy in the caller's name."""
    asked = choose(made.rules, given.select, given.ignore)
    chosen = {code: rule for code, rule in asked.items() if code in made.chosen or code in OF_SAFETY}
    fail_on = "error" if made.options.fail_on == "never" else made.options.fail_on
    options = replace(made.options, fail_on=given.fail_on or fail_on)
    return replace(made, options=options, chosen=chosen, left_out=tuple(c for c in asked if c not in chosen))


def _engines(text: str | None) -> tuple[Engine, ...]:
    if text is None or not ("," in text or text.strip().lower() == "all"):
        return (resolve_engine(text),)
    from drafcheck.several import resolve_engines

    return resolve_engines(text)


def _refuse_several(text: str | None, why: str) -> None:
    if text is not None and len(_engines(text)) > 1:
        raise UsageError(f"{why}: {text} is more than one")


def _folders(options: Options, found: SettingsFile | None) -> tuple[Path, ...]:
    """The folders with contracts of the user's own, checked; ``found`` are the settings that name them, if any."""
    if not options.contracts:
        return ()
    from drafcheck.contract_folders import checked, files_in

    for number, folder in enumerate(options.contracts if found is not None else ()):
        try:
            files_in(Path(folder))
        except UsageError as error:
            assert found is not None
            raise found.wrong(str(error), "extend-contracts", number) from None
    return checked(list(options.contracts))


def _completed(given: Options, found: SettingsFile) -> Options:
    """The options of the command line, and of the settings where it says nothing."""
    values = found.values
    return replace(
        given,
        target=given.target if given.target is not None else _target(found),
        engine=given.engine or values.engine or None,
        algorithm=given.algorithm or values.algorithm or None,
        dtype=given.dtype or values.dtype or None,
        select=given.select or values.select,
        ignore=given.ignore or values.ignore,
        fail_on=given.fail_on or values.fail_on,
        launch=given.launch if given.launch is not None else _launch(found),
        tp=given.tp or values.tp or None,
        contracts=given.contracts or [found.folder / folder for folder in values.extend_contracts],
    )


def _target(found: SettingsFile) -> str | None:
    """The target of the settings, from the folder of their file; an address is left as it is."""
    target = found.values.target
    return str(found.folder / target) if target and not is_remote(target) else target or None


def _launch(found: SettingsFile) -> str | None:
    """The launch file of the settings, from the folder of their file."""
    return str(found.folder / found.values.launch) if found.values.launch else None
