"""DC9xx: suppressions in drafcheck.toml."""

from __future__ import annotations

from cases import case
from drafts import Draft


def suppress(draft: Draft, rule: str, **keys: str) -> None:
    """Add one [[suppress]] to the draft's drafcheck.toml; values are TOML."""
    entry = {"rule": f'"{rule}"', **keys, "reason": '"measured: no loss"'}
    lines = ["[[suppress]]", *(f"{key} = {value}" for key, value in entry.items()), ""]
    draft.files["drafcheck.toml"] = draft.files.get("drafcheck.toml", b"") + "\n".join(lines).encode()


@case("DC901/mended")
def mended(draft: Draft) -> None:
    """The head borrows nothing any more, and the two layer ids are still accepted."""
    suppress(draft, "aux-not-captured")
    suppress(draft, "DC406")


@case("DC901/another-tensor")
def another_tensor(draft: Draft) -> None:
    draft.drop("norm.weight")
    suppress(draft, "DC102", tensor='"model.fc.*"')
    suppress(draft, "DC102", tensor='"model.norm.*"')


@case("DC902/over")
def over(draft: Draft) -> None:
    draft.drop("fc.weight")
    suppress(draft, "DC102", until="2020-02-29")


@case("good/suppressed")
def suppressed(draft: Draft) -> None:
    """Both faults are accepted, one until the last day that TOML knows."""
    draft.drop("fc.weight", "norm.weight")
    suppress(draft, "unwritten-parameter", path='"model.*"', until="9999-12-31")


@case("good/suppressed-for-another-checkpoint")
def suppressed_elsewhere(draft: Draft) -> None:
    """An entry for a checkpoint that is not among those checked is not judged."""
    suppress(draft, "DC102", path='"old/*"')
