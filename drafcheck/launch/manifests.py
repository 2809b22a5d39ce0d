"""Kubernetes and Compose manifests, and any other YAML with commands in it, read as text alone.

Only the tree of the document is looked at: nothing is constructed from tags, all values are texts, aliases are
followed at most so often as a manifest of people has nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.errors import UsageError
from drafcheck.launch.shell import commands, interpolated
from drafcheck.launch.words import Command, Word

if TYPE_CHECKING:
    import yaml

LONGEST = 512 << 10
"""Bytes of a manifest; more are refused."""

MOST = 50_000
"""Nodes that are looked at, counted anew behind every alias."""

DEEPEST = 60

_ENTRY = ("entrypoint", "command", "args")
"""What a container runs, in the order in which it is put together."""


class Container(NamedTuple):
    """What one container is told to run. ``image`` is empty when none is named."""

    command: Command
    image: str


def containers(text: str, markers: tuple[str, ...]) -> list[Container]:
    """The containers of a manifest, and scripts in other texts that hold one of ``markers``.

    Raises UsageError for what is no YAML, or too much of it.
    """
    if len(text) > LONGEST:
        raise UsageError(f"longer than the {LONGEST:,} bytes that are read of a manifest")
    return [*_Reader(markers).read(_documents(text))]


def _documents(text: str) -> list[Any]:
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise UsageError("nested too deeply for a manifest")
        return [node for node in yaml.compose_all(text, Loader=loader) if node is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        why = str(getattr(error, "problem", None) or "not readable")
        raise UsageError(f"not YAML{where}: {why}; templates have to be rendered first") from None


class _Reader:
    def __init__(self, markers: tuple[str, ...]) -> None:
        self.markers = markers
        self.seen = 0
        self.composed = False  # a Compose file, whose texts are interpolated

    def read(self, documents: list[yaml.Node]) -> Iterator[Container]:
        for document in documents:
            self.composed = "services" in self._pairs(document)
            yield from self._walk(document, 0)

    def _walk(self, node: yaml.Node, depth: int) -> Iterator[Container]:
        self.seen += 1
        if self.seen > MOST or depth > DEEPEST:
            raise UsageError("more aliases, or a deeper tree, than a manifest has")
        value = node.value
        if isinstance(value, str):
            yield from self._script(node)
            return
        pairs = self._pairs(node)
        entry = [pairs[key] for key in _ENTRY if key in pairs]
        if entry and all(self._is_command(part) for part in entry):
            yield self._container(entry, pairs)
        else:
            entry = []
        for child in pairs.values() if pairs else value if isinstance(value, list) else []:
            if hasattr(child, "value") and not any(child is part for part in entry):
                yield from self._walk(child, depth + 1)

    def _pairs(self, node: yaml.Node, depth: int = 0) -> dict[str, yaml.Node]:
        """A mapping by its keys, with what it merges (``<<``); empty for any other node."""
        if node.id != "mapping" or depth > DEEPEST:
            return {}
        self.seen += len(node.value)
        if self.seen > MOST:
            raise UsageError("more aliases, or a deeper tree, than a manifest has")
        own = {key.value: value for key, value in node.value if isinstance(key.value, str)}
        merged = own.pop("<<", None)
        if merged is None:
            return own
        sources = merged.value if merged.id == "sequence" else [merged]
        for source in sources:
            own = {**self._pairs(source, depth + 1), **own}
        return own

    @staticmethod
    def _is_command(node: yaml.Node) -> bool:
        if isinstance(node.value, str):
            return True
        return node.id == "sequence" and all(isinstance(item.value, str) for item in node.value)

    def _container(self, entry: list[yaml.Node], pairs: Mapping[str, yaml.Node]) -> Container:
        env = self._env(pairs)
        words: list[Word] = []
        for part in entry:
            if isinstance(part.value, str):
                found = commands(part.value, env, _line(part))
                words += [word for command in found for word in command.words]
            else:
                words += [self._item(item, env) for item in part.value]
        image = pairs.get("image")
        named = str(image.value) if image is not None and isinstance(image.value, str) else ""
        if self.composed:  # by what Compose itself is started with, not by what the container gets
            named = interpolated(named.replace("$$", "\\$"), {}, 1).text
        return Container(Command(tuple(words), env), named)

    def _item(self, item: yaml.Node, env: Mapping[str, str]) -> Word:
        """An argument of a list: Kubernetes replaces ``$(NAME)``, Compose ``${NAME}``."""
        if self.composed:
            return interpolated(item.value.replace("$$", "\\$"), env, _line(item))
        return _replaced(item.value, env, _line(item))

    def _env(self, pairs: Mapping[str, yaml.Node]) -> dict[str, str]:
        made: dict[str, str] = {}
        for key in ("env", "environment"):
            node = pairs.get(key)
            if node is None:
                continue
            for item in node.value if node.id == "sequence" else []:
                parts = self._pairs(item)
                if isinstance(item.value, str) and "=" in item.value:
                    variable, _, text = item.value.partition("=")
                    made[variable] = text
                elif "name" in parts and "value" in parts and isinstance(parts["value"].value, str):
                    made[str(parts["name"].value)] = parts["value"].value
            made |= {name: v.value for name, v in self._pairs(node).items() if isinstance(v.value, str) and v.value}
        return made

    def _script(self, node: yaml.Node) -> Iterator[Container]:
        """A text that looks like a script: of a CI job, of a ConfigMap."""
        if any(marker in node.value for marker in self.markers):
            yield from (Container(command, "") for command in commands(node.value, {}, _line(node)))


def _line(node: yaml.Node) -> int:
    """The line, from 1, where the text of a node begins: that of a block stands below its mark."""
    return int(node.start_mark.line) + 1 + (getattr(node, "style", None) in ("|", ">"))


def _replaced(text: str, env: Mapping[str, str], line: int) -> Word:
    """``$(NAME)`` by the container's own environment, as Kubernetes does it."""
    made, missing, rest = "", [], text
    while "$(" in rest:
        before, _, after = rest.partition("$(")
        name, closed, after = after.partition(")")
        if before.endswith("$") or not closed:
            made, rest = f"{made}{before}$(", f"{name}{closed}{after}"
            continue
        if name not in env:
            missing.append(f"$({name})")
        made, rest = f"{made}{before}{env.get(name, f'$({name})')}", after
    return Word(made + rest, line, tuple(missing))
