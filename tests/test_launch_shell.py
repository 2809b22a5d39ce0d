"""The reader of shell scripts: the words of a command, what stays unknown, and what is survived."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafcheck.errors import UsageError
from drafcheck.launch.shell import commands

ALIKE = {
    "single quotes": "cmd 'a  b' c",
    "double quotes": 'X="a  b"; cmd "$X" $X',
    "escapes": r"cmd a\ b \"c\" 'd'\''e'",
    "escapes in double quotes": r'cmd "a\"b\\c\d"',
    "ansi": r"cmd $'a\tb\'c'",
    "joined": """X=1; cmd --a="$X"'b'c${X}d""",
    "continued": "cmd a \\\n  b\\\nc",
    "default": "cmd ${NOT_SET_HERE:-a b} \"${NOT_SET_HERE:-a b}\" ${NOT_SET_HERE-'x y'}",
    "set default": "X=1; cmd ${X:-2} ${X:+3} ${X}",
    "empty": 'X=; cmd $X "$X" ${X:-d} ${X-e}',
    "assigning default": "cmd ${NEW_ONE:=v} $NEW_ONE",
    "array": 'A=(a \'b c\' "d"); A+=(e); cmd "${A[@]}" ${A[@]}',
    "empty array": 'A=(); cmd "${A[@]}" x',
    "array over lines": 'A=(\n  a # one\n  b\n)\ncmd "${A[@]}"',
    "plus": 'A=x; A+=y; A="$A z"; cmd $A',
    "nested": 'A=1; B="$A-${A}"; cmd ${C:-${B:-3}}',
    "redirected": "cmd a > /dev/null 2>&1 b",
    "comment": "cmd a#b # c",
    "here-document": "cat <<E > /dev/null\ncmd no\nE\ncmd yes",
    "exported": 'export X=a Y="b c"; cmd $X "$Y"',
    "prefix": "X=1 cmd a",
    "subshell": "(cmd a)",
    "json": 'J=\'{"a": "b", "c": 1}\'; cmd --j "$J"',
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@pytest.mark.parametrize("name", ALIKE)
def test_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    script = ALIKE[name]
    out = tmp_path / "words"
    spy = f'cmd() {{ printf "%s\\0" "$@" >> {out}; }}\n'
    subprocess.run(["bash", "-c", spy + script], check=True, capture_output=True, timeout=30)
    expected = out.read_bytes().decode().split("\0")[:-1]
    found = [word.text for command in commands(script) if command.words[0].text == "cmd" for word in command.words[1:]]
    assert found == expected


def words(script: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(word.text, word.missing) for word in commands(script)[-1].words]


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("cmd $1", "$1"),
        ('cmd "$@"', "$@"),
        ("cmd $(date)", "$(...)"),
        ("cmd `date`", "`...`"),
        ("cmd $NOT_SET", "$NOT_SET"),
        ("cmd ${X%.*}", "$X"),
        ("if a; then X=1; else X=2; fi\ncmd $X", "$X"),
        ("test && X=1\ncmd $X", "$X"),
        ("for X in 1 2; do cmd $X; done", "$X"),
        ("read X\ncmd $X", "$X"),
        ("cmd ${A[0]}", "$A"),
    ],
)
def test_what_comes_from_outside_is_unknown(script: str, missing: str) -> None:
    command = next(c for c in commands(script) if c.words[0].text == "cmd")
    assert [word.missing for word in command.words[1:]] == [(missing,)]


def test_a_value_that_a_condition_does_not_change_is_known() -> None:
    assert words("X=1\nif a; then X=1; fi\ncmd $X") == [("cmd", ()), ("1", ())]


def test_lines_are_those_of_the_words() -> None:
    script = "a\n\ncmd \\\n  one \\\n  'two\n  lines' three\n"
    assert [word.line for word in commands(script)[-1].words] == [3, 4, 5, 6]


def test_expansions_that_grow_without_end_are_refused() -> None:
    doubling = "".join(f'A{i + 1}="$A{i}$A{i}"\n' for i in range(60))
    with pytest.raises(UsageError, match="expands to more than"):
        commands("A0=aaaaaaaaaa\n" + doubling)


@pytest.mark.parametrize(
    "hostile",
    ["'", '"', "$(" * 5000, "${" * 5000, "`", "a" * 1_000_000, "((((" * 1000, "A=(" * 500, "\\", "$'", "${A:-" * 3000,
     "<<E\n", "<<", ">", "A=(" , "x=$((1+1", "\"${A:-\"" * 2000, "if " * 3000, "\0", "{" * 5000],
)  # fmt: skip
def test_hostile_scripts_are_read(hostile: str) -> None:
    for command in commands(hostile):
        assert command.words


pieces = st.sampled_from(
    ["'", '"', "$", "${", "}", "(", ")", "$(", "`", "\\", "\n", " ", "A=", "A+=(", ":-", "[@]", "x", "--a", "=", "#",
     ";", "&&", "<<E", "if", "fi", "for", "$A", "${A[@]}", "export "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(pieces, max_size=40).map("".join)))
def test_any_text_is_read(script: str) -> None:
    for command in commands(script):
        assert all(word.line >= 1 for word in command.words)
