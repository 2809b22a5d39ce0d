"""What leads nowhere between the entries of a contract of one's own is said with file and line, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import Draft
from test_contract_folders import ENGINE, TINY, write

from drafcheck.cli import run

FC = 'shape = ["hidden_size", "num_aux * target_hidden"]'
HEAD = '\n[[param]]\nname = "lm_head.weight"\nshape = ["head_rows", "hidden_size"]\nload = "vocab"\ninitial = "empty"\n'
MESSAGE = '\n[[messages]]\nplain = "{tensor} is not {parameter}"\n'


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draft = Draft()
    draft.set(architectures=["AcmeDraft"])
    draft.write(tmp_path / "draft")
    write("sglang/engine.toml", 'contracts = ["acme"]\n')


def reads(text: str) -> str:
    return TINY.replace('hidden_size = ["hidden_size"]', f'hidden_size = ["hidden_size", "{text}"]')


WRONG = [
    (reads("= hidden_size + 1"), ":10: hidden_size is worked out of itself: hidden_size = hidden_size"),
    (reads("= target_hidden"), "worked out of itself: hidden_size = target_hidden = hidden_size"),
    (reads("= num_aux +"), ":10: '= num_aux +' of hidden_size: a quantity or a number is missing beside an operator"),
    (reads("= 2 ** 9999999 * num_aux"), ":10: '= 2 ** 9999999 * num_aux' of hidden_size: a quantity or a number is"),
    (reads("= " + "9" * 5000), " is no number of at most twelve digits"),
    (reads("= nosuch * 2"), ":10: '= nosuch * 2' of hidden_size: 'nosuch' is no quantity of [[read]]"),
    (
        TINY.replace(FC, 'shape = ["hiddn_size", "num_aux"]'),
        "'hiddn_size' is no quantity of [[read]]; did you mean hidd",
    ),
    (TINY.replace('semantics = "offset"', 'semantics = "offset"\nwidth = "draft"'), ":27: 'draft' is no quantity of"),
    (TINY + MESSAGE.replace("{tensor}", "{tensr}"), ":48: nothing takes the place of {tensr} in '{tensr} is not"),
    (
        TINY.replace('mapping = "d2t"', 'mapping = "d2t"\nunknown = "KeyError: {nam}"'),
        "of {nam} in 'KeyError: {nam}'; did",
    ),
    (TINY + HEAD, ":48: 'lm_head.weight' is given twice for the same releases and configs"),
    (TINY.replace('">=0.5.10"', '">=0.9,<0.5"'), ":6: revision[0].versions: no release is in the range '>=0.9,<0.5'"),
]
RIGHT = [
    TINY,
    reads("= 2 * num_aux + draft_vocab // 4 - 1"),
    reads("= float ratio * num_aux"),
    TINY.replace('semantics = "offset"', 'semantics = "offset"\nwidth = "draft_vocab"'),
    TINY + MESSAGE,
    TINY.replace('mapping = "d2t"', 'mapping = "d2t"\nunknown = "KeyError: {name}"'),
    TINY + HEAD.replace("shape", 'when = "biased"\nshape'),
    TINY.replace('">=0.5.10"', '">=0.5.10,<0.9"'),
    # an order that turns with a release is no circle
    TINY.replace('target_hidden = ["target_hidden_size", "= hidden_size"]', 'target_hidden = ["hidden_size"]')
    + '\n[[read]]\nversions = "<0.5"\ntarget_hidden = ["= hidden_size"]\n',
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_leads_nowhere_is_said(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("sglang/acme.toml", text)
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: own/sglang/acme.toml:") and captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_explained_is_taken(text: str) -> None:
    write("sglang/acme.toml", text)
    assert run(["draft", *ENGINE, "--contracts", "own"]) in (0, 1)


@pytest.mark.parametrize("sizes", ['"hidden_size"', '"hidden_size", "num_aux", "target_hidden"'])
def test_an_fc_that_is_no_matrix_crashes_nothing(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("sglang/acme.toml", TINY.replace(FC, f"shape = [{sizes}]"))
    assert run(["draft", *ENGINE, "--contracts", "own"]) == 1
    assert "DC999" not in capsys.readouterr().out
