"""What a release knows about model classes: which it has, which of them hand hidden states to a drafter, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from drafcheck.contract import (
    Engine,
    Table,
    engines,
    in_force,
    is_extended,
    load_toml,
    of_the_book,
    releases,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.config import TargetConfig


ANY = "*"
"""In the place of target classes: the book does not say which of them hand over hidden states, and takes all to."""


class TargetClass(NamedTuple):
    """What one release can do with one target class.

    ``captures``: whether it hands over auxiliary hidden states; ``captured_in`` the range of releases that do
    (PEP 440, empty when none does). ``ids_rule`` says what a layer id means (see rules/<engine>/targets.toml), empty
    when nothing is captured. ``final``: whether the state after the last layer is handed over too. ``default``: the
    class's own default layers as expressions in n, empty for the engine's usual ones. ``has_head``: whether drafts can
    borrow its embedding and head. ``zero_stops``: whether asking for what enters the first layer stops the server.
    """

    engine: str
    architecture: str
    registered: bool
    captures: bool
    captured_in: str = ""
    ids_rule: str = ""
    final: bool = False
    default: tuple[str, ...] = ()
    has_head: bool = True
    source: str = ""
    zero_stops: bool = False

    @property
    def registered_since(self) -> str | None:
        """The first release that has the class; None when no known release has it."""
        return _since(self.engine).get(self.architecture)

    @property
    def captures_since(self) -> str | None:
        """The first release in which the class hands over hidden states; None when none does."""
        return _first_within(self.engine, self.captured_in)

    @property
    def drafted_for_since(self) -> str | None:
        """The first release in which an EAGLE-3 draft can run on the class; None when none can."""
        return self.captures_since if self.has_head else None


def target_class(engine: Engine, target: TargetConfig) -> TargetClass | None:
    """What ``engine`` can do with the class that the target's config names.

    None when the config names no class, or the contract book says nothing about this engine's targets.
    """
    architecture = target.architecture or target.text_architecture
    book = load_toml(engine.name, "targets.toml")
    if architecture is None or not book:
        return None
    family = _family(book, architecture)
    if family is None:
        known = registered(engine, architecture)
        return None if others_may_load(engine) and not known else TargetClass(engine.name, architecture, known, False)
    if others_may_load(engine) and not registered(engine, architecture):
        return None
    return _capturing(engine, architecture, family, _inner(book, family))


def others_may_load(engine: Engine) -> bool:
    """Whether the engine can build classes that it does not register, so that nothing is known of them."""
    return bool(load_toml(engine.name, "registry.toml").get("others_may_load", False))


def refused_by_words(engine: Engine, target: TargetConfig, algorithm: str) -> str | None:
    """The error with which this release refuses a target by the name of its model_type; None when it does not."""
    for entry in load_toml(engine.name, "targets.toml").get("target_words", []):
        if engine.within(entry.get("versions", "")):
            name = target.language.get("model_type")
            if algorithm.lower() not in entry["algorithms"] or not isinstance(name, str):
                return None
            fits = any(word in name for word in entry["words"])
            return None if fits else str(entry["error"]).replace("{name}", name)
    return None


def _family(book: Table, architecture: str) -> Table | None:
    families = book.get("family", [])
    return next((f for name in (architecture, ANY) for f in families if name in f["captures"]), None)


def _inner(book: Table, family: Table) -> Table:
    """The family whose rules a wrapper follows: that of the class it hands the ids to."""
    return _family(book, family["delegates"]) or family if "delegates" in family else family


def _capturing(engine: Engine, architecture: str, family: Table, inner: Table) -> TargetClass:
    span = str(family["captures"].get(architecture, family["captures"].get(ANY, "")))
    captures = engine.within(span)
    return TargetClass(
        engine.name,
        architecture,
        registered=captures or registered(engine, architecture),
        captures=captures,
        captured_in=span,
        ids_rule=_ids_rule(engine, inner) if captures else "",
        final="final" in inner and engine.within(inner["final"]),
        default=tuple(inner.get("default", ())),
        has_head=bool(family.get("head", True)),
        source=str(family["source"]),
        zero_stops="zero_stops" in inner and engine.within(inner["zero_stops"]),
    )


def _ids_rule(engine: Engine, family: Table) -> str:
    return next((rule for versions, rule in family.get("ids", []) if engine.within(versions)), "")


def capturing_algorithms(engine: Engine) -> list[str]:
    """The algorithms with which the engine hands hidden states over; none when the book does not say."""
    return [str(name) for name in load_toml(engine.name, "targets.toml").get("capture", {}).get("algorithms", [])]


def registered(engine: Engine, architecture: str) -> bool:
    """Whether the release has a model class of this name."""
    since = _since(engine.name).get(architecture)
    until = load_toml(engine.name, "registry.toml").get("until", {}).get(architecture)
    return since is not None and engine.known >= Version(since) and (until is None or engine.known <= Version(until))


def registered_since(engine: Engine, architecture: str) -> str | None:
    """The first release that has a class of this name; None when no known release has it."""
    return _since(engine.name).get(architecture)


def draft_kind(engine: Engine, architecture: str) -> str | None:
    """The kind of head that a draft class builds (eagle3, eagle1, mtp, dflash, dspark); None for any other class.

    Whether the release has the class is another question: see ``registered``.
    """
    return _draft_kinds(engine.name).get(architecture)


def is_draft_class(architecture: str) -> bool:
    """Whether any engine that is known, in any release, has a draft class of this name."""
    return any(architecture in _draft_kinds(engine) for engine in engines())


def is_known_class(architecture: str) -> bool:
    """Whether any engine that is known, in any release, has a model class of this name."""
    return any(architecture in _since(engine) for engine in engines())


@of_the_book
def _since(engine: str) -> dict[str, str]:
    since = load_toml(engine, "registry.toml").get("since", {})
    listed = {name: version for version, names in since.items() for name in names.split()}
    return {**dict(_contracted(engine)), **listed} if is_extended() else listed


def _contracted(engine: str) -> Iterator[tuple[str, str]]:
    """The classes of the user's own contracts, each with the first release that one of their revisions holds for."""
    from drafcheck.contract_tables import own_tables

    for book in own_tables(engine):
        known = (Engine(engine, str(version), version, exact=True) for version in releases(engine))
        first = next((release.version for release in known if in_force(book.get("revision", []), release)), None)
        yield from ((name, first) for name in book.get("architectures", []) if first is not None)


@of_the_book
def _draft_kinds(engine: str) -> dict[str, str]:
    drafts = load_toml(engine, "registry.toml").get("draft", {})
    listed = {name: kind for kind, names in drafts.items() for name in names.split()}
    return {**_own_kinds(engine), **listed} if is_extended() else listed


def _own_kinds(engine: str) -> dict[str, str]:
    from drafcheck.contract_tables import own_tables

    return {name: book["kind"] for book in own_tables(engine) for name in book["architectures"]}


def _first_within(engine: str, span: str) -> str | None:
    if not span:
        return None
    known = (Engine(engine, str(v), v, exact=True) for v in releases(engine))
    return next((release.version for release in known if release.within(span)), None)
