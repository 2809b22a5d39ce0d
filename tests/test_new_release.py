"""A new release is an edit of TOML: what rules/README.md says to do is enough, and no Python knows a release."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import count_proofs
import pytest
from drafts import Draft
from packaging.version import Version

from drafcheck import contract, lint
from drafcheck.contract import engines, releases, resolve_engine, rules_folder
from drafcheck.finding import Finding
from drafcheck.runner import lint_many
from drafcheck.session import Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(contract.__file__).parent
NEW = "99.1.0"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder that adds a release to SGLang, as the edit of engine.toml does."""
    folder = tmp_path / "book" / "sglang"
    folder.mkdir(parents=True)
    (folder / "engine.toml").write_text(f'releases = ["{NEW}"]\n')
    return folder.parent


def findings(folder: Path, book: Path | None) -> list[Finding]:
    options = Options(engine=f"sglang=={NEW}", contracts=() if book is None else [book])
    return list(lint_many([folder], options).findings)


def test_a_line_in_engine_toml_makes_a_release_known(tmp_path: Path, book: Path) -> None:
    Draft().write(tmp_path / "draft")
    assert "DC603" in {f.rule for f in findings(tmp_path / "draft", None)}
    found = findings(tmp_path / "draft", book)
    assert "DC603" not in {f.rule for f in found}
    newest = lint(tmp_path / "draft", engine="sglang").findings
    assert [(f.rule, f.severity) for f in found] == [(f.rule, f.severity) for f in newest]


def test_what_changed_is_an_entry_with_a_range(tmp_path: Path, book: Path) -> None:
    """The new release wants an fc for two states; the ones before are as they were."""
    text = (rules_folder() / "sglang" / "llama_eagle3.toml").read_text(encoding="utf-8")
    entry = f'[[read]]\nversions = ">={NEW}"\nnum_aux = [2]\n\n'
    first = text.index("[[read]]")
    (book / "sglang" / "llama_eagle3.toml").write_text(text[:first] + entry + text[first:], encoding="utf-8")
    (book / "sglang" / "parts").symlink_to(rules_folder() / "sglang" / "parts")
    Draft().write(tmp_path / "draft")
    assert "DC401" in {f.rule for f in findings(tmp_path / "draft", book) if f.severity.value == "error"}
    assert lint_many([tmp_path / "draft"], Options(engine="sglang==0.5.23", contracts=[book])).ok


def test_the_last_release_that_was_added_is_known() -> None:
    engine = resolve_engine("sglang==0.5.15.post1")
    assert (engine.exact, engine.known) == (True, Version("0.5.15.post1"))


def constants(module: ast.Module) -> list[str]:
    """The strings that a module computes with: no docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    strings = [n for n in ast.walk(module) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [str(n.value) for n in strings if id(n) not in docs]


def test_no_python_decides_by_a_release() -> None:
    known = {str(release) for engine in engines() for release in releases(engine)}
    assert "0.5.15.post1" in known
    wrong = {
        file.name: text
        for file in PACKAGE.rglob("*.py")
        for text in constants(ast.parse(file.read_text(encoding="utf-8")))
        if re.sub(r"^[<>=!~\s]+", "", text.partition(",")[0]).strip() in known
    }
    assert wrong == {}


def test_that_test_finds_one() -> None:
    module = ast.parse('"""0.5.9"""\ndef f(v):\n    "0.5.9"\n    return v >= "0.5.12"\n')
    assert constants(module) == ["0.5.12"]


@pytest.mark.parametrize("text", ["", '[proof]\nread = ["0.5.1"]\n\n', '# counted\n[proof.executed]\n"0.5.1" = 3\n\n'])
def test_that_a_release_was_read_is_written_into_a_proof(text: str) -> None:
    """`python tools/count_proofs.py --read`; a `read` of names is left alone."""
    rest = '[[names]]\nread = ["model."]\n'
    made = tomllib.loads(count_proofs.also_read(text + rest, "0.5.10"))
    before = tomllib.loads(text + rest)
    assert made["proof"]["read"] == [*before.get("proof", {}).get("read", []), "0.5.10"]
    assert made["names"] == before["names"]
    assert made["proof"].get("executed") == before.get("proof", {}).get("executed")
