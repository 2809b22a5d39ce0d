"""DC507: quantised tensors that the engine would build as plain ones, and the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.names import names, places, plans, quantised_parts
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.model import Layer
from drafcheck.plan.quantised import FLOATS, KEY, declared, scheme_of
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor


@rule("DC507", "quantization", Severity.ERROR, needs=("contract", "load"))
def quantization(s: Subject) -> Iterator[Hit]:
    """Layers are stored quantised and built plain, or the reverse.

    ## What it does
    Without a `quantization_config`: reports tensors of 8 bits and fewer, and of complex numbers, that reach a plain
    parameter, and the scales and packed parts of a quantised checkpoint. With one (fp8, compressed-tensors, ModelOpt,
    AWQ, GPTQ): works out which layers the release builds quantised, by the names that the constructor really asks for,
    and reports plain tensors for a quantised layer, quantised ones for a plain layer, fused projections of both kinds,
    and scales that are missing. Where releases read an entry of the ignore list differently, the file is taken at its
    word.

    ## Why is this bad?
    The numbers are cast one by one and their scales are dropped or left unwritten without a word: the layer computes
    something else. SGLang asks for the layers of an EAGLE-3 draft by names such as `model.qkv_proj`, of a DFlash draft
    by `qkv_proj`, and for a multi-token-prediction layer by `model.decoder`, which no exporter lists: a layer that was
    left plain beside a quantised target is built quantised. vLLM counts its layers on from the target's, and up to
    0.11 builds the draft by the target's quantisation.

    ## Fix
    Write the `quantization_config` of the exporter into config.json, and quantise all of the decoder layer or nothing.
    """
    plan, contract = plans(s)
    yield from _layers(s, plan.layers)
    if contract.names.get("quantised_parts"):
        return  # the config says that there are quantised tensors
    told = {layer.name for layer in plan.layers}
    plain = (w for w in plan.writes if w.tensor.dtype not in FLOATS and not plan.parameters[w.parameter].whole)
    lone = [w.tensor for w in plain if _layer_of(w.parameter) not in told]
    yield from _complex(s, [tensor for tensor in lone if tensor.dtype == "C64"])
    stored = [tensor for tensor in lone if tensor.dtype != "C64"]
    parts = plan.nameless.ending(*quantised_parts()) if not told else []
    if stored or parts:
        first = f"`{stored[0].name}` is stored as {stored[0].dtype}" if stored else f"`{parts[0].name}` is a part"
        absent = s.config is None or not s.config.data.get(KEY)
        why = "config.json has no quantization_config" if absent else "this release does not go by quantization_config"
        yield Hit(
            f"{count(len(stored) + len(parts), 'tensor')} of a quantised checkpoint, and {why}: {s.engine} builds "
            f"plain parameters ({first}): {listed(names(stored + parts))}",
            (*places(stored + parts), *((s.config.at(KEY),) if s.config else ())),
            help="write the exporter's quantization_config into config.json, or export without quantisation"
            if absent
            else "export without quantisation, or serve with a release that goes by it",
            about=names(stored + parts),
        )


def _complex(s: Subject, tensors: list[Tensor]) -> Iterator[Hit]:
    """Complex numbers for real parameters: torch 2.13 copies them and drops the imaginary part."""
    if tensors:
        yield Hit(
            f"{listed(names(tensors))} {'holds' if len(tensors) == 1 else 'hold'} complex numbers: {s.engine} builds "
            "real parameters, and the imaginary part is dropped where they are copied",
            places(tensors),
            help="export real numbers",
            confidence=Confidence.LIKELY,
            about=names(tensors),
        )


def _layer_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _layers(s: Subject, layers: list[Layer]) -> Iterator[Hit]:
    """One finding for each way in which file and constructor part."""
    mixed = [layer for layer in layers if layer.packed and layer.plain]
    rest = [layer for layer in layers if not (layer.packed and layer.plain)]
    if mixed:
        yield _hit(s, mixed, "are one parameter, of which the file holds parts quantised and parts plain", _ALL)
    if bare := [layer for layer in rest if layer.state == "built" and layer.plain]:
        inherits = s.contract is not None and s.contract.quantised.get("of") == "target"
        text = f"{_whose(s)} has {s.engine} build them quantised, and the file holds plain tensors for"
        yield _hit(s, bare, text, _NEWER if inherits else _ALL, before=True)
    if packed := [layer for layer in rest if layer.state == "left" and layer.packed]:
        yield _hit(s, packed, "are quantised in the file, and plain ones are built", "export them plain")
    if short := [layer for layer in rest if layer.state != "left" and layer.missing]:
        parts = listed(sorted({part for layer in short for _, part in layer.missing}))
        yield _hit(s, short, f"are quantised in the file, which lacks their {parts}", "export the drafter again")


_ALL = "quantise every layer that this release quantises, or none of them and leave quantization_config out"
_NEWER = "serve with a release that builds the draft by its own config, or with a target that is not quantised"


def _whose(s: Subject) -> str:
    own = s.contract is None or s.contract.quantised.get("of", "draft") == "draft"
    return f"{KEY} of {'the draft' if own else 'the target'}"


def _hit(s: Subject, layers: list[Layer], text: str, advice: str, *, before: bool = False) -> Hit:
    shown = listed([layer.name for layer in layers])
    return Hit(
        f"{text} {shown}" if before else f"{shown} {text}: {s.engine} stops or serves something else",
        _at(s),
        help=advice,
        confidence=Confidence.CERTAIN if _is_proven(s) else Confidence.LIKELY,
        about=tuple(layer.name for layer in layers),
    )


def _is_proven(s: Subject) -> bool:
    scheme = scheme_of(s.contract, s.config) if s.contract is not None and s.config is not None else None
    return scheme is not None and scheme.proven


def _at(s: Subject) -> tuple[Location, ...]:
    """The config that declares the quantisation."""
    assert s.contract is not None and s.config is not None
    of_target = s.contract.quantised.get("of") == "target" and s.target is not None
    document = s.target if of_target and s.target is not None else s.config
    return (document.at(KEY),) if declared(s.contract, s.config) else ()
