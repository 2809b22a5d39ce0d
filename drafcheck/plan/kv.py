"""The pages of the KV caches: what each layer of target and draft takes, and whether a release can keep them together.

The facts stand in ``rules/<engine>/kv.toml``. Sizes are counted in numbers (of the cache's dtype) a token and layer, as
one rank holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import Engine, Table, in_force, load_toml
from drafcheck.lookup import evaluate, is_integer

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.contract import Contract

FULL, WINDOW = "full", "window"
_KINDS = {"full_attention": FULL, "sliding_attention": WINDOW}


class Cache(NamedTuple):
    """What the layers of one model keep: ``heads`` key/value heads of the whole model, ``size`` numbers a head.

    ``kinds``: whether there are layers that keep every token (``full``), or those of a window only (``window``).
    ``latent``: one vector a token in place of keys and values, on every rank.
    """

    heads: int
    size: int
    kinds: frozenset[str] = frozenset({FULL})
    latent: bool = False

    def numbers(self, ranks: int, latent: bool | None = None) -> int:
        """The numbers a token on one of so many ranks. ``latent``: what the release takes the layer for, if it asks."""
        single = self.latent if latent is None else latent
        heads = self.heads if self.latent else max(1, self.heads // ranks)
        return (1 if single else 2) * heads * self.size


def asked(engine: Engine) -> Table | None:
    """What the release asks of pages, an entry of kv.toml; None when the book says nothing about this engine."""
    return in_force(load_toml(engine.name, "kv.toml").get("pages", []), engine)


def goes_together(
    entry: Table, target: Cache, draft: Cache, ranks: tuple[int, int], *, one_group: bool = False
) -> bool:
    """Whether the release can keep both. ``ranks``: of the target and of the draft; ``one_group``: see kv.toml."""
    mixed = len(target.kinds | draft.kinds) > 1 and not one_group
    return _fit(str(entry["mixed" if mixed else "alike"]), pages(entry, target, draft, ranks))


def pages(entry: Table, target: Cache, draft: Cache, ranks: tuple[int, int]) -> tuple[int, int]:
    """The numbers a token and layer, of the target and of the draft, as the release counts them."""
    latent = target.latent if entry.get("latent_for_all") else None
    return target.numbers(ranks[0]), draft.numbers(ranks[1], latent)


def _fit(how: str, sizes: Collection[int]) -> bool:
    if how == "divide":
        return all(max(sizes) % size == 0 for size in sizes)
    return how == "any" or len(set(sizes)) == 1


def target_cache(engine: Engine, target: TargetConfig) -> Cache | None:
    """What the target's layers keep; None when the book does not say it of this class or this config."""
    name = target.architecture or target.text_architecture
    entries = load_toml(engine.name, "kv.toml").get("target", [])
    entry = next((entry for entry in entries if name in entry["architectures"]), None)
    if entry is None:
        return None
    data = target.language
    if entry.get("latent"):
        return _latent(data)
    heads, size, kinds = _count(data.get("num_key_value_heads")), _head_dim(entry, data), _kinds(entry["windows"], data)
    if heads is None or size is None or kinds is None or FULL not in kinds:  # a window of all reaches the draft too
        return None
    return Cache(heads, size, kinds)


def _latent(data: Mapping[str, Any]) -> Cache | None:
    rank, rope = _count(data.get("kv_lora_rank")), _count(data.get("qk_rope_head_dim"))
    if rank is None or rope is None or data.get("index_topk") is not None:  # sparse: kept in a layout of its own
        return None
    return Cache(1, rank + rope, latent=True)


def _head_dim(entry: Table, data: Mapping[str, Any]) -> int | None:
    if data.get("head_dim") is not None and not entry.get("fixed"):
        return _count(data["head_dim"])
    width, heads = _count(data.get("hidden_size")), _count(data.get("num_attention_heads"))
    if entry.get("head_dim") != "derived" or width is None or heads is None:
        return None
    return width // heads or None


def draft_cache(contract: Contract, config: DraftConfig) -> Cache | None:
    """What the draft's layers keep; None when the book does not say it of this class or this config."""
    engine, _, stem = contract.name.partition("/")
    book = load_toml(engine, "kv.toml")
    entry = next((entry for entry in book.get("draft", []) if stem in entry["contracts"]), None)
    if entry is None:
        return None
    heads, size = (_count(evaluate(contract, entry.get(what, "1"), config)) for what in ("heads", "size"))
    kinds: frozenset[str] | None = frozenset({FULL})
    if "windows" in entry:
        listed = bool(config.data.get("layer_types")) or config.model_type in book["windowless"]["model_types"]
        kinds = _kinds(entry["windows"], config.data) if listed else None
    if heads is None or size is None or not kinds:
        return None
    return Cache(heads, size, kinds, bool(entry.get("latent")))


def _kinds(how: str, data: Mapping[str, Any]) -> frozenset[str] | None:
    """The kinds of layers of a config; None where that cannot be told."""
    windows = _count(data.get("sliding_window")) is not None
    if how == "alternate":
        return frozenset({FULL, WINDOW}) if windows else None
    listed = data.get("layer_types")
    if listed:
        found = _listed(listed)
        return found if WINDOW not in (found or ()) or windows else None
    unused = not data.get("sliding_window") or data.get("use_sliding_window") is False
    return frozenset({FULL}) if unused else None


def _listed(names: object) -> frozenset[str] | None:
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _KINDS for name in names):
        return None
    return frozenset(_KINDS[name] for name in names)


def _count(value: object) -> int | None:
    """A positive integer, else None."""
    return value if isinstance(value, int) and is_integer(value) and value > 0 else None
