"""A lint reads of the contract book what it needs: the files of its engine and of its draft class."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from drafcheck import contract, lint

GOOD = Path(__file__).parent.parent / "fixtures" / "good" / "healthy"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the book that are read from now on, by their path in it."""
    found: list[str] = []
    real = contract._parsed

    def counting(path: Path) -> contract.Table | None:
        if path.is_file():
            found.append(path.relative_to(contract.rules_folder()).as_posix())
        return real(path)

    monkeypatch.setattr(contract, "_parsed", counting)
    for forget in contract._cached:
        forget()
    return found


def contracts_of(opened: list[str], engine: str) -> set[str]:
    stems = {f"{engine}/{stem}.toml" for stem in contract.contract_files(engine)}
    return stems & set(opened)


@pytest.mark.parametrize("release", ["sglang==0.5.15", "vllm==0.33.0"])
def test_one_contract_of_one_engine_is_read(release: str, opened: list[str]) -> None:
    engine = release.partition("=")[0]
    assert lint(GOOD, engine=release).checkpoints[0].contract == f"{engine}/llama_eagle3"
    once = list(opened)
    assert len(once) == len(set(once))
    assert contracts_of(once, engine) == {f"{engine}/llama_eagle3.toml"}
    assert [name for name in once if "/" in name and not name.startswith(f"{engine}/")] == []
    parts = {name for name in once if "/parts/" in name}
    assert parts == {f"{engine}/{part}.toml" for part in extended_by(engine, "llama_eagle3")}
    whole = {path.relative_to(contract.rules_folder()).as_posix() for path in contract.rules_folder().rglob("*.toml")}
    assert len(once) < 22 < len(whole)
    lint(GOOD, engine=release)
    assert opened == once  # and read once


def extended_by(engine: str, stem: str) -> set[str]:
    """All that a contract takes over, over as many files as it may be."""
    bases = set(contract.load_toml(engine, *f"{stem}.toml".split("/")).get("extends", []))
    return bases.union(*(extended_by(engine, base) for base in bases))


def test_what_only_some_rules_need_is_not_read(opened: list[str]) -> None:
    """The launch line's facts, the tokens and the options of a server are nothing to a plain lint."""
    lint(GOOD, engine="sglang==0.5.15")
    assert not {"sglang/launch.toml", "sglang/flags.toml", "tokens.toml", "model_types.toml", "dialects.toml"} & set(
        opened
    )


@pytest.mark.parametrize(("release", "asked"), [("sglang==0.5.9", False), ("sglang==0.5.15", True)])
def test_the_types_of_keys_are_read_only_for_releases_that_check_them(
    release: str, asked: bool, opened: list[str]
) -> None:
    lint(GOOD, engine=release)
    assert ("config_types.toml" in opened) == asked


@pytest.mark.parametrize("engine", contract.engines())
def test_it_is_marked_which_releases_check_no_types(engine: str) -> None:
    since = Version(contract.load_toml("config_types.toml")["since"])
    for entry in contract.load_toml(engine, "model_types.toml").get("transformers", []):
        assert entry.get("checks", True) == (Version(entry["least"]) >= since)
