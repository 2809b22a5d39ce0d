"""Contracts of one's own: a folder laid out as rules/ is checked whole before it is put before the built-in book."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drafcheck.contract import contract_files, engines, extended, load_toml, releases, rules_folder
from drafcheck.contract_models import ContractBook, ContractPart, EngineBook
from drafcheck.contract_strays import Stray, twice
from drafcheck.contract_tables import PARTS, contract_table
from drafcheck.contract_words import is_range
from drafcheck.errors import UsageError
from drafcheck.place import LocalPlace
from drafcheck.producer_models import ProducerBook
from drafcheck.selection import suggestion
from drafcheck.settings_model import complaint
from drafcheck.tomlpos import Route, line_of, parse, read_text, shown

ENGINE_FILE = "engine.toml"
PRODUCERS_FILE = "producers.toml"


def checked(folders: Sequence[str | Path]) -> tuple[Path, ...]:
    """The folders, absolute. Raises UsageError, with file, line and key, for one that can not be used."""
    paths = tuple(Path(folder).absolute() for folder in folders)
    for path in paths:
        for file in files_in(path):
            _check_file(path, file)
    with extended(paths, anew=True):
        for path in paths:
            for engine in sorted({file.relative_to(path).parts[0] for file in files_in(path) if file.parent != path}):
                _check_engine(path, engine)
    return paths


def files_in(folder: Path) -> list[Path]:
    """The files of a folder of contracts. Raises UsageError when it is no folder, or holds none."""
    if not folder.is_dir():
        raise UsageError(f"no folder of contracts: {shown(folder)}")
    if LocalPlace(folder).names() is None:
        raise UsageError(f"{shown(folder)}: the folder may not be read")
    files = sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml"), *folder.glob(f"*/{PARTS}/*.toml")])
    if not files:
        raise UsageError(f"{shown(folder)} holds no contracts: <engine>/{ENGINE_FILE} is wanted (see rules/README.md)")
    return files


def _check_file(folder: Path, file: Path) -> None:
    text = read_text(file)
    table = parse(file, text)
    if file.name == ENGINE_FILE and file.parent != folder:
        _hold_against(EngineBook, file, text, table)
    elif file.parent.name == PARTS or "extends" in table:
        _refuse_strays(twice(_hold_against(ContractPart, file, text, table).param), file, text)
    elif file.name == PRODUCERS_FILE and file.parent == folder:
        _hold_against(ProducerBook, file, text, table)
    elif "architectures" in table or not _built_in(file, folder):
        book = _hold_against(ContractBook, file, text, table)
        stray = book.stray()
        _refuse_strays([stray] if stray is not None else twice(book.param), file, text)
    else:
        _compare(file, text, table, _built_in(file, folder))


def _refuse_strays(found: Iterable[Stray], file: Path, text: str) -> None:
    for stray in found:
        raise _wrong(file, text, *stray)


def _hold_against(model: type[Any], file: Path, text: str, table: dict[str, Any]) -> Any:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise _wrong(file, text, *complaint(error, model)) from None


def _built_in(file: Path, folder: Path) -> dict[str, Any]:
    """What the built-in files of that name hold at the top; a name that none of them has gives nothing."""
    parts = file.relative_to(folder).parts
    pattern = parts[-1] if len(parts) == 1 else f"*/{parts[-1]}"
    names = [path.relative_to(rules_folder()).parts for path in sorted(rules_folder().glob(pattern))]
    books = [load_toml(*name) for name in names]
    return {key: value for book in books if "architectures" not in book for key, value in book.items()}


def _compare(file: Path, text: str, table: dict[str, Any], like: dict[str, Any]) -> None:
    """Facts other than contracts: the keys at the top are those of the built-in file, and so are their types."""
    for key, value in table.items():
        if key not in like:
            raise _wrong(file, text, f"unknown key {key!r}{suggestion(key, like)}", (key,))
        if type(value) is not type(like[key]):
            raise _wrong(file, text, f"{key} should be {_WORDS.get(type(like[key]), 'of another type')}", (key,))
    for route, versions in _ranges(table, ()):
        try:
            is_range(versions)
        except AttributeError:
            raise _wrong(file, text, f"not a version range: {versions!r}", route) from None
        except ValueError as error:
            raise _wrong(file, text, str(error), route) from None


_WORDS = {dict: "a table", list: "a list", str: "a string", int: "an integer", bool: "true or false"}


def _ranges(value: Any, route: Route) -> Iterator[tuple[Route, Any]]:
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, inner in items:
        if key == "versions":
            yield (*route, key), inner
        else:
            yield from _ranges(inner, (*route, key))


def _check_engine(folder: Path, engine: str) -> None:
    """What only shows with the built-in book behind the folder: releases, and files that nothing leads to."""
    file = folder / engine / ENGINE_FILE
    if engine not in engines():
        raise UsageError(f"{shown(file)} is missing: {engine} is no engine that drafcheck knows")
    if not releases(engine):
        raise UsageError(f"{shown(file)}: releases should list one version or more")
    if not load_toml(engine, "loader.toml"):
        raise UsageError(f"{shown(file.with_name('loader.toml'))} is missing: it says which weight files are taken")
    listed = contract_files(engine)
    for stem in listed:
        if not load_toml(engine, f"{stem}.toml"):
            text = read_text(file)
            raise _wrong(file, text, f"contracts names {stem!r}, and there is no {stem}.toml", ("contracts",))
    for own in sorted((folder / engine).glob("*.toml")):
        table = load_toml(engine, own.name)
        if "architectures" in table and own.stem not in listed:
            raise UsageError(f'{shown(own)} is never read: add "{own.stem}" to contracts in {shown(file)}')
        if "extends" in table:
            _check_whole(engine, own)


def _check_whole(engine: str, file: Path) -> None:
    """A contract that extends others: what is missing, or leads nowhere, in all of them together."""
    text = read_text(file)
    own = load_toml(engine, file.name)
    try:
        whole = ContractBook.model_validate(contract_table(engine, file.stem))
    except ValidationError as error:  # not one's own entries, which were looked at before
        raise _wrong(file, text, complaint(error, ContractBook)[0], ("extends",)) from None
    except ValueError as error:
        raise _wrong(file, text, str(error), ("extends",)) from None
    stray = whole.stray()
    if stray is not None:
        message, (section, number, *rest) = stray
        mine = isinstance(number, int) and number < len(own.get(str(section), []))
        raise _wrong(file, text, message, (section, number, *rest) if mine else ("extends",))


def _wrong(file: Path, text: str, message: str, route: Route) -> UsageError:
    line = line_of(text, route)
    return UsageError(f"{shown(file)}{f':{line}' if line else ''}: {message}")
