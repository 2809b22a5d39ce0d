"""From a launch file to what it starts: the one command that is meant for a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from drafcheck.contract import Engine, load_toml, resolve_engine
from drafcheck.errors import UsageError
from drafcheck.launch.arguments import flags_of, take, understood
from drafcheck.launch.find import Found, Start, find, is_image_of, launchers, refuse_nothing, version_of
from drafcheck.launch.model import Launch, Option
from drafcheck.launch.words import Word

STDIN = "-"


def read_launch(file: str | Path) -> Found:
    """Every start of an engine in ``file``, ``-`` for standard input. Nothing is run.

    Raises UsageError when it cannot be read, is too long, or starts no engine.
    """
    name = str(file)
    text = _stdin() if name == STDIN else _text(Path(name))
    shown = "standard input" if name == STDIN else name
    try:
        found = find(name, text)
    except UsageError as error:
        raise UsageError(f"{shown}: {error}") from None
    if not found.starts:
        raise refuse_nothing(shown, documents="<<" in text)
    return found


def _text(path: Path) -> str:
    from drafcheck.tomlpos import read_text

    return read_text(path)


def _stdin() -> str:
    from drafcheck.tomlpos import LIMIT

    if sys.stdin is None:
        raise UsageError("can not read a launch command from standard input: it is closed")
    raw = sys.stdin.buffer.read(LIMIT + 1)
    if len(raw) > LIMIT:
        raise UsageError(f"standard input is longer than the {LIMIT:,} bytes that are read of a launch file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text (byte {error.start})") from None


def launch_for(file: str, found: Found, checkpoint: str, engine: str | None) -> Launch:
    """The command whose draft is ``checkpoint``, else the first that drafts, else the first.

    ``engine`` is what the user asks for, such as ``sglang==0.5.9``: its options are taken apart by that release.
    """
    made = [_understood(file, start, found, engine) for start in found.starts]
    for number, launch in enumerate(made, 1):
        launch.number, launch.count = number, len(made)
    asked = (engine or "").partition("==")[0].strip().lower()
    return min(made, key=lambda launch: _rank(launch, checkpoint, asked))


def _rank(launch: Launch, checkpoint: str, asked: str) -> tuple[bool, bool, bool]:
    """How far a command is from what is meant: another engine, another draft, none at all."""
    return bool(asked) and launch.engine != asked, _misses(launch, checkpoint), not launch.speculates


def _misses(launch: Launch, checkpoint: str) -> bool:
    from drafcheck.launch.drafts import compare

    draft = launch.said.get("draft")
    return draft is None or compare(draft, checkpoint) != "same"


def _understood(file: str, start: Start, found: Found, engine: str | None) -> Launch:
    book = launchers()[start.engine]
    version, origin = _version(start, found)
    if version is None and _asks_release(start.engine, engine):
        origin = ""
    release = release_of(start.engine, version, engine)
    flags = flags_of(start.engine, str(release.known))
    taken = take(start.args, flags, underscores=bool(book.get("parser", {}).get("underscores")))
    launch = Launch(file, start.line, start.engine, version, origin, taken.options, taken.strays, env=start.env)
    launch.options = [o._replace(fault="") if _is_open(o) else o for o in launch.options]
    _cut_off(launch)
    positional = book.get("parser", {}).get("positional")
    understood(launch, book)
    if not start.module and positional is not None and release.within(positional):
        _positional(launch, start.args)
    unresolved = [*launch.strays, *(word for option in launch.options for word in option.values)]
    unresolved += [Word(o.written, o.line, (o.written,)) for o in launch.options if _is_open(o)]
    names = [*launch.missing, *(name for word in unresolved for name in word.missing)]
    launch.missing = tuple(dict.fromkeys(names))
    many = [w for o in launch.options if flags.get(o.name) in ("many", "maybe") or o.fault for w in o.values]
    launch.open_ended |= any(word.loose for word in many) or any(not word.known for word in launch.strays)
    launch.open_ended |= any(_is_open(option) for option in launch.options)
    launch.strays = [word for word in launch.strays if word.known]
    return launch


def _is_open(option: Option) -> bool:
    """Whether the name itself has a part that is not known."""
    return bool({"$", "`"} & set(option.written))


def _cut_off(launch: Launch) -> None:
    """Take out arguments of one blank: what a backslash leaves that has a blank behind it instead of the line's end."""
    words = [*launch.strays, *(word for option in launch.options for word in option.values)]
    launch.cut = tuple(word.line for word in words if word.text in (" ", "\t"))
    launch.strays = [word for word in launch.strays if word.text not in (" ", "\t")]


def _positional(launch: Launch, args: Sequence[Word]) -> None:
    """The model may be an argument of its own; what is not known need not be it, unless it comes first."""
    first = launch.strays[0] if launch.strays and "target" not in launch.given else None
    if first is None or (first.loose and first != args[0]):
        return
    launch.strays = launch.strays[1:]
    if first.known:
        launch.said["target"] = first.text
    else:
        launch.missing = first.missing


def _version(start: Start, found: Found) -> tuple[str | None, str]:
    """The release that the file pins, and what says so; None with what says that there is one, and not which."""
    about = is_image_of(start.image, start.engine)
    tagged = version_of(start.image) if about else None
    if tagged is not None and _is_version(tagged):
        return tagged, start.image
    version, origin = found.pins.get(start.engine, ("", ""))
    if _is_version(version):
        return version, origin
    return None, origin or (start.image if about or "$" in start.image else "")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def release_of(name: str, version: str | None, asked: str | None) -> Engine:
    """The release that a command is taken apart by: the one asked for, the pinned, the installed or the newest."""
    if _asks_release(name, asked):
        return resolve_engine(asked)
    return resolve_engine(f"{name}=={version}" if version else name)


def _asks_release(name: str, asked: str | None) -> bool:
    """Whether the user names a release of this engine."""
    wanted, _, given = (asked or "").partition("==")
    return wanted.strip().lower() == name and bool(given.strip())


def words_of(launch: Launch) -> Sequence[tuple[str, str]]:
    """Names and values, as ``drafcheck show`` prints them."""
    book = load_toml(launch.engine, "launch.toml")
    nested = book.get("json", {}).get("keys", {})
    order = [*book.get("options", {}), *nested]
    whole = book.get("json", {}).get("option") if launch.given & set(nested) else None
    return [(key, launch.said[key]) for key in dict.fromkeys(["target", *order]) if key in launch.said and key != whole]
