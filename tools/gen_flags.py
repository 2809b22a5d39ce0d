"""Write rules/<engine>/flags.toml: which options each release of an engine takes.

    python tools/gen_flags.py sglang FOLDER...     # each FOLDER/sglang-X.Y.Z holds an unpacked wheel, read by AST
    python tools/gen_flags.py vllm FOLDER...       # each FOLDER/X.Y.Z.json is what tools/dump_flags.py printed

Only the releases that engine.toml lists are read. Nothing is imported or run here.
What is written are facts: the names, what they take, and the releases.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

ROOT = Path(__file__).parent.parent
WIDTH = 118

NONE, ONE, MANY, MAYBE, REFUSED = "none", "one", "many", "maybe", "refused"
HEAD = """# {engine}: every option that each release takes. Written by tools/gen_flags.py from their sources.
# takes: none (a switch), one value, many, maybe (one or none), refused (known, and the server stops on it).
"""


class Flag(NamedTuple):
    """One option under one of its names; ``takes`` as in the head of flags.toml."""

    name: str
    takes: str


def text_of(node: ast.AST | None) -> str | None:
    """The string that a node is, if it is one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The named arguments of a call."""
    return {k.arg: k.value for k in call.keywords if k.arg is not None}


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def parse(path: Path) -> ast.Module:
    """The tree of a source file; an empty one where there is none."""
    return ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])


def takes_by_nargs(node: ast.expr | None) -> str:
    """What ``nargs`` comes to."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return ONE
    return {"?": MAYBE, "*": MANY, "+": MANY, "0": NONE}.get(str(getattr(node, "value", "")), MANY)


def takes_by_action(action: ast.expr, given: dict[str, ast.expr], refusing: set[str]) -> str | None:
    """What an ``action`` comes to; None when it is one that stores values."""
    name = text_of(action) or str(getattr(action, "attr", getattr(action, "id", "")))
    if name in refusing or "error_message" in given:
        return REFUSED
    if name in ("store_true", "store_false", "help", "version", "count") or name.endswith("StoreTrueAction"):
        return NONE
    if name in ("DeprecatedAction", "DeprecatedStoreConstAction") and "nargs" not in given:
        return NONE
    return "both" if name == "BooleanOptionalAction" else None


def with_negation(names: Iterable[str], takes: str) -> Iterator[Flag]:
    """The names; with ``--no-x`` beside ``--x`` where argparse adds it."""
    for name in names:
        yield Flag(name, NONE if takes == "both" else takes)
        if takes == "both" and name.startswith("--"):
            yield Flag(f"--no-{name[2:]}", NONE)


def refusing_actions(tree: ast.Module) -> set[str]:
    """The action classes of a file that do nothing but raise."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(getattr(base, "attr", "") == "Action" for base in node.bases):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__call__":
                    found |= {node.name} if isinstance(method.body[-1], ast.Raise) else set()
    return found


def added(tree: ast.AST, refusing: set[str]) -> Iterator[Flag]:
    """The options that the ``add_argument`` calls of a file declare."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or called(call) != "add_argument":
            continue
        names = [name for arg in call.args if (name := text_of(arg)) and name.startswith("-")]
        given = keywords(call)
        takes = takes_by_action(given["action"], given, refusing) if "action" in given else None
        yield from with_negation(names, takes or takes_by_nargs(given.get("nargs")))


# ---- sglang: calls, and since 0.5.15 annotated fields ----------------------------------------------------------
def sglang(folder: Path) -> set[Flag]:
    """The options of one SGLang release."""
    srt = folder / "sglang" / "srt"
    trees = [parse(srt / "server_args.py"), *map(parse, sorted((srt / "arg_groups" / "fields").glob("*.py")))]
    refusing = set().union(*(refusing_actions(tree) for tree in trees))
    flags = {Flag("--help", NONE), Flag("-h", NONE)}
    flags |= {flag for tree in trees for flag in (*added(tree, refusing), *annotated(tree, refusing))}
    if (folder / "sglang" / "cli" / "serve.py").is_file() and "--model-type" in (
        folder / "sglang" / "cli" / "serve.py"
    ).read_text(encoding="utf-8"):
        flags.add(Flag("--model-type", ONE))
    return flags


def annotated(tree: ast.Module, refusing: set[str]) -> Iterator[Flag]:
    """The options of fields such as ``port: A[int, "help"]``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        hint = node.annotation
        if not (isinstance(hint, ast.Subscript) and getattr(hint.value, "id", "") == "A"):
            continue
        kind, *rest = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        arg = next((r for r in rest if isinstance(r, ast.Call) and called(r) == "Arg"), None)
        if arg is None and all(isinstance(r, ast.Call) for r in rest):
            continue  # neither an Arg nor a help text: no option
        given = keywords(arg) if arg is not None else {}
        if getattr(given.get("no_cli"), "value", False) is True:
            continue
        own = text_of(given.get("cli_name")) or "--" + node.target.id.replace("_", "-")
        aliases = getattr(given.get("aliases"), "elts", [])
        yield from with_negation(
            [own, *(name for alias in aliases if (name := text_of(alias)))], _field_takes(kind, given, refusing)
        )


def _field_takes(kind: ast.expr, given: dict[str, ast.expr], refusing: set[str]) -> str:
    if "action" in given:
        details = given.get("action_kwargs")
        more = dict(zip(details.keys, details.values, strict=True)) if isinstance(details, ast.Dict) else {}
        nargs = next((value for key, value in more.items() if text_of(key) == "nargs"), None)
        return takes_by_action(given["action"], given, refusing) or takes_by_nargs(nargs)
    written = ast.unparse(kind).replace("Optional[", "").strip("]")
    if written.lower().startswith("list") and "type_parser" not in given:
        return MANY
    return NONE if written == "bool" else takes_by_nargs(given.get("nargs"))


# ---- vllm: what its parser itself says, see tools/dump_flags.py ------------------------------------------------------
def vllm(file: Path) -> set[Flag]:
    """The options of one vLLM release, and those that 0.9.2 adds beside the parser."""
    beside = {"--api-server-count", "-asc", "--config", "--data-parallel-start-rank", "-dpr"}
    said = json.loads(file.read_text(encoding="utf-8"))
    switches = {"--headless", "--help", "-h"}
    flags = {Flag(name, takes) for name, takes in said.items()}
    more = {Flag(name, ONE) for name in beside - set(said)} if file.stem.startswith("0.9.") else set()
    return flags | more | {Flag(name, NONE) for name in switches}


# ---- ranges ----------------------------------------------------------------------------------------------------------
READERS: dict[str, Callable[[Path], set[Flag]]] = {"sglang": sglang, "vllm": vllm}


def ranges(present: list[bool], releases: list[Version]) -> Iterator[str]:
    """The spans of releases in which something is there, each as a PEP 440 range."""
    start: int | None = None
    for number, there in enumerate([*present, False]):
        if there and start is None:
            start = number
        elif not there and start is not None:
            low = f">={releases[start]}" if start else ""
            high = f"<{releases[number]}" if number < len(releases) else ""
            yield ",".join(part for part in (low, high) if part)
            start = None


def table(engine: str, flags: dict[Version, set[Flag]]) -> str:
    """The text of flags.toml."""
    releases = sorted(flags)
    groups: dict[tuple[str, str], list[str]] = {}
    for flag in sorted(set().union(*flags.values())):
        for span in ranges([flag in flags[release] for release in releases], releases):
            groups.setdefault((span, flag.takes), []).append(flag.name)
    source = f"{releases[0]} to {releases[-1]}, {len(releases)} releases"
    parts = [HEAD.format(engine=engine), f'source = "{source}"\n']
    for (span, takes), names in sorted(groups.items()):
        limits = f'versions = "{span}"\n' if span else ""
        parts.append(f"\n[[flags]]\n{limits}takes = \"{takes}\"\nnames = '''\n{_wrapped(names)}'''\n")
    return "".join(parts)


def _wrapped(names: list[str]) -> str:
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) >= WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {name}".strip()
    return "\n".join(lines) + "\n"


def found(engine: str, release: str, homes: list[Path]) -> Path:
    """Where a release lies. Raises FileNotFoundError when it is nowhere."""
    for home in homes:
        for name in (f"{release}.json", f"{engine}-{release}"):
            if (home / name).exists():
                return home / name
    raise FileNotFoundError(f"{engine} {release}")


def known_releases(engine: str, homes: list[Path]) -> list[str]:
    """The releases that the contract book describes; those at hand while it does not know the engine."""
    sys.path.insert(0, str(ROOT))
    from drafcheck.contract import load_toml

    book = load_toml(engine, "engine.toml").get("releases", [])
    return [str(release) for release in book] or [path.stem for home in homes for path in home.glob("*.json")]


def main(engine: str, *homes: str) -> None:
    """Write the file of one engine."""
    places = [Path(home) for home in homes]
    read = {Version(r): READERS[engine](found(engine, r, places)) for r in known_releases(engine, places)}
    (ROOT / "rules" / engine / "flags.toml").write_text(table(engine, read), encoding="utf-8")
    print(", ".join(f"{release}: {len(flags)}" for release, flags in read.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
