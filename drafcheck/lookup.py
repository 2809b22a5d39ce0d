"""Reading a config as a contract says: first usable value, integer products, flags.

The little language of ``[[read]]``: ``"key.sub"`` is a config key (``"key.3"`` an item of a list), ``"a | b"`` the
first of two that is present, ``"key where model_type is x"`` one that counts for that model_type (or that text of
another key) only, ``"len key"`` the length of a list (``"count key"``: also of an empty one; ``"list key"``: of
anything but a list that is true, the last item counts), ``"max key"`` the largest integer of one, ``"positive key"``
one above zero, ``"= a * b // c"`` an expression over other quantities (``float key``: a config key that need not be
whole; what comes of it is cut to an integer), ``"target vocab_size"`` a size of the target, where there is one,
``"launch tokens"`` a number of the launch (by its key in launch.toml), a number is itself. ``param`` shapes are such
expressions too.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.tensors import Tensors

MISSING = object()
LISTS = ("len", "count", "max", "list")
POSITIVE = "positive "
OF_THE_TARGET = "target "
OF_THE_LAUNCH = "launch "
FLOAT = "float "
_TERM = re.compile(r"\s*(\*|//|\+|-)\s*")


def raw(config: DraftConfig, key: str) -> Any:
    """The value at a dotted key, or MISSING when it, or a table on the way, is absent.

    Of ``"a.b | c"`` the first key that is present counts, be its value null.
    """
    if " | " in key:
        return _raw(config, present_key(config, key))
    return _raw(config, key)


def present_key(config: DraftConfig, key: str) -> str:
    """Of ``"a.b | c"`` the first key that is present, else the first; a single key is itself."""
    keys = key.split(" | ")
    return next((k for k in keys if _raw(config, k) is not MISSING), keys[0])


def _raw(config: DraftConfig, key: str) -> Any:
    here: Any = config.data
    for part in key.split("."):
        if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, dict) and part in here:
            here = here[part]
        else:
            return MISSING
    return here


def is_integer(value: object) -> bool:
    """Whether a JSON value is an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def integer(contract: Contract, name: str, config: DraftConfig) -> int | None:
    """The integer that the release gets for a quantity of ``[[read]]``; None when it gets none."""
    items = contract.read.get(name, [name])
    for item in items:
        value = _item(contract, item, config)
        if value is not None:
            return value
        if _is_stopped(item, config):
            return _item(contract, items[-1], config)
    return None


def _is_stopped(item: int | str, config: DraftConfig) -> bool:
    """Whether a list is looked for, and what is there is none but true: no other key is looked at then."""
    what, _, key = item.partition(" ") if isinstance(item, str) else ("", "", "")
    value = raw(config, key) if what == "list" else MISSING
    return value is not MISSING and bool(value) and not isinstance(value, list)


def _item(contract: Contract, item: int | str, config: DraftConfig) -> int | None:
    if isinstance(item, int):
        return item
    if item.startswith("= "):
        return evaluate(contract, item[2:], config)
    if item.startswith(OF_THE_TARGET):
        return _of_the_target(config, item[len(OF_THE_TARGET) :])
    if item.startswith(OF_THE_LAUNCH):
        return config.numbers.get(item[len(OF_THE_LAUNCH) :])
    what, _, key = item.partition(" ")
    if what in LISTS:
        return _of_a_list(raw(config, key), what)
    named = key_in(item, config)
    value = _key(contract, named, config) if named is not None else None
    return None if item.startswith(POSITIVE) and value is not None and value < 1 else value


def key_in(item: str, config: DraftConfig) -> str | None:
    """The config key that an item names; None where it counts for other configs only."""
    key, _, condition = item.removeprefix(POSITIVE).partition(" where ")
    other, _, wanted = condition.partition(" is ")
    return key if not condition or raw(config, other) == wanted else None


def _of_a_list(value: object, what: str) -> int | None:
    if what == "list":
        return len(value) if isinstance(value, list) and value else None
    if what != "max":
        return len(value) if isinstance(value, (list, dict, str)) and (value or what == "count") else None
    return max(value) if isinstance(value, list) and value and all(map(is_integer, value)) else None


def _of_the_target(config: DraftConfig, size: str) -> int | None:
    target = config.target
    if target is None:
        return None
    sizes = {"vocab_size": target.vocab_size, "hidden_size": target.hidden_size, "layers": target.num_hidden_layers}
    return sizes[size]


def _key(contract: Contract, key: str, config: DraftConfig) -> int | None:
    value = raw(config, key)
    if value is MISSING:
        value = _supplied(contract, config).get(key)
    return value if isinstance(value, int) and is_integer(value) else None


def _supplied(contract: Contract, config: DraftConfig) -> Table:
    """What the class of the config supplies for absent keys; that of a converted config supplies nothing."""
    model_type = config.data.get("model_type")
    return contract.defaults.get(model_type, {}) if isinstance(model_type, str) and not config.classless else {}


def terms(expression: str) -> list[str]:
    """Operands and the signs between them, in turn."""
    return _TERM.split(expression.strip())


def evaluate(contract: Contract, expression: str, config: DraftConfig) -> int | None:
    """The value of ``2 * hidden_size`` and the like, left to right; None when a part has none."""
    first, *rest = terms(expression)
    total = _operand(contract, first, config)
    for sign, operand in zip(rest[::2], rest[1::2], strict=True):
        value = _operand(contract, operand, config)
        if total is None or value is None or (sign == "//" and value == 0):
            return None
        total = _SIGNS[sign](total, value)
    return int(total) if total is not None and math.isfinite(total) else None


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "//": operator.floordiv,
    "+": operator.add,
    "-": operator.sub,
}


def _operand(contract: Contract, text: str, config: DraftConfig) -> float | None:
    if text.startswith(FLOAT):
        value = raw(config, text.removeprefix(FLOAT))
        return float(value) if isinstance(value, float) or is_integer(value) else None
    return int(text) if text.isdigit() else integer(contract, text, config)


_COMPARED: dict[str, Callable[[int, int], bool]] = {"same": operator.eq, "less": operator.lt}


def flag(contract: Contract, name: str, config: DraftConfig) -> bool:
    """Whether the release takes a flag for set; keys are taken for true as Python takes them."""
    entry = next((f for f in contract.flags if f["name"] == name), None)
    if entry is None or ("unless" in entry and flag(contract, entry["unless"], config)):
        return False
    if "differ" in entry:
        return any(_are(operator.ne, contract, pair, config) for pair in entry["differ"])
    if (how := next((key for key in _COMPARED if key in entry), None)) is not None:
        return _are(_COMPARED[how], contract, entry[how], config)
    if entry.get("converted"):
        return config.classless
    if "launched" in entry:
        return entry["launched"] in config.launched
    return bool(entry.get("always")) or _stated(contract, entry, config)


def _stated(contract: Contract, entry: Table, config: DraftConfig) -> bool:
    """Whether a flag is set by what stands in the config, or by what its class supplies where a key is absent."""
    if "null" in entry or "nothing" in entry:
        return raw(config, entry.get("null") or entry["nothing"]) in (None, None if "null" in entry else MISSING)
    if "text" in entry:
        value = raw(config, entry["text"][0])
        return bool((value[0] if isinstance(value, list) and value else value) == entry["text"][1])
    if "falsy" in entry:
        return not raw(config, entry["falsy"])  # MISSING is an object, and so true
    if "is" in entry:
        value = raw(config, " | ".join(entry["first"]))
        wanted = entry["is"] if isinstance(entry["is"], list) else [entry["is"]]
        return (value.lower() if isinstance(value, str) and entry.get("any_case") else value) in wanted
    if "first" in entry:
        present = [raw(config, key) for key in entry["first"]]
        return bool(next((v for v in present if v is not MISSING), False))
    supplied = _supplied(contract, config)
    values = ((key, raw(config, key)) for key in entry.get("any", []))
    return any(bool(supplied.get(key)) if value is MISSING else bool(value) for key, value in values)


def _are(how: Callable[[int, int], bool], contract: Contract, pair: list[str], config: DraftConfig) -> bool:
    one, other = (integer(contract, name, config) for name in pair)
    return one is not None and other is not None and how(one, other)


def in_question(contract: Contract, entry: Table, config: DraftConfig) -> bool:
    """Whether an entry that holds ``when`` a flag is set, or ``unless`` one is, holds for this config."""
    if "when" in entry and not flag(contract, entry["when"], config):
        return False
    return not ("unless" in entry and flag(contract, entry["unless"], config))


def settled(contract: Contract, config: DraftConfig) -> Contract:
    """The contract with what this config decides about names written into them: parts skipped, which layer is read."""
    if "loader" in contract.names:
        from drafcheck.plan.mtp_names import for_config

        contract = for_config(contract, config)
    said = [entry for entry in contract.skips if "absent" not in entry and in_question(contract, entry, config)]
    parts = [part for entry in said for part in entry["parts"]]
    return contract._replace(names={**contract.names, "skips": parts}) if parts else contract


def settled_for(contract: Contract, tensors: Tensors) -> Contract:
    """The contract with what is skipped where no tensor of the file has a certain part in its name."""
    entries = [entry for entry in contract.skips if "absent" in entry]
    lacking = (entry for entry in entries if not tensors.has(entry["absent"]))
    parts = [*contract.names.get("skips", []), *(part for entry in lacking for part in entry["parts"])]
    return contract._replace(names={**contract.names, "skips": parts}) if entries else contract


def hangs_on_launch(contract: Contract, config: DraftConfig) -> bool:
    """Whether the class is built by a number that only a launch tells, and none does."""
    items = [item for listed in contract.read.values() if isinstance(listed, list) for item in listed]
    asked = [i.removeprefix(OF_THE_LAUNCH) for i in items if isinstance(i, str) and i.startswith(OF_THE_LAUNCH)]
    return any(key not in config.numbers for key in asked)


def without_skips(contract: Contract) -> Contract:
    """The contract as for a config for which the loader skips nothing that it does not always skip."""
    return contract._replace(names={key: value for key, value in contract.names.items() if key != "skips"})


def _asked(items: list[Any], config: DraftConfig) -> Iterator[Any]:
    """The items of a quantity up to the first that is satisfied whatever the others say: what follows is not read."""
    for item in items:
        yield item
        if isinstance(item, str) and item.startswith(POSITIVE):
            value = raw(config, item.removeprefix(POSITIVE))
            if is_integer(value) and value > 0:
                return


def keys_read(contract: Contract, config: DraftConfig) -> list[str]:
    """The config keys that must be integers (or absent, or null) for this release and this model_type."""
    items = [item for listed in contract.read.values() if isinstance(listed, list) for item in _asked(listed, config)]
    told = [i for i in items if isinstance(i, str) and not i.startswith(("= ", OF_THE_TARGET, OF_THE_LAUNCH))]
    named = [key_in(i, config) for i in told if i.partition(" ")[0] not in LISTS]
    wanted = [key for key in named if key is not None]
    return list(dict.fromkeys(present_key(config, key) for key in wanted))
