"""What a list of tensors answers for many names at once is what a look at each of them tells."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from drafcheck import tensors as lists
from drafcheck.plan.model import Drop, Drops
from drafcheck.tensor import Tensor
from drafcheck.tensors import NO_LAYER, Called, Piece, Tensors, layer_of

WORDS = ["d2t", "t2d", "layers", "layers.0.", "norm", "weight", "fc.weight", "w", "1", "12", "é", "", ".."]
PARTS = ["layers", "0", "7", "012", "1234567", "12x", "norm", "weight", "w", "fc", "d2t", "d3t", "é", "٣", "", "a\nb"]

FORMS = ["model.layers.{}.w", "layers.{}", "a{}.norm.weight", "x.{}.layers.{}.b", "d{}t"]
FORMS += ["a.layers.{}w.x", "layers.{}.{}", "a.layers.7.b{}", "layers..{}", "layers.0{}.w", "layers.{}.layers.{}.w"]


def made(names: list[str]) -> list[Tensor]:
    return [Tensor(name, "BF16" if i % 3 else "I64", (i % 2, 3), "f", 4 * i, 4 * i + i) for i, name in enumerate(names)]


def some_names(rng: random.Random) -> list[str]:
    names = [".".join(rng.choices(PARTS, k=rng.randrange(1, 5))) for _ in range(rng.randrange(12))]
    form = rng.choice(FORMS)
    return names[: rng.choice([0, 12])] + [form.format(i, rng.randrange(30)) for i in range(rng.choice([0, 3, 40]))]


@pytest.fixture(params=[(1024, 4), (7, 4), (16, 0.01), (1, 0.01)])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "AT_ONCE", request.param[0])
    monkeypatch.setattr(lists, "_ALIKE", request.param[1])


@pytest.mark.usefixtures("sizes")
def test_the_same_as_one_by_one() -> None:
    rng = random.Random(3)
    folded = 0
    for _ in range(150):
        names = some_names(rng)
        plain, found = made(names), Tensors(made(names))
        folded += any(piece.lines[1] for piece in found.pieces)
        assert found == plain and list(reversed(found)) == plain[::-1] and len(found) == len(plain)
        for word in WORDS:
            assert found.has(word) is any(word in name for name in names)
            assert found.holding(word) == [t for t in plain if word in t.name]
            assert found.ending(word) == [t for t in plain if t.name.rpartition(".")[2] == word]
        assert [n for p in found.pieces for n in p.layers] == [
            NO_LAYER if (number := layer_of(name)) is None else number for name in names
        ]
        assert all(
            set(p.different_layers) == set(p.layers) for p in found.pieces for _ in "ab"
        )  # kept at the first time
        assert sum(p.stored for p in found.pieces) == sum(t.stop - t.start for t in plain)
        assert sum((p.kinds for p in found.pieces), Counter()) == Counter((t.dtype, t.shape) for t in plain)
        assert found.of_kind(["I64"], (0, 3)) == [t for t in plain if (t.dtype, t.shape) == ("I64", (0, 3))]
        called = Called.by(["layers.0", "d2t", "fc.weight"])
        for piece in found.pieces:
            assert piece.may_be(called) or called.whole.isdisjoint(piece.names)
    assert folded or lists.AT_ONCE == 7


def test_what_is_added_later_is_found() -> None:
    found = Tensors()
    for tensor in made(["a", "b.d2t"]):
        assert not found.has("d2t")
        found.append(tensor)
    assert found.has("d2t")
    piece = Piece(made(["x.layers.4.y"]))
    found.add(piece)
    found.append(made(["z"])[0])
    assert [t.name for t in found] == ["a", "b.d2t", "x.layers.4.y", "z"] and len(piece.tensors) == 1
    assert found[0].name == "a" and found[-1].name == "z" and [t.name for t in found[1:3]] == ["b.d2t", "x.layers.4.y"]
    for at in (4, -5):
        with pytest.raises(IndexError):
            found[at]


def test_drops_keep_their_order() -> None:
    one, two, three = made(["a", "b", "c"])
    drops = Drops()
    drops.append(Drop(one, "design"))
    drops.add(Piece([two]))
    drops.extend([Drop(three, "unknown")])
    assert drops == [Drop(one, "design"), Drop(two, "unknown"), Drop(three, "unknown")]
    assert list(drops.names) == ["a", "b", "c"] and len(drops) == 3 and drops[1].tensor is two
    assert drops.because("design") == [Drop(one, "design")] and len(drops.because("unknown")) == 2
