"""In which releases an engine has an option."""

from __future__ import annotations

from drafcheck.contract import Engine, load_toml, of_the_book, releases


def flag_history(engine: str, flag: str) -> str:
    """Since and until when an option is there, in words; empty for one that no known release has."""
    groups = [g for g in load_toml(engine, "flags.toml").get("flags", []) if flag in g["names"].split()]
    known = releases(engine)
    there = [v for v in known if any(Engine(engine, str(v), v, True).within(g.get("versions", "")) for g in groups)]
    if not there:
        return ""
    parts = [f"since {there[0]}"] if there[0] != known[0] else []
    parts += [f"until {there[-1]}"] if there[-1] != known[-1] else []
    return f"{engine} has it {' and '.join(parts)}" if parts else ""


@of_the_book
def flags_ever(engine: str) -> frozenset[str]:
    """Every option that some known release has."""
    groups = load_toml(engine, "flags.toml").get("flags", [])
    return frozenset(name for group in groups for name in group["names"].split())
