"""Configs whose rope keys hold values of types that no engine calculates with: for record_rope.py --odd."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

TOP: Json = {"rope_theta": 500000.0}
YARN: Json = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
KINDS: dict[str, Json] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": YARN,
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 2.0,
        "short_factor": [1.0] * 16,
        "long_factor": [2.0] * 16,
        "original_max_position_embeddings": 128,
    },
    "default": {"rope_type": "default"},
}
ODD: Json = {
    "a text": "x",
    "a number as text": "2.0",
    "a list": [1],
    "a list of a text": ["x"],
    "an empty list": [],
    "null": None,
    "true": True,
    "an object": {},
    "an integer": 3,  # unlike every factor above: a release keeps what it built, and 2 is 2.0 to it
}
SOME = ("a text", "a list", "null", "an object", "an integer")
OF_THE_TYPE: Json = {"a number": 7, "a list": ["yarn"], "null": None, "true": True, "an object": {}, "empty": ""}
SECTIONS: Json = {"a text": "x", "a number": 4, "null": None, "of texts": ["4", "6", "6"], "a list": [4, 6, 6]}


def odd_cases(base: Json) -> dict[str, Json]:
    """Every config by name."""
    return {name: {**base, **keys} for name, keys in (_factors() | _others() | _kinds()).items()}


def _factors() -> dict[str, Json]:
    found: dict[str, Json] = {kind: {"rope_scaling": table, **TOP} for kind, table in KINDS.items()}
    for kind, table in KINDS.items():
        for how, value in ODD.items():
            found[f"{kind}, factor {how}"] = {"rope_scaling": {**table, "factor": value}, **TOP}
        for how in ("a text", "a list"):
            found[f"{kind} in parameters, factor {how}"] = {"rope_parameters": {**table, "factor": ODD[how], **TOP}}
    return found


def _others() -> dict[str, Json]:
    found: dict[str, Json] = {}
    for kind, table in KINDS.items():
        for key in table.keys() - {"rope_type", "factor"}:
            for how in SOME:
                found[f"{kind}, {key} {how}"] = {"rope_scaling": {**table, key: ODD[how]}, **TOP}
    return dict(sorted(found.items()))


def _kinds() -> dict[str, Json]:
    untyped = {key: value for key, value in YARN.items() if key != "rope_type"}
    found: dict[str, Json] = {}
    for how, value in OF_THE_TYPE.items():
        found[f"rope_type {how}"] = {"rope_scaling": {**YARN, "rope_type": value}, **TOP}
        found[f"type {how}"] = {"rope_scaling": {**untyped, "type": value}, **TOP}
        found[f"type {how} beside rope_type"] = {"rope_scaling": {**YARN, "type": value}, **TOP}
        found[f"rope_type {how} in parameters"] = {"rope_parameters": {**YARN, "rope_type": value, **TOP}}
    for how, value in SECTIONS.items():
        found[f"mrope_section {how}"] = {"rope_scaling": {"rope_type": "default", "mrope_section": value}, **TOP}
    for how in ("a text", "a list", "an object"):
        found[f"theta {how}"] = {"rope_theta": ODD[how]}
        found[f"theta {how} inside"] = {"rope_parameters": {"rope_type": "default", "rope_theta": ODD[how]}}
    return found
