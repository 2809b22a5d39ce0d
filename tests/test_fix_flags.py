"""A finding is called fixable exactly where a safe repair has something to do."""

from __future__ import annotations

import pytest
from make_fixtures import FIXTURES
from repairing import checked, edits_for, options_of

from drafcheck.fix.edits import Convert

CASES = sorted(path.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*/args.txt"))


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("DC7", "DC9"))])
def test_fixable_says_whether_a_repair_yields_edits(case: str) -> None:
    seen = checked(FIXTURES / case, options_of(case))
    told = seen.findings if seen.subject is not None else []
    assert [(f.rule, f.fixable) for f in told] == [(f.rule, bool(edits_for(seen, f))) for f in told]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("good/")])
def test_a_good_fixture_has_nothing_to_mend(case: str) -> None:
    """Notes of any rule included; but a plain pickle becomes safetensors."""
    seen = checked(FIXTURES / case, options_of(case))
    mended = {(f.rule, edit) for f in seen.findings for edit in edits_for(seen, f)}
    assert mended == ({("DC010", Convert("pytorch_model.bin"))} if case == "good/plain-state-dict" else set())
