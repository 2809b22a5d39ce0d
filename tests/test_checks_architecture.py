"""DC501 to DC504: each rule with a failing draft and its passing twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import HIDDEN, VOCAB, Draft
from helpers import Edit, codes, lint_draft, of
from weights import zeros

from drafcheck.contract import resolve_engine
from drafcheck.finding import Confidence, Severity
from drafcheck.heads import class_for, head_of
from drafcheck.modeltypes import knows
from drafcheck.tensor import Tensor


def named(*architectures: object) -> Edit:
    return lambda d: d.set(architectures=list(architectures))


def typed(**keys: object) -> Edit:
    return lambda d: d.set(**keys)


def whole_model(draft: Draft) -> None:
    """A small Llama of two layers, as a STANDALONE draft."""
    draft.drop("fc.weight", "d2t", "t2d", "midlayer.hidden_norm.weight")
    layer = {n: t for n, t in draft.weights.items() if n.startswith("midlayer")}
    for name, tensor in layer.items():
        del draft.weights[name]
        shape = (tensor.shape[0], HIDDEN) if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj") else tensor.shape
        for n in (0, 1):
            draft.weights[name.replace("midlayer", f"model.layers.{n}")] = tensor.with_shape(*shape)
    draft.weights["model.embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.shape("lm_head.weight", VOCAB, HIDDEN)
    draft.config.pop("draft_vocab_size")
    draft.set(architectures=["LlamaForCausalLM"], num_hidden_layers=2)


def test_a_class_that_no_release_has(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, named("Eagle3LlamaForCausalLM")), "DC501")
    assert "sglang 0.5.15 has no class Eagle3LlamaForCausalLM; the tensors are an EAGLE-3 head" in found.message
    assert found.help == 'set architectures to ["LlamaForCausalLMEagle3"], which sglang has since 0.4.5'
    assert found.locations[0].key == "architectures"


def test_a_class_that_comes_later(tmp_path: Path) -> None:
    edit = named("Eagle3DeepseekV2ForCausalLM")
    (found,) = of(lint_draft(tmp_path, edit, "0.5.11"), "DC501")
    assert "sglang has it since 0.5.12" in found.message
    mend = 'set architectures to ["LlamaForCausalLMEagle3"], which sglang has since 0.4.5'
    assert found.help == f"{mend}, or use sglang 0.5.12 or later"
    assert of(lint_draft(tmp_path / "late", edit, "0.5.12"), "DC501") == []


def test_a_target_class(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, named("LlamaForCausalLM")), "DC501")
    assert "LlamaForCausalLM is a target class in sglang 0.5.15, not a draft class" in found.message
    assert found.help is not None and "LlamaForCausalLMEagle3" in found.help


@pytest.mark.parametrize("given", ([], None, "LlamaForCausalLMEagle3", [None], [3], {}))
def test_no_class_named(tmp_path: Path, given: object) -> None:
    (found,) = of(lint_draft(tmp_path, typed(architectures=given)), "DC501")
    assert "architectures is no list of class names" in found.message


def test_architectures_absent(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, lambda d: d.config.pop("architectures")), "DC501")
    assert "config.json has no architectures" in found.message


def test_an_unlisted_release_lowers_confidence(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, named("BrandNewEagle3"), "0.9.0"), "DC501")
    assert found.confidence is Confidence.LIKELY


def test_a_whole_model_is_no_draft_head(tmp_path: Path) -> None:
    assert of(lint_draft(tmp_path, whole_model), "DC501") == []
    assert of(lint_draft(tmp_path / "given", whole_model, algorithm="STANDALONE"), "DC501") == []
    (found,) = of(lint_draft(tmp_path / "eagle3", whole_model, algorithm="EAGLE3"), "DC501")
    assert found.help == "serve a whole model with --speculative-algorithm STANDALONE"


def test_a_name_that_draft_mode_replaces(tmp_path: Path) -> None:
    edit = named("Qwen3MoeForCausalLM")
    assert of(lint_draft(tmp_path, edit, "0.5.13"), "DC501") == []
    assert of(lint_draft(tmp_path / "early", edit, "0.5.12"), "DC501")


def test_an_unknown_model_type(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, typed(model_type="eagle3")), "DC502")
    assert "does not know model_type eagle3" in found.message
    assert found.confidence is Confidence.CERTAIN


@pytest.mark.parametrize("model_type", ("llama", "qwen3", "llama4_text", "deepseek_v3"))
@pytest.mark.parametrize("version", ("0.4.5", "0.5.9", "0.5.23"))
def test_model_types_that_drafts_use(version: str, model_type: str) -> None:
    known = knows(resolve_engine(f"sglang=={version}"), model_type)
    assert known is not False
    assert known or (version, model_type) == ("0.4.5", "qwen3")


@pytest.mark.parametrize(
    ("version", "known"),
    (("0.5.9", False), ("0.5.11", False), ("0.5.12", True), ("0.5.23", True)),
)
def test_a_model_type_of_the_engines_own(version: str, known: bool) -> None:
    assert knows(resolve_engine(f"sglang=={version}"), "kimi_k2") is known


def test_nothing_is_claimed_between_two_releases_that_were_read() -> None:
    assert knows(resolve_engine("sglang==0.5.1"), "qwen3_next") is None
    assert knows(resolve_engine("sglang==0.5.8"), "kimi_k25") is None
    assert knows(resolve_engine("sglang==0.5.5"), "kimi_k25") is False
    assert knows(resolve_engine("sglang==0.5.23"), "no such thing") is False


@pytest.mark.parametrize(("version", "sure"), (("0.5.9", Confidence.LIKELY), ("0.5.15", Confidence.CERTAIN)))
def test_model_type_absent(tmp_path: Path, version: str, sure: Confidence) -> None:
    """transformers 4 looks for a model type in the path before it gives up."""
    (found,) = of(lint_draft(tmp_path, lambda d: d.config.pop("model_type"), version), "DC502")
    assert "Unrecognized model" in found.message
    assert found.confidence is sure


def test_auto_map(tmp_path: Path) -> None:
    keys = {"model_type": "my_draft", "auto_map": {"AutoConfig": "configuration_my.MyConfig"}}
    (found,) = of(lint_draft(tmp_path, typed(**keys)), "DC502")
    assert "configuration_my.py, which is not in the checkpoint" in found.message

    def complete(draft: Draft) -> None:
        draft.set(**keys)
        draft.files["configuration_my.py"] = b""

    assert of(lint_draft(tmp_path / "complete", complete), "DC502") == []
    elsewhere = typed(model_type="my_draft", auto_map={"AutoConfig": "me/mine--configuration_my.MyConfig"})
    assert of(lint_draft(tmp_path / "elsewhere", elsewhere), "DC502") == []


def test_auto_map_for_the_model_only_does_not_help(tmp_path: Path) -> None:
    edit = typed(model_type="my_draft", auto_map={"AutoModel": "modeling_my.MyModel"})
    assert of(lint_draft(tmp_path, edit), "DC502")


def nested(draft: Draft) -> None:
    outside = ("architectures", "draft_vocab_size", "torch_dtype")
    inside = {k: v for k, v in draft.config.items() if k not in outside}
    kept = {k: v for k, v in draft.config.items() if k in outside}
    draft.config = {**kept, "speculators_model_type": "eagle3", "transformer_layer_config": inside}
    draft.set(architectures=["Eagle3DraftModel"])


def test_a_nested_config(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, nested)
    (hit,) = of(found, "DC503")
    assert "speculators config" in hit.message and "hidden_size" in hit.message
    assert hit.help is not None and "LlamaForCausalLMEagle3" in hit.help
    assert not codes(found) & {"DC501", "DC502", "DC504"}


def test_a_nested_config_with_a_model_type(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        nested(draft)
        draft.set(model_type="llama")

    assert of(lint_draft(tmp_path, edit), "DC503")


def test_keys_at_both_levels(tmp_path: Path) -> None:
    edit = typed(transformer_layer_config={"hidden_size": 1}, speculators_model_type="eagle3")
    assert of(lint_draft(tmp_path, edit), "DC503") == []


@pytest.mark.parametrize("body", (None, [], "x", {}))
def test_a_body_of_another_type(tmp_path: Path, body: object) -> None:
    assert of(lint_draft(tmp_path, typed(transformer_layer_config=body)), "DC503") == []


def eagle1(draft: Draft) -> None:
    gone = (
        "d2t",
        "t2d",
        "norm.weight",
        "lm_head.weight",
        "midlayer.hidden_norm.weight",
        "midlayer.input_layernorm.weight",
    )
    draft.drop(*gone)
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    draft.shape("fc.weight", HIDDEN, 2 * HIDDEN)
    for part in "qkv":
        name = f"layers.0.self_attn.{part}_proj.weight"
        draft.shape(name, draft.weights[name].shape[0], HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)


def one_state(draft: Draft) -> None:
    eagle1(draft)
    draft.drop("fc.weight", "embed_tokens.weight")


def with_tensor(name: str) -> Edit:
    def edit(draft: Draft) -> None:
        draft.weights[name] = zeros("BF16", HIDDEN, HIDDEN)

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    (
        (eagle1, f"an EAGLE-1 head (`fc.weight` is [{HIDDEN}, {2 * HIDDEN}])"),
        (one_state, "a head for one hidden state, without fc"),
        (with_tensor("eh_proj.weight"), "a multi-token-prediction layer"),
        (with_tensor("medusa_head.0.0.linear.weight"), "a Medusa head"),
        (with_tensor("markov_head.markov_w1.weight"), "a DSpark head"),
    ),
)
def test_tensors_of_another_kind(tmp_path: Path, edit: Edit, said: str) -> None:
    (found,) = of(lint_draft(tmp_path, edit), "DC504")
    assert f"the tensors are {said}" in found.message
    assert "LlamaForCausalLMEagle3 builds an EAGLE-3 head" in found.message


def test_an_eagle_3_head_under_an_eagle_1_class(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, named("LlamaForCausalLMEagle")), "DC504")
    assert "the tensors are an EAGLE-3 head" in found.message
    assert found.help is not None and "LlamaForCausalLMEagle3" in found.help


def test_an_eagle_1_head_under_its_class(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        eagle1(draft)
        draft.set(architectures=["LlamaForCausalLMEagle"])

    assert of(lint_draft(tmp_path, edit), "DC504") == []
    (found,) = of(lint_draft(tmp_path / "given", edit, algorithm="EAGLE3"), "DC504")
    assert found.help == "serve it with --speculative-algorithm EAGLE"


def tensors(**shapes: tuple[int, ...]) -> list[Tensor]:
    return [Tensor(name.replace("__", "."), "BF16", shape, "model.safetensors") for name, shape in shapes.items()]


def test_heads_from_names_and_shapes() -> None:
    layer = {"layers__0__self_attn__o_proj__weight": (8, 8)}
    mla = tensors(fc__weight=(8, 24), midlayer__self_attn__q_a_proj__weight=(4, 16), **layer)
    found = head_of(mla)
    assert found is not None and found.kind == "eagle3"
    engine = resolve_engine("sglang==0.5.15")
    assert class_for(engine, found, ["midlayer.self_attn.kv_a_proj_with_mqa.weight"]) == "Eagle3DeepseekV2ForCausalLM"
    assert class_for(engine, found, ["midlayer.self_attn.q_norm.weight"]) is None
    dflash = tensors(fc__weight=(8, 16), hidden_norm__weight=(8,), layers__0__self_attn__q_proj__weight=(8, 8), **layer)
    found = head_of(dflash)
    assert found is not None and found.kind == "dflash"


def test_odd_tensors_have_no_kind() -> None:
    assert head_of([]) is None
    assert head_of(tensors(fc__weight=(0, 0), layers__0__self_attn__o_proj__weight=(0, 0))) is None
    assert head_of(tensors(x=(), fc__weight=(3,))) is None


NATIVE = {"model_type": "deepseek_v3", "auto_map": {"AutoConfig": "configuration_my.MyConfig"}}


@pytest.mark.parametrize(
    ("option", "severity"),
    (("", None), ("--trust-remote-code", Severity.ERROR), ("--config server.yaml", Severity.WARNING)),
)
def test_auto_map_of_a_known_model_type(tmp_path: Path, option: str, severity: Severity | None) -> None:
    """The file is wanted only where the launch allows code of the checkpoint; without a launch nothing says so."""
    launch = tmp_path / "serve.sh"
    launch.write_text(
        f"python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 {option} "
        f"--speculative-draft-model-path {tmp_path / 'draft'}\n"
    )
    found = of(lint_draft(tmp_path / "draft", typed(**NATIVE), launch=launch), "DC502")
    assert [f.severity for f in found] == ([] if severity is None else [severity])


def test_auto_map_with_nothing_said(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path / "native", typed(**NATIVE)), "DC502")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)
    assert "stops with --trust-remote-code, and builds deepseek_v3 by itself without it" in found.message
    (other,) = of(lint_draft(tmp_path / "other", typed(**{**NATIVE, "model_type": "my_draft"})), "DC502")
    assert (other.severity, other.confidence) == (Severity.ERROR, Confidence.CERTAIN)
