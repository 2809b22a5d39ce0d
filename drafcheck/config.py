"""The config.json of a draft and of a target: tolerant access to whatever is in them.

Nothing here decides what an engine makes of a key: that is in the contract book. The one piece of knowledge is
where a target keeps the sizes of its language model (``rules/discovery.toml``), and which sizes its class fills in
(``rules/model_types.toml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drafcheck.contract import load_toml
from drafcheck.finding import Location
from drafcheck.jsonpos import Document

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGEST = 1 << 63  # no engine counts further


class DraftConfig:
    """A config.json with accessors that survive wrong types at every step."""

    settled = False
    """Whether the names in ``architectures`` are the engine's own choice, which draft mode changes no more."""

    classless = False
    """Whether it is of no class that supplies what it leaves out."""

    body = ""
    """The key of the nested table that most keys come from; empty for a config that is flat as written."""

    def __init__(self, document: Document) -> None:
        """``document`` holds an object, or nothing (then every accessor gives None)."""
        self.document = document
        self.data: dict[str, Any] = document.data if isinstance(document.data, dict) else {}
        self.target: TargetConfig | None = None
        """The target that it drafts for, where one is known: some classes are built by its sizes too."""

    launched: frozenset[str] = frozenset()
    """What the launch switches on, by the keys of launch.toml: some classes are built by that too."""

    numbers: Mapping[str, int] = MappingProxyType({})
    """The numbers that the launch gives, by the keys of launch.toml."""

    def at(self, *route: str | int) -> Location:
        """Where a key stands in the file; see ``Document.at``."""
        return self.document.at(*route)

    def with_data(self, data: dict[str, Any]) -> Self:
        """The same config with another content, the places of this one kept."""
        other = copy(self)
        other.data = data
        for name in list(vars(other)):
            if isinstance(getattr(type(self), name, None), cached_property):  # derived from the old content
                delattr(other, name)
        return other

    def get(self, *route: str, default: Any = None) -> Any:
        """The value at the end of ``route``; ``default`` when a step is missing or is no object."""
        value: Any = self.data
        for part in route:
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def integer(self, *route: str) -> int | None:
        """An integer of less than 64 bits; None for anything else, booleans and floats included."""
        return _integer(self.get(*route))

    def text(self, *route: str) -> str | None:
        """A string, else None."""
        value = self.get(*route)
        return value if isinstance(value, str) else None

    def flag(self, *route: str) -> bool | None:
        """A boolean, else None."""
        value = self.get(*route)
        return value if isinstance(value, bool) else None

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """The class names; empty when the key is absent or not a list of strings. There may be thousands of them."""
        return _strings(self.data.get("architectures"))

    @property
    def architecture(self) -> str | None:
        """The first class name, which is the one that engines take."""
        return self.architectures[0] if self.architectures else None

    @property
    def model_type(self) -> str | None:
        """The ``model_type`` of the top level."""
        return self.text("model_type")

    @cached_property
    def route(self) -> tuple[str, ...]:
        """Where the language model's config lies; empty for the top level.

        Only known places are looked at: vision, audio and talker configs have the same keys.
        """
        for place in load_toml("discovery.toml").get("places", []):
            route = tuple(place.split("."))
            if isinstance(self.get(*route), dict):
                return route
        return ()

    @cached_property
    def language(self) -> dict[str, Any]:
        """The language model's config as written, without the class's defaults."""
        value = self.get(*self.route)
        return value if isinstance(value, dict) else {}


class TargetConfig(DraftConfig):
    """The config.json of a target: also knows the sizes of its language model."""

    @property
    def hidden_size(self) -> int | None:
        """The width of the residual stream, in elements."""
        return self._size("hidden_size")

    @property
    def vocab_size(self) -> int | None:
        """The number of tokens, padding included."""
        return self._size("vocab_size")

    @property
    def num_hidden_layers(self) -> int | None:
        """The number of decoder layers."""
        return self._size("num_hidden_layers")

    @property
    def text_architecture(self) -> str | None:
        """The class name that the nested language model's config gives, if any."""
        names = _strings(self.language.get("architectures"))
        return names[0] if self.route and names else None

    @property
    def dtype(self) -> str | None:
        """The dtype of the language model as written: ``dtype``, else ``torch_dtype``, else those of the top level.

        Which of them an engine reads is contract data: use ``language`` and ``data`` for that.
        """
        for table in (self.language, self.data):
            for key in ("dtype", "torch_dtype"):
                if isinstance(table.get(key), str):
                    return str(table[key])
        return None

    def _size(self, key: str) -> int | None:
        if key in self.language:
            return _integer(self.language[key])
        return _integer(self._defaults.get(key))

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """What the config class fills in: by the model type of the nested config, else of the whole."""
        table = load_toml("model_types.toml").get("defaults", {})
        for model_type in (self.language.get("model_type"), self.model_type):
            found = table.get(model_type) if isinstance(model_type, str) else None
            if isinstance(found, dict):
                return found
        return {}


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _LARGEST:
        return None
    return value


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(item for item in value if isinstance(item, str))
