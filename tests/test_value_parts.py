"""``--values`` on complex numbers, whose two parts are numbers each, and on tensors of one number without a side."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from test_complex import NAME, report_on
from test_values import check, spoken
from variants import healthy
from weights import Weight, write_safetensors

from drafcheck.checkpoint import WeightFile
from drafcheck.source import LocalFile
from drafcheck.valuescan.model import TensorValues
from drafcheck.valuescan.scan import scan

SHAPE = (40, 30)


def values_of(path: Path, numbers: np.ndarray[tuple[int, ...], np.dtype[np.complex64]]) -> TensorValues:
    write_safetensors(path, {"t": Weight("C64", numbers.shape, numbers.astype("<c8").tobytes())})
    (values,) = scan([WeightFile(LocalFile(path))]).tensors
    return values


def drawn() -> np.ndarray[tuple[int, ...], np.dtype[np.complex64]]:
    random = np.random.default_rng(1)
    return (random.standard_normal(SHAPE) + 1j * random.standard_normal(SHAPE)).astype(np.complex64)


@pytest.mark.parametrize("bad", [complex(math.nan, 1), complex(1, math.inf), complex(math.nan, -math.inf)])
def test_a_part_that_is_no_number_is_counted_where_it_is(tmp_path: Path, bad: complex) -> None:
    numbers = drawn()
    numbers[3, 7] = bad
    values = values_of(tmp_path / "x.safetensors", numbers)
    assert (values.bad, values.first, values.rows) == (1, 3 * 30 + 7, 40)


def test_complex_numbers_are_numbers(tmp_path: Path) -> None:
    """Also of one part that is zero, and rows of zeros count as such."""
    numbers = drawn()
    numbers[5], numbers[6] = 0, numbers[6].real
    values = values_of(tmp_path / "x.safetensors", numbers)
    assert (values.bad, values.empty.count, values.empty.first) == (0, 1, 5)
    assert values.absmax is None and not values.ones and not values.zero


@pytest.mark.parametrize("bad", [False, True])
def test_a_draft_with_complex_numbers_that_are_none_says_so(tmp_path: Path, bad: bool) -> None:
    pair = healthy()
    rows, width = pair.weights[NAME].shape
    numbers = np.ones((rows, width), "<c8")
    if bad:
        numbers[2, 1] = complex(1, math.nan)
    pair.weights[NAME] = Weight("C64", (rows, width), numbers.tobytes())
    said = [f"`{NAME}` holds 1 value that is Inf or NaN, the first at [2, 1]"] if bad else []
    assert [f.message for f in spoken(check(pair.write(tmp_path / "ckpt"))) if f.rule == "DC801"] == said


def test_complex_numbers_of_16_bytes_are_said_not_to_be_read(tmp_path: Path) -> None:
    """Which safetensors does not know; those of 8 bytes are read in a pickle too."""
    for storage, width, whole in (("ComplexDoubleStorage", 16, False), ("ComplexFloatStorage", 8, True)):
        report_on(tmp_path / storage, storage, width)
        report = check(tmp_path / storage)
        assert "DC801" not in {f.rule for f in report.findings} and (report.values == 1) is whole
        assert [s.asked for s in report.skipped if s.rule == "DC801"] == [True] * (not whole)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_number_without_a_side_has_no_place(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pair = healthy()
    pair.weights["scale"] = Weight("F32", shape, np.array(math.nan, "<f4").tobytes())
    [finding] = [f for f in spoken(check(pair.write(tmp_path / "ckpt"))) if f.rule == "DC801"]
    assert finding.message.endswith("holds 1 value that is Inf or NaN" + (", the first at [0]" if shape else ""))
