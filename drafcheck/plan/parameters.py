"""Which parameters a release creates from a config, how large they are, and when it refuses to create any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.configtypes import class_of
from drafcheck.lookup import MISSING, evaluate, in_question, is_integer, keys_read, present_key, raw
from drafcheck.plan.model import Parameter, Parameters, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.placeholders import Copies

MOST_COPIES = 128
"""So many layers of one parameter are written out at most: a config may claim 10**9 of them."""

MOST_EXPERTS = 4096
"""So many experts likewise."""


def build_parameters(contract: Contract, config: DraftConfig) -> Parameters:
    """The parameters by name, in the order of the contract. A size that cannot be known is -1."""
    wanted = [entry for entry in contract.params if in_question(contract, entry, config)]
    made = Parameters()
    for parameter in (p for entry in wanted for p in _each(contract, entry, config)):
        made.setdefault(parameter.name, parameter)
    return made


def _each(contract: Contract, entry: Table, config: DraftConfig) -> Iterator[Parameter]:
    if "experts" in entry:
        made = _experts(contract, entry, config)
        yield from (made._replace(name=name) for name in _names(contract, entry, config))
        return
    rows = {shard: evaluate(contract, text, config) for shard, text in entry.get("shards", {}).items()}
    columns = (entry["in"],) if "in" in entry else ()
    formula = (" + ".join(entry["shards"].values()), *columns) if rows else tuple(entry["shape"])
    sizes = (
        (_sum(rows.values()), *(evaluate(contract, text, config) for text in columns))
        if rows
        else tuple(evaluate(contract, text, config) for text in formula)
    )
    shape = tuple(-1 if size is None else size for size in sizes)
    shards = {shard: -1 if size is None else size for shard, size in rows.items()}
    formulas, spare = dict(entry.get("shards", {})), bool(entry.get("spare"))
    made = Parameter(
        "", shape, formula, entry["initial"], entry["load"], shards, formulas, spare, entry.get("says", "")
    )
    made = made._replace(spare_shards=tuple(entry.get("spare_shards", ())), whole=bool(entry.get("whole")))
    made = made._replace(rows=entry.get("rows", ""), pads=entry.get("pads", {}), unsplit=bool(entry.get("unsplit")))
    yield from (made._replace(name=name) for name in _names(contract, entry, config))


def _experts(contract: Contract, entry: Table, config: DraftConfig) -> Parameter:
    """The projections of all experts in one parameter: [experts, rows of a shard or two, in]."""
    number = evaluate(contract, entry["experts"], config)
    texts: dict[str, str] = entry["shards"]
    rows = {shard: evaluate(contract, text, config) for shard, text in texts.items()}
    sizes = (number, _sum(rows.values()), evaluate(contract, entry["in"], config))
    each = [(str(n), shard) for n in range(min(max(number or 0, 0), MOST_EXPERTS)) for shard in rows]
    return Parameter(
        entry["name"],
        tuple(-1 if size is None else size for size in sizes),
        (entry["experts"], " + ".join(texts.values()), entry["in"]),
        entry["initial"],
        entry["load"],
        {f"{n}.{shard}": -1 if (size := rows[shard]) is None else size for n, shard in each},
        {f"{n}.{shard}": texts[shard] for n, shard in each},
        bool(entry.get("spare")),
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def written_out(contract: Contract, name: str, config: DraftConfig) -> list[str]:
    """The names of parameters that ``name`` stands for, with its placeholder written out."""
    return _names(contract, {"name": name}, config)


def _names(contract: Contract, entry: Table, config: DraftConfig) -> list[str]:
    """The names of one entry with its placeholder written out; ``layers`` keeps the first or the later ones."""
    name: str = entry["name"]
    for placeholder, copied in contract.expand.items():
        if "{" + placeholder + "}" not in name:
            continue
        if copied.texts:
            return [name.replace("{" + placeholder + "}", text) for text in copied.texts]
        if copied.number is None:
            return [name.replace("{" + placeholder + "}", copied.text)] if entry.get("layers") != "later" else []
        number = min(max(contract.value(copied.number, config) or 0, 0), MOST_COPIES)
        begin = (contract.value(copied.first, config) or 0) if copied.first else 0
        copies = range(begin, begin + number)
        part = {"first": copies[:1], "later": copies[1:]}.get(entry.get("layers", ""), copies)
        numbers = _of_kind(copied, part, config)
        return [name.replace("{" + placeholder + "}", copied.text.replace("{n}", str(n))) for n in numbers]
    return [name]


def _of_kind(copied: Copies, layers: range, config: DraftConfig) -> list[int]:
    """The layers that are of the kind that is meant: all of them where none is named."""
    if not copied.kinds:
        return list(layers)
    listed = raw(config, copied.kinds)
    kinds = list(listed) if isinstance(listed, list) else []
    if kinds and copied.last:
        kinds[-1] = copied.last
    return [n for n in layers if n < len(kinds) and kinds[n] == copied.kind]


def refused_config(contract: Contract, config: DraftConfig) -> Refusal | None:
    """The first refusal of the constructor, or None when this release builds the class from this config."""
    building = [entry for entry in contract.refuse if entry.get("stage") != "serve"]
    before = [entry for entry in building if entry.get("stage") in ("config", "class")]
    while_built = sorted((entry for entry in building if entry not in before), key=_is_late)
    return (
        _first_refusal(contract, before, config)
        or _wrong_type(contract, config)
        or _first_refusal(contract, while_built, config)
    )


def refused_to_serve(contract: Contract, config: DraftConfig) -> Refusal | None:
    """What stops the engine at this config though the class is built and loaded; None for most."""
    return _first_refusal(contract, [entry for entry in contract.refuse if entry.get("stage") == "serve"], config)


def _is_late(entry: Table) -> bool:
    return bool(entry.get("late"))


def _first_refusal(contract: Contract, entries: list[Table], config: DraftConfig) -> Refusal | None:
    refusing = next((entry for entry in entries if _applies(contract, entry, config)), None)
    return _refusal(contract, refusing, config) if refusing is not None else None


def _refusal(contract: Contract, entry: Table, config: DraftConfig) -> Refusal:
    value = raw(config, entry["key"])
    error = (
        entry["error"].replace("{type}", _type(value)).replace("{repr}", repr(None if value is MISSING else value)[:40])
    )
    if "{class}" in error:
        error = error.replace("{class}", class_of(config))
    error = error.replace("{value}", str(contract.value(entry["of"], config) if "of" in entry else value)[:40])
    if "beyond" in entry and isinstance(value, list):
        limit = contract.value(entry["beyond"], config) or 0
        place = next(i for i, layer in enumerate(value) if not 0 <= layer < limit)
        numbers = {"{place}": place, "{item}": value[place], "{limit}": limit}
        for name, number in numbers.items():
            error = error.replace(name, str(number))
    if "strange" in entry and isinstance(value, list):
        place = next(i for i, item in enumerate(value) if item not in entry["strange"])
        error = error.replace("{place}", str(place)).replace("{item}", repr(value[place])[:40])
    for name, quantity in zip(("{whole}", "{part}"), entry.get("indivisible", ()), strict=False):
        error = error.replace(name, str(contract.value(quantity, config)))
    key = present_key(config, entry["key"])
    stage, cause = entry.get("stage", "construct"), entry.get("cause", "config-key")
    return Refusal(stage, error, cause, key=key, read=bool(entry.get("read")))


def _applies(contract: Contract, entry: Table, config: DraftConfig) -> bool:
    if not in_question(contract, entry, config):
        return False
    value = raw(config, entry["key"])
    if "not_in" in entry:
        return value is not MISSING and value not in entry["not_in"]
    if "is_not" in entry:
        name = next((n for n, items in contract.read.items() if items == [entry["key"]]), "")
        known = contract.value(name, config)
        return known is not None and known != entry["is_not"]
    return _measures(contract, entry, config, value) if "is" not in entry else _is(value, entry["is"])


def _measures(contract: Contract, entry: Table, config: DraftConfig, value: object) -> bool:
    """The conditions on a number, or on the numbers and the length of a list."""
    if "below" in entry:
        number = contract.value(entry["of"], config) if "of" in entry else value
        return is_integer(number) and number < entry["below"]
    if "indivisible" in entry:
        number, part = (contract.value(name, config) for name in entry["indivisible"])
        return bool(number and part and number > 0 < part and number % part)
    if "strange" in entry:
        return isinstance(value, list) and any(item not in entry["strange"] for item in value)
    if "length" in entry:
        return isinstance(value, list) and len(value) != contract.value(entry["length"], config)
    limit = contract.value(entry["beyond"], config)
    layers = value if isinstance(value, list) and all(map(is_integer, value)) else []
    return limit is not None and any(not 0 <= layer < limit for layer in layers)


def _is(value: object, state: str) -> bool:
    present = value is not MISSING and value is not None and bool(value)
    return {
        "absent": value is MISSING,
        "null": value is None,
        "nothing": value is MISSING or value is None,
        "any": True,
        "no flag": not isinstance(value, bool),
        "not one": value is True or value != 1,
        "empty": isinstance(value, (list, str)) and not value,
        "mixed": isinstance(value, list) and any(item != value[0] for item in value),
        "repeated": isinstance(value, list) and len({repr(item) for item in value}) != len(value),
        "not a table": present and not isinstance(value, dict),
        "a number": present and isinstance(value, (int, float)),
        "no table": value is not MISSING and not isinstance(value, dict),
        "a text": isinstance(value, str),
        "not a list": present and not isinstance(value, (list, str, dict)),
        "no list": value is not MISSING and value is not None and not isinstance(value, list),
        "not a flag": value is not MISSING and not isinstance(value, bool),
        "not a float": value is not MISSING and not isinstance(value, float),
        "not an integer": value is not MISSING and not is_integer(value),
        "set, no integer": value is not MISSING and value is not None and not is_integer(value),
        "set, no text": value is not MISSING and value is not None and not isinstance(value, str),
    }[state]


def _wrong_type(contract: Contract, config: DraftConfig) -> Refusal | None:
    """A size that is no positive integer: whatever the message, no release builds a class from it."""
    for key in keys_read(contract, config):
        value = raw(config, key)
        if value is MISSING or (value is None and key in contract.values.get("nullable", [])):
            continue
        if not is_integer(value) or value < (0 if key in contract.values.get("zero", []) else 1):
            return Refusal("construct", f"{_type(value)} where a size is read", "config-value", key=key)
    return None


def _type(value: object) -> str:
    return type(value).__name__
