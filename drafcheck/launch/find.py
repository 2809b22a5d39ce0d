"""Where in a file the engine is started: behind whatever wrapper, as one of several commands, or in a container."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from drafcheck.contract import Table, engines, load_toml, of_the_book
from drafcheck.errors import UsageError
from drafcheck.launch.dockerfile import is_dockerfile, read_dockerfile
from drafcheck.launch.manifests import Container, containers
from drafcheck.launch.shell import commands
from drafcheck.launch.words import Command, Word

_TALK = {"echo", "printf", "grep", "pgrep", "pkill", "ps", "kill", "which", "man", "awk", "sed", "logger", "die"}
"""Programs whose arguments are looked at and not run."""

_YAML = re.compile(r"(?m)^(---|apiVersion:|kind:|services:|version:|name:|spec:|run:|x-[\w-]+:)")
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?)(?=$|[-_+.])")
_PACKAGE = re.compile(r"(?:--(?:from|with|spec)=)?([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*(?:==|[<>!~@$]).*")
_PIN = re.compile(r"(?:--\w+=)?[^<>=!~]*(?:={2,3}|~=|@)\s*v?([0-9][\w.+!]*)")
_AT = re.compile(r"@(?:v?\d[\w.+!]*|latest)$")  # the release behind a program's name, as uvx takes it
_INSTALLS = {"install", "add", "run", "uvx", "--from", "--with"}
_TEMPLATE = re.compile(r"\{\{[^{}\n]*\}\}")  # of Jinja, Helm and the like: filled in by somebody else
_DEEPEST = 5


class Start(NamedTuple):
    """One start of an engine. ``image`` is that of its container, if any; ``module``: started as a module of Python."""

    engine: str
    args: tuple[Word, ...]
    line: int
    env: dict[str, str]
    image: str = ""
    module: bool = False


class Found(NamedTuple):
    """Every start in a file, and the release that each engine is pinned to, with what pins it.

    The release is empty where the pin does not tell which.
    """

    starts: tuple[Start, ...]
    pins: dict[str, tuple[str, str]]


@of_the_book
def launchers() -> dict[str, Table]:
    """The engines whose launch is described, each with its launch.toml."""
    books = {name: load_toml(name, "launch.toml") for name in engines()}
    return {name: book for name, book in books.items() if book.get("commands")}


def find(name: str, text: str) -> Found:
    """The starts of engines in a file called ``name``. Raises UsageError for a file that cannot be taken apart."""
    pins: dict[str, tuple[str, str]] = {}
    made: list[Container] = []
    if _is_yaml(name, text):
        made = containers(text, _markers())
    elif is_dockerfile(text):
        built = read_dockerfile(text)
        made = [Container(built.command, built.image)] if built.command is not None else []
        _note_pins(built.steps, pins)
    else:
        text = _continued(name, _TEMPLATE.sub("${TEMPLATE}", text))
        made = [Container(command, "") for command in commands(text)]
    _note_pins((container.command for container in made), pins)
    starts = [start for container in made for start in _starts(container.command, container.image, 0)]
    return Found(tuple(start._replace(args=tuple(map(_open, start.args))) for start in starts), pins)


def _open(word: Word) -> Word:
    """A template counts in single quotes too: it is filled in before any shell reads them."""
    return word._replace(missing=("$TEMPLATE",)) if word.known and "${TEMPLATE}" in word.text else word


def _continued(name: str, text: str) -> str:
    """A script of PowerShell continues lines with a backtick."""
    return re.sub(r"`\r?\n", "\\\\\n", text) if name.lower().endswith(".ps1") else text


def _is_yaml(name: str, text: str) -> bool:
    if name.lower().endswith((".yaml", ".yml", ".json")):
        return True
    first = next((row for row in text.split("\n") if row.strip() and not row.lstrip().startswith("#")), "")
    return bool(_YAML.match(first)) or (first.startswith("{") and '"' in first + text[:200])


@of_the_book
def _markers() -> tuple[str, ...]:
    """Texts that only a start of an engine has."""
    books = launchers().values()
    modules = [module for book in books for module in book["commands"]["modules"]]
    return (*modules, *(" ".join(words) for book in books for words in book["commands"]["programs"]))


def _starts(command: Command, image: str, depth: int) -> Iterator[Start]:
    """The starts in one command: its own, or those of a script that it hands to a shell."""
    words = command.words
    if not words or words[0].text.rpartition("/")[2] in _TALK or depth > _DEEPEST:
        return
    for name, book in launchers().items():
        at = _behind(words, book["commands"])
        if at is not None:
            pinned = image or _image_in(words[: max(at - 2, 0)], name)  # without the program itself
            yield Start(name, words[at:], words[at - 1].line, command.env, pinned, words[at - 1].text != "serve")
            return
    inner = [word for word in words if " " in word.text.strip() and any(m in word.text for m in _markers())]
    for word in inner:
        for found in commands(word.text, command.env, word.line):
            yield from _starts(found, image or _any_image(words), depth + 1)
    if not inner:
        yield from _by_image(command, image)


def _behind(words: tuple[Word, ...], facts: Table) -> int | None:
    """The position after the words that start the engine."""
    for at, word in enumerate(words):
        last = words[at - 1].text if at else ""
        if word.text in facts["modules"] and last == "-m":
            return at + 1
        if any(word.text.endswith(script) for script in facts["scripts"]):
            return at + 1
        if any(word.text == p[1] and _AT.sub("", last.rpartition("/")[2]) == p[0] for p in facts["programs"]):
            return at + 1
    return None


def _by_image(command: Command, image: str) -> Iterator[Start]:
    """Options handed to a container whose image starts the engine by itself."""
    words = command.words
    for name, book in launchers().items():
        if "entrypoint" not in book["commands"]:
            continue
        if _named(image, book["commands"]):
            yield Start(name, words, command.line, command.env, image)
            return
        for at, word in enumerate(words):
            if _named(word.text, book["commands"]) and any(w.text.startswith("-") for w in words[at + 1 :]):
                yield Start(name, words[at + 1 :], word.line, command.env, word.text)
                return


def _named(image: str, facts: Table) -> bool:
    return _split_image(image)[0] in facts["images"]


def _split_image(image: str) -> tuple[str, str]:
    """The last part of an image's name, and its tag."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    return name, tag


def _image_in(words: tuple[Word, ...], engine: str) -> str:
    facts = load_toml(engine, "launch.toml")["commands"]
    return next((word.text for word in words if _may_be_image(word.text) and _named(word.text, facts)), "")


def _may_be_image(text: str) -> bool:
    """Whether it is no path, no volume and no bare name, which is a program's."""
    return bool(set(text) & set("/:@")) and text[0] not in "/.~" and ":/" not in text


def _any_image(words: tuple[Word, ...]) -> str:
    return next((image for name in launchers() if (image := _image_in(words, name))), "")


def is_image_of(image: str, engine: str) -> bool:
    """Whether an image's name says that the engine is in it, so that its tag may be the engine's release."""
    return engine in _split_image(image)[0].lower()


def version_of(image: str) -> str | None:
    """The release in an image's tag, such as 0.5.12 of ``lmsysorg/sglang:v0.5.12-cu126``."""
    found = _VERSION.match(_split_image(image)[1])
    return found[1] if found else None


def _note_pins(steps: Iterable[Command], pins: dict[str, tuple[str, str]], depth: int = 0) -> None:
    """What ``pip install sglang==0.5.9`` and its like say."""
    packages = {str(load_toml(name, "engine.toml").get("package", name)): name for name in launchers()}
    for command in steps:
        for word in command.words if any(w.text.partition("=")[0] in _INSTALLS for w in command.words) else ():
            found, pinned = _PACKAGE.fullmatch(word.text), _PIN.fullmatch(word.text)
            name = packages.get(found[1].lower()) if found is not None else None
            if name is not None:
                pins[name] = (pinned[1] if pinned else "", word.text)
        for word in command.words if depth < _DEEPEST else ():  # scripts that are handed to a shell
            if " " in word.text.strip() and any(name in word.text for name in packages):
                _note_pins(commands(word.text, command.env, word.line), pins, depth + 1)


def refuse_nothing(file: str, *, documents: bool = False) -> UsageError:
    """The error for a file that starts no engine. ``documents``: it has here-documents."""
    looked = ", ".join(f"`{' '.join(p)}`" for book in launchers().values() for p in book["commands"]["programs"])
    unread = "; here-documents are only read where a shell runs them" if documents else ""
    modules = ", ".join(f"`python -m {m}`" for book in launchers().values() for m in book["commands"]["modules"])
    return UsageError(f"{file}: no command that starts an engine: looked for {looked}, {modules}{unread}")
