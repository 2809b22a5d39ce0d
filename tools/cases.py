"""The table of fixtures: a path such as ``DC101/renamed-projection`` and the edit that breaks a healthy draft so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from drafts import Draft

Edit = Callable[[Draft], None]

FAMILIES = (
    "cases_files",
    "cases_names",
    "cases_vocabulary",
    "cases_wiring",
    "cases_norms",
    "cases_layers",
    "cases_config",
    "cases_rope",
    "cases_mtp",
    "cases_standalone",
    "cases_settings",
    "cases_vllm",
    "cases_vllm_wiring",
    "cases_engines",
    "cases_reference",
    "cases_classes",
    "cases_launch",
    "cases_fix",
    "cases_values",
    "cases_ranks",
    "cases_kv",
    "cases_quantised",
)


@dataclass(frozen=True)
class Case:
    """One fixture. ``engine`` is the release it is linted for, ``args`` are further options."""

    path: str
    engine: str
    args: str
    edit: Edit

    def draft(self) -> Draft:
        """The draft, edited."""
        draft = Draft(engine=self.engine, args=self.args)
        self.edit(draft)
        return draft


CASES: dict[str, Case] = {}


def case(path: str, version: str = "0.5.15", args: str = "") -> Callable[[Edit], Edit]:
    """Declare the decorated edit as the fixture at ``path``; ValueError when it is declared twice.

    ``version`` is one of SGLang, or names its engine: ``vllm==0.33.0``.
    """
    engine = version if "==" in version else f"sglang=={version}"

    def declare(edit: Edit) -> Edit:
        if path in CASES:
            raise ValueError(f"fixture {path} is declared twice")
        CASES[path] = Case(path, engine, args, edit)
        return edit

    return declare


def load_cases() -> dict[str, Case]:
    """All cases in order of path."""
    for family in FAMILIES:
        importlib.import_module(family)
    return dict(sorted(CASES.items()))
