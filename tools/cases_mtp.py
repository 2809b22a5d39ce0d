"""Multi-token-prediction layers: a head that lies in the target's own checkpoint."""

from __future__ import annotations

from cases import case
from drafts import Draft
from mtp_families import FAMILIES
from mtp_heads import LAYERS, Family

LAYER = f"model.layers.{LAYERS}"


def become(draft: Draft, name: str) -> Family:
    """Take the whole checkpoint of a family, which is draft and target in one."""
    family = FAMILIES[name]
    draft.config, draft.weights, draft.target = family.config(), family.weights(), family.config()
    return family


@case("good/mtp-layer-of-deepseek", "0.5.9")
def deepseek(draft: Draft) -> None:
    become(draft, "deepseek")


@case("good/mtp-layer-of-glm", "0.5.16")
def glm(draft: Draft) -> None:
    become(draft, "glm4_moe")


@case("good/mtp-layer-on-its-own", "0.5.9")
def alone(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.rename(lambda name: name.replace(LAYER, "model.layers.0") if name.startswith(LAYER) else f"target.{name}")
    draft.drop(*[name for name in draft.weights if name.startswith("target.")])
    draft.set(num_hidden_layers=1)


@case("DC102/mtp-layer-missing", "0.5.9")
def missing(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.drop(*[name for name in draft.weights if name.startswith(LAYER)])


@case("DC102/mtp-projection-missing", "0.5.16")
def no_projection(draft: Draft) -> None:
    become(draft, "glm4_moe")
    draft.drop(f"{LAYER}.eh_proj.weight")


@case("DC103/mtp-expert-missing", "0.5.9")
def no_expert(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.drop(*[name for name in draft.weights if "experts.3." in name])


@case("DC102/mtp-half-of-a-pair", "0.5.9")
def half(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.drop(f"{LAYER}.self_attn.kv_a_proj_with_mqa.weight")


@case("DC105/mtp-behind-a-prefix", "0.5.9")
def prefixed(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.rename(lambda name: f"language_model.{name}")


@case("DC201/mtp-expert-too-long", "0.5.9")
def long_expert(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.shape(f"{LAYER}.mlp.experts.1.gate_proj.weight", 40, 64)


@case("DC201/mtp-expert-too-short", "0.5.17")
def short_expert(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.shape(f"{LAYER}.mlp.experts.1.gate_proj.weight", 24, 64)


@case("DC203/mtp-layer-elsewhere", "0.5.9")
def elsewhere(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.set(num_hidden_layers=LAYERS + 1)


@case("DC509/two-mtp-layers", "0.5.9")
def two(draft: Draft) -> None:
    become(draft, "deepseek")
    draft.set(num_nextn_predict_layers=2)


@case("good/mtp-head-of-qwen3-next", "0.5.23")
def qwen3_next(draft: Draft) -> None:
    become(draft, "qwen3_next")


@case("good/mtp-head-of-qwen3-moe", "0.5.16")
def qwen3_moe(draft: Draft) -> None:
    become(draft, "qwen3_moe")


@case("good/mtp-layer-of-mimo", "0.5.9")
def mimo(draft: Draft) -> None:
    become(draft, "mimo")


@case("good/mtp-layer-of-ernie", "0.5.16")
def ernie(draft: Draft) -> None:
    become(draft, "ernie")


@case("DC102/mtp-head-missing-qwen3-moe", "0.5.13")
def no_qwen(draft: Draft) -> None:
    become(draft, "qwen3_moe")
    draft.drop(*[name for name in draft.weights if name.startswith("mtp.")])


@case("DC102/mtp-head-missing-ernie", "0.5.16")
def no_ernie(draft: Draft) -> None:
    become(draft, "ernie")
    draft.drop(*[name for name in draft.weights if ".mtp_" in name])


@case("DC102/mtp-layer-missing-quantised", "0.5.16")
def no_layer_quantised(draft: Draft) -> None:
    become(draft, "glm4_moe")
    draft.drop(*[name for name in draft.weights if name.startswith(LAYER)])
    draft.set(quantization_config={"quant_method": "awq", "bits": 4})


@case("good/mtp-head-of-qwen3.5", "0.5.23")
def qwen3_5(draft: Draft) -> None:
    become(draft, "qwen3_5")


@case("good/mtp-head-of-qwen3.5-moe", "0.5.9")
def qwen3_5_moe(draft: Draft) -> None:
    become(draft, "qwen3_5_moe")


@case("good/mtp-layers-of-mimo-v2", "0.5.23")
def mimo_v2(draft: Draft) -> None:
    become(draft, "mimo_v2")


@case("DC102/mtp-head-missing-qwen3.5", "0.5.23")
def no_qwen3_5(draft: Draft) -> None:
    become(draft, "qwen3_5")
    draft.drop(*[name for name in draft.weights if name.startswith("mtp.")])


@case("DC201/mtp-experts-in-one-tensor", "0.5.9")
def whole_experts(draft: Draft) -> None:
    become(draft, "qwen3_5_moe")
    draft.shape("mtp.layers.0.mlp.experts.gate_up_proj", 4, 64, 72)


@case("DC104/mtp-experts-behind-a-prefix", "0.5.23")
def prefixed_experts(draft: Draft) -> None:
    become(draft, "qwen3_5_moe")
    draft.rename(lambda name: f"module.{name}" if name.startswith("mtp.") else name)
