"""The quick verdict on a mapping is the plain one, or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drafts import DRAFT_VOCAB, VOCAB, Draft
from hypothesis import given
from hypothesis import strategies as st
from weights import mask, offsets, spread

from drafcheck.finding import Confidence
from drafcheck.plan.quick import Ids, confirmed
from drafcheck.plan.vocabulary import judge, to_targets
from drafcheck.runner import Options, examine_many, lint_many, report_of
from drafcheck.tensor import Tensor

OPTIONS = Options(engine="sglang==0.5.15")


def quick(raw: list[int], flags: bytes, dtype: str = "I64") -> tuple[Ids, Ids] | None:
    data = np.array(raw, "<i8" if dtype == "I64" else "<i4").tobytes()
    return confirmed(Tensor("d2t", dtype, (len(raw),), "model.safetensors"), data, flags)


@given(
    st.lists(st.integers(-12, 12) | st.sampled_from([-(2**63), 2**63 - 1]), min_size=1, max_size=8),
    st.binary(min_size=1, max_size=12).map(lambda b: bytes(x & 1 for x in b)),
)
def test_quick_is_the_plain_verdict_on_any_values(raw: list[int], flags: bytes) -> None:
    found = quick(raw, flags)
    plain = judge(raw, flags, None) == ("offset", Confidence.CERTAIN)
    assert (found is not None) == plain
    if found is not None:
        assert (list(found[0]), list(found[1])) == (raw, to_targets(raw, "offset"))


@given(st.sets(st.integers(0, 40), min_size=2), st.sampled_from(["I64", "I32"]), st.randoms())
def test_quick_confirms_every_healthy_mapping(kept: set[int], dtype: str, random: st.DataObject) -> None:
    tokens = list(kept)
    random.shuffle(tokens)  # type: ignore[attr-defined]
    raw = [token - i for i, token in enumerate(tokens)]
    found = quick(raw, bytes(t in kept for t in range(41)), dtype)
    if any(raw):
        assert found is not None
        assert list(found[1]) == tokens


AMID = """
import sys, threading
from drafcheck.plan.quick import confirmed, warm_up
from drafcheck.tensor import Tensor

assert "numpy" not in sys.modules
sys.setswitchinterval(1e-5)
other = threading.Thread(target=warm_up)
other.start()
while "numpy" not in sys.modules:
    pass
one = (1).to_bytes(8, "little")
print(confirmed(Tensor("d2t", "I64", (1,), "model.safetensors"), one, b"\\0\\1"))
other.join()
"""


def test_quick_waits_for_numpy_while_another_thread_imports_it() -> None:
    done = subprocess.run([sys.executable, "-c", AMID], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "Ids" in done.stdout


def test_quick_needs_numpy_and_whole_values(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = spread(DRAFT_VOCAB, VOCAB)
    stored, flags = offsets(kept), mask(VOCAB, kept)
    assert stored.data is not None
    tensor = Tensor("d2t", "I64", (DRAFT_VOCAB,), "model.safetensors")
    assert confirmed(tensor, stored.data, flags.data) is not None
    assert confirmed(tensor, stored.data[:-8], flags.data) is None
    assert confirmed(tensor._replace(dtype="F64"), stored.data, flags.data) is None
    assert confirmed(tensor, stored.data, None) is None
    monkeypatch.delitem(sys.modules, "numpy")
    assert confirmed(tensor, stored.data, flags.data) is None


def test_ids_are_a_sequence() -> None:
    ids = Ids(np.array([3, 1, 2]))
    assert (ids[0], ids[-1], ids[:2], len(ids), max(ids), 2 in ids) == (3, 2, [3, 1], 3, 3, True)
    assert isinstance(ids[0], int)
    assert ids == [3, 1, 2]
    assert ids != [3, 1]
    assert hash(ids) == hash(Ids(np.array([3, 1, 2])))


def test_many_checkpoints_get_the_reports_of_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for n in range(24):
        draft = Draft()
        if n % 3 == 1:
            draft.weights["d2t"] = offsets(spread(DRAFT_VOCAB, VOCAB)[::-1])
        if n % 3 == 2:
            draft.weights["t2d"] = mask(VOCAB, list(range(DRAFT_VOCAB)))
        draft.write(tmp_path / f"{n:02}")
        paths.append(tmp_path / f"{n:02}")
    together = lint_many(paths, OPTIONS)
    monkeypatch.delitem(sys.modules, "numpy")
    alone = [report_of(examine_many([path], OPTIONS)).checkpoints[0] for path in paths]
    assert list(together.checkpoints) == alone
    assert {f.rule for f in alone[2].findings} > {"DC307"}


def test_many_checkpoints_are_not_kept_in_memory(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    first, second = examine_many([tmp_path, tmp_path], OPTIONS)
    assert first.subject is not None
    assert first.subject.vocabulary is not None
    assert second.subject is not None
    assert second.subject.vocabulary is None
