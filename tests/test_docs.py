"""The README says what is true: generated parts are fresh, commands work, the output shown is the real one."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import click
import gen_docs
import pytest

from drafcheck import contract, contract_tables
from drafcheck.cli import cli, run
from drafcheck.registry import load_rules

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEADINGS = ["## What it does", "## Why is this bad?", "## Fix"]
RULES = load_rules()


def command_after(marker: str) -> str:
    found = re.search(rf"<!-- ci: {marker} -->\n```bash\n(.+)\n```", README)
    assert found, marker
    return found[1]


def test_generated_files_are_fresh() -> None:
    assert gen_docs.stale() == []


@pytest.mark.parametrize("code", RULES)
def test_every_rule_is_documented(code: str) -> None:
    doc = inspect.cleandoc(RULES[code].doc)
    assert [line for line in doc.splitlines() if line.startswith("## ")] == HEADINGS
    assert not doc.startswith("## ")
    sections = re.split(r"^## .+$", doc, flags=re.MULTILINE)
    assert all(section.strip() for section in sections)


def test_codes_and_names_are_well_formed() -> None:
    for code, rule in RULES.items():
        assert re.fullmatch(r"DC\d{3}", code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        assert rule.severities


def test_contract_pages_say_what_the_book_says() -> None:
    """Every name, every error and every source of every contract stands on its page."""
    said = 0
    for engine in contract.engines():
        for stem in contract.contract_files(engine):
            page = (ROOT / "docs" / "contracts" / engine / f"{stem}.md").read_text(encoding="utf-8")
            plain = re.sub(r"\\(.)", r"\1", page)
            for part, content in contract_tables.contract_table(engine, stem).items():
                entries = content if isinstance(content, list) else []
                facts = [e[k] for e in entries if isinstance(e, dict) for k in ("name", "error", "source") if k in e]
                assert [fact for fact in facts if fact not in plain] == [], part
                said += len(facts)
    assert said > 50


def test_pages_of_contracts_that_are_gone_are_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("old")
    monkeypatch.setattr(gen_docs, "CONTRACTS", tmp_path)
    monkeypatch.setattr(gen_docs, "ROOT", tmp_path)
    monkeypatch.setattr(gen_docs, "generated", dict)
    assert gen_docs.stale() == ["old.md"]


def test_demo_output_is_real(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    args = shlex.split(command_after("demo").partition(".venv/bin/drafcheck ")[2])
    assert run(args) == 1
    shown = re.search(r"<!-- demo output -->\n```text\n(.*?)```\n<!-- end of demo output -->", README, re.DOTALL)
    assert shown
    assert capsys.readouterr().out == shown[1]


def test_ci_finds_the_commands() -> None:
    assert command_after("demo").startswith("python3 -m venv .venv && .venv/bin/pip install -q . && ")
    assert command_after("tests").endswith(".venv/bin/pytest -n auto")


def test_commands_and_options_in_the_readme_exist() -> None:
    known = {opt for command in cli.every_command().values() for param in command.params for opt in param.opts}
    prose = re.sub(r"```text\n.*?```", "", README, flags=re.DOTALL)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose))
    assert used <= known | {"--help", "--version"}, used - known


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", README):
        assert (ROOT / link).exists(), link


def test_changelog_knows_this_version() -> None:
    from drafcheck import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_page_of_the_command_line_says_what_the_help_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The same options in the same words, with the same defaults; and no default that is kept from both."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in cli.every_command().items():  # type: ignore[attr-defined]
        assert run([name, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for option in (param for param in command.params if isinstance(param, click.Option)):
            row = next(line for line in section.splitlines() if line.startswith(f"| `{option.opts[0]}`"))
            assert option.help is not None and option.help in row and option.help in told, (name, option.opts)
            usual = option.show_default if isinstance(option.show_default, str) else option.default
            shown = bool(option.show_default)
            assert (f" Default: `{usual}`. |" in row) is shown, (name, option.opts)
            assert shown or option.is_flag or option.multiple or option.default in (None, *UNSET), (name, option.opts)


UNSET = tuple(getattr(click.core, name) for name in ("UNSET",) if hasattr(click.core, name))
"""What newer releases of click give for a default that there is not."""
