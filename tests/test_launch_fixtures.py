"""Launch lines as public guides write them: each is understood, and judged, as the text beside it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_fixtures import FIXTURES, launch_files, launch_report

from drafcheck import contract

FILES = [file.name for file in launch_files()]
FORMS = {
    "continued lines": "sglang-continued.sh",
    "key=value": "sglang-key-equals-value.sh",
    "variables": "sglang-variables.sh",
    "an array": "sglang-array.sh",
    "a Dockerfile": "sglang.Dockerfile",
    "Kubernetes": "sglang-lws.yaml",
    "sh -c in a manifest": "sglang-deployment-sh.yaml",
    "Compose": "sglang-compose.yaml",
    "JSON over lines": "vllm-config-continued.sh",
    "dotted keys": "vllm-dotted.sh",
    "docker run": "vllm-docker-run.sh",
}


@pytest.mark.parametrize("name", FILES)
def test_it_is_understood_as_expected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)
    monkeypatch.setattr(contract, "_installed", lambda package: None)  # an engine on this machine decides nothing
    expected = (FIXTURES / "launch" / f"{name}.txt").read_text(encoding="utf-8")
    assert launch_report(Path(name)) == expected


def test_there_are_twenty_five_and_every_form() -> None:
    assert len(FILES) >= 25
    assert set(FORMS.values()) <= set(FILES)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_finds_the_draft(form: str) -> None:
    expected = (FIXTURES / "launch" / f"{FORMS[form]}.txt").read_text(encoding="utf-8")
    drafts = [line.split()[1] for line in expected.splitlines() if line.startswith("  draft ") and " tp " not in line]
    assert drafts == ["/models/healthy"]
