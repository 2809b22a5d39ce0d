"""Repairs of the config: which keys are changed, and that the finding is then gone and no tensor another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drafts import HEAD_DIM, HIDDEN, Draft
from make_fixtures import FIXTURES
from repairing import checked, contents, edits_for, hashed, mended, mended_draft, options_of
from weights import zeros

from drafcheck.fix.edits import Edit, RemoveKey, SetKey
from drafcheck.fix.mend import Mended
from drafcheck.fix.registry import Wishes
from drafcheck.session import Options

GONE = "(gone)"
CASES = sorted(path.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*/args.txt"))

CHANGES: dict[str, dict[str, Any]] = {
    "DC201/fewer-kv-heads": {"num_key_value_heads": 2},
    "DC201/mlp-too-wide": {"intermediate_size": 96},
    "DC201/vllm-more-kv-rows": {"num_key_value_heads": 4},
    "DC202/head-dim-absent": {"head_dim": 16},
    "DC203/lmdeploy-two-layers": {"num_hidden_layers": 1},
    "DC203/mtp-layer-elsewhere": {"num_hidden_layers": 2},
    "DC203/two-layers-0.5.9": {"num_hidden_layers": 1},
    "DC203/two-layers-one-in-the-file": {"num_hidden_layers": 1},
    "DC203/vllm-second-layer-missing": {"num_hidden_layers": 1},
    "DC401/target-hidden-size": {"target_hidden_size": 32},
    "DC401/vllm-speculators-four-ids": {"transformer_layer_config.num_aux_hidden_states": 4},
    "DC402/switched-off": {"eagle_config.use_aux_hidden_state": True},
    "DC402/vllm-switched-off": {"eagle_config.use_aux_hidden_state": True},
    "DC405/speculators-numbers-inputs": {"eagle_config.eagle_aux_hidden_state_layer_ids": [0, 2, 3]},
    "DC407/aux-norm-of-old": {"fc_norm": True},
    "DC407/fc-norm-where-nobody-looks": {"fc_norm": True},
    "DC407/input-norm-denied": {"eagle_config.norm_before_fc": True},
    "DC407/input-norm-unsaid": {"norm_before_fc": True},
    "DC407/trtllm-flag-at-the-top": {"eagle_config.norm_before_fc": True},
    "DC501/absent": {"architectures": ["LlamaForCausalLMEagle3"]},
    "DC501/lmdeploy-class-name": {"architectures": ["LlamaForCausalLM"]},
    "DC501/plain-llama": {"architectures": ["LlamaForCausalLMEagle3"]},
    "DC501/too-early": {"architectures": ["LlamaForCausalLMEagle3"]},
    "DC501/unregistered": {"architectures": ["LlamaForCausalLMEagle3"]},
    "DC501/vllm-prefixed-twice": {"architectures": ["Eagle3LlamaForCausalLM"]},
    "DC501/vllm-too-early": {"architectures": ["Eagle3LlamaForCausalLM"]},
    "DC502/absent": {"model_type": "llama"},
    "DC502/eagle3": {"model_type": "llama"},
    "DC502/file-of-auto-map": {"auto_map": GONE, "model_type": "llama"},
    "DC502/vllm-eagle3": {"model_type": "llama"},
    "DC504/eagle-1-as-eagle-3": {"architectures": ["LlamaForCausalLMEagle"]},
    "DC504/eagle-3-as-eagle-1": {"architectures": ["LlamaForCausalLMEagle3"]},
    "DC506/new-form-alone-0.5.9": {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    },
    "DC506/theta-beside-a-scaling": {"rope_theta": 500000.0},
    "DC508/absent": {"torch_dtype": "bfloat16"},
    "DC508/float16": {"torch_dtype": "bfloat16"},
    "DC509/size-as-text": {"hidden_size": 32},
    "DC509/target-hidden-size-null": {"target_hidden_size": GONE},
    "DC509/vllm-model-type-of-deepseek": {"model_type": "llama"},
}
"""The keys of config.json that a repair changes, by fixture."""

LEFT = [
    "DC201/fc-rows",
    "DC201/mtp-expert-too-long",
    "DC201/mtp-expert-too-short",
    "DC201/norm-of-one",
    "DC201/q-takes-one-half",
    "DC202/heads-split-otherwise",
    "DC401/four-ids",
    "DC401/one-state",
    "DC401/two-ids",
    "DC402/algorithm-eagle",
    "DC404/default-numbers-copied",
    "DC404/modelopt-inputs-on-gpt-oss-0.5.16",
    "DC404/torchspec-on-kimi-0.5.23",
    "DC405/top-level",
    "DC405/vllm-nested-under-v2",
    "DC405/vllm-read-by-no-runner",
    "DC406/speculators-0.4-null-ids",
    "DC407/flag-without-tensors",
    "DC407/input-norm-0.5.16",
    "DC409/eagle-1-other-width",
    "DC409/wider-target",
    "DC501/vllm-as-eagle",
    "DC503/vllm-gemma",
    "DC503/vllm-parallel-0.16.0",
    "DC505/refused",
    "DC506/llama3-without-a-factor",
    "DC506/no-theta-and-not-of-eagle",
    "DC506/two-thetas",
    "DC509/dflash-mask-token",
    "DC509/two-mtp-layers",
]
"""Fixtures whose fault has no remedy, or several."""


def said(edits: list[Edit]) -> dict[str, Any]:
    """The keys that edits change, with the new values."""
    found: dict[str, Any] = {}
    for edit in edits:
        assert isinstance(edit, (SetKey, RemoveKey)), edit
        found[".".join(edit.route)] = edit.value if isinstance(edit, SetKey) else GONE
    return found


def changed(done: Mended) -> dict[str, Any]:
    """The keys that a whole repair changes."""
    every = (edit for one in done.rounds for edit in one.edits)
    return said([edit for edit in every if isinstance(edit, (SetKey, RemoveKey))])


@pytest.mark.parametrize("case", CHANGES)
def test_the_key_at_fault_says_what_it_should(case: str) -> None:
    code = case.partition("/")[0]
    done = mended(FIXTURES / case, options_of(case))
    assert changed(done) == CHANGES[case]
    assert code in {f.rule for f in done.first.findings}
    assert code not in {f.rule for f in done.last.findings}
    assert contents(done) == hashed(done.first)


@pytest.mark.parametrize("case", LEFT)
def test_what_could_be_meant_otherwise_is_left(case: str) -> None:
    code = case.partition("/")[0]
    seen = checked(FIXTURES / case, options_of(case))
    told = [f for f in seen.findings if f.rule == code]
    assert told and not any(edits_for(seen, f) or f.fixable for f in told)


RULES = {case.partition("/")[0] for case in (*CHANGES, *LEFT)}


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("DC7", "DC9"))])
def test_fixable_says_whether_a_repair_yields_edits(case: str) -> None:
    """On checkpoints that pass, too: where only notes are left there is hardly ever anything to do."""
    seen = checked(FIXTURES / case, options_of(case))
    told = [f for f in seen.findings if f.rule in RULES] if seen.subject is not None else []
    assert [(f.rule, f.fixable) for f in told] == [(f.rule, bool(edits_for(seen, f))) for f in told]
    assert not case.startswith("good/") or not any(f.fixable for f in told)


def mend_one(folder: Path, draft: Draft, **options: Any) -> dict[str, Any]:
    """What a repair changes in the config of a draft."""
    draft.write(folder)
    return changed(mended_draft(folder, **options))


# ---- Sizes -------------------------------------------------------------------------------------------------


def wider_heads(draft: Draft, size: int = 2 * HEAD_DIM) -> None:
    """q, k, v and o for heads of another size."""
    for name, rows in (("q", 4 * size), ("k", 2 * size), ("v", 2 * size)):
        draft.shape(f"midlayer.self_attn.{name}_proj.weight", rows, 2 * HIDDEN)
    draft.shape("midlayer.self_attn.o_proj.weight", HIDDEN, 4 * size)


def test_a_stated_head_dim_is_as_good_as_the_numbers_of_heads(tmp_path: Path) -> None:
    """Heads of 16, or twice as many of 8: nothing in an EAGLE-3 head says which."""
    draft = Draft()
    wider_heads(draft)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    assert [f.fixable for f in seen.findings if f.rule == "DC202"] == [False]


def test_norms_of_the_heads_say_how_large_a_head_is(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(architectures=["Eagle3Qwen3ForCausalLM"], model_type="qwen3")
    draft.weights["midlayer.self_attn.q_norm.weight"] = zeros("BF16", 16)
    draft.weights["midlayer.self_attn.k_norm.weight"] = zeros("BF16", 16)
    wider_heads(draft)
    assert mend_one(tmp_path, draft, engine="vllm==0.33.0") == {"head_dim": 16}


def test_rows_of_k_without_a_head_dim_can_mean_fewer_heads(tmp_path: Path) -> None:
    """Rows for 4 heads of 8, or for 2 of 16 where q has as many as before: both numbers are the config's own."""
    draft = Draft()
    for name in "kv":
        draft.shape(f"midlayer.self_attn.{name}_proj.weight", 32, 2 * HIDDEN)
    del draft.config["head_dim"]
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    found = [f for f in seen.findings if f.rule == "DC201"]
    assert found and not any(f.fixable for f in found)


def test_every_size_at_once_is_the_hidden_size(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(hidden_size=2 * HIDDEN, target_hidden_size=HIDDEN)
    draft.target = {**(draft.target or {}), "hidden_size": HIDDEN}
    assert mend_one(tmp_path, draft) == {"hidden_size": HIDDEN}


def test_two_sizes_that_are_wrong_are_both_mended(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(intermediate_size=40, num_key_value_heads=1)
    assert mend_one(tmp_path, draft) == {"intermediate_size": 48, "num_key_value_heads": 2}


def test_layers_with_a_gap_are_not_counted(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(num_hidden_layers=2)
    draft.weights |= {n.replace("midlayer.", "layers.2."): w for n, w in draft.weights.items() if "midlayer" in n}
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    assert [f.fixable for f in seen.findings if f.rule == "DC203" and f.severity.value == "error"] == [False]


def test_the_list_of_layer_types_is_cut_with_the_number(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(num_hidden_layers=3, layer_types=["full_attention"] * 3)
    expected = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    assert mend_one(tmp_path, draft) == expected


# ---- Values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("num_attention_heads", "4", 4),
        ("intermediate_size", 48.0, 48),
        ("intermediate_size", None, 48),
        ("intermediate_size", -1, 48),
        ("num_key_value_heads", 0, 2),
        ("eagle_config", 3, None),
        ("hidden_size", "thirty-two", 32),
    ],
)
def test_a_value_that_cannot_be_built_from(key: str, value: object, meant: object, tmp_path: Path) -> None:
    """Written as another type, or such that only one size fits the tensors."""
    draft = Draft()
    draft.set(**{key: value})
    assert mend_one(tmp_path, draft) == ({key: meant} if meant is not None else {})


def test_a_flag_as_text_is_a_flag(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(tie_word_embeddings="false")
    assert mend_one(tmp_path, draft, engine="vllm==0.33.0") == {"tie_word_embeddings": False}


@pytest.mark.parametrize(("text", "meant"), [("torch.bfloat16", "bfloat16"), ("bf16", "bfloat16"), ("b16", None)])
def test_a_misspelt_dtype(text: str, meant: str | None, tmp_path: Path) -> None:
    draft = Draft()
    draft.set(torch_dtype=text)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    [finding] = [f for f in seen.findings if f.rule == "DC508"]
    assert said(edits_for(seen, finding)) == ({"torch_dtype": meant} if meant is not None else {})


def test_a_dtype_in_which_the_tensors_could_overflow_is_not_written(tmp_path: Path) -> None:
    draft = Draft()
    draft.target = {**(draft.target or {}), "torch_dtype": "float16"}
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    assert [f.fixable for f in seen.findings if f.rule == "DC508"] == [False]


def test_the_length_is_raised_only_on_request(tmp_path: Path) -> None:
    case = "DC505/refused"
    done = mended(FIXTURES / case, options_of(case), Wishes(unsafe=True))
    assert list(changed(done)) == ["max_position_embeddings"]
    assert [one.cost is not None for one in done.repaired] == [True]
    assert "DC505" not in {f.rule for f in done.last.findings}


# ---- Classes and forms -------------------------------------------------------------------------------------


def test_no_model_type_where_theta_would_hang_on_it(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(model_type="eagle3")
    del draft.config["rope_theta"]
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    assert [f.fixable for f in seen.findings if f.rule == "DC502"] == [False]


def test_a_class_that_the_algorithm_does_not_run_is_not_named(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(architectures=["SomeDraft"])
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15", algorithm="DFLASH"))
    assert not any(f.fixable or edits_for(seen, f) for f in seen.findings if f.rule in ("DC501", "DC504"))


SPECULATORS = ["DC503/speculators", "DC503/vllm-speculators-0.9.2", "DC503/vllm-without-its-marker"]


@pytest.mark.parametrize("case", SPECULATORS)
def test_a_nested_config_becomes_flat(case: str) -> None:
    done = mended(FIXTURES / case, options_of(case))
    subject = done.last.subject
    assert subject is not None and subject.written is not None
    flat = subject.written.data
    before = done.first.subject
    assert before is not None and before.written is not None
    table = before.written.data["transformer_layer_config"]
    assert {key: flat[key] for key in table} == table
    assert not {"transformer_layer_config", "speculators_model_type"} & flat.keys()
    assert not [f for f in done.last.findings if f.severity.value == "error"]
    assert contents(done) == hashed(done.first)


# ---- Layer ids ---------------------------------------------------------------------------------------------


def torchspec(*ids: int) -> Draft:
    """A draft whose writer is certain, and numbers outputs."""
    draft = Draft()
    draft.set(_torchspec_version="0.0.1", eagle_config={"eagle_aux_hidden_state_layer_ids": list(ids)})
    return draft


def test_outputs_are_written_as_the_inputs_that_a_release_reads(tmp_path: Path) -> None:
    done = mend_one(tmp_path, torchspec(1, 3, 4), engine="vllm==0.22.1")
    assert done == {"eagle_config.eagle_aux_hidden_state_layer_ids": [2, 4, 5]}


def test_ids_that_a_runner_passes_over_are_written_where_it_looks(tmp_path: Path) -> None:
    done = mend_one(tmp_path, torchspec(1, 3, 6), engine="vllm==0.33.0")
    assert done == {"eagle_aux_hidden_state_layer_ids": [2, 4, 7]}


def test_and_back_for_the_other_engine(tmp_path: Path) -> None:
    """What was written for one engine stays right for the other."""
    draft = torchspec(1, 3, 6)
    draft.set(eagle_aux_hidden_state_layer_ids=[2, 4, 7])
    assert mend_one(tmp_path, draft) == {}


def test_ids_of_an_unknown_writer_are_left(tmp_path: Path) -> None:
    draft = torchspec(1, 3, 6)
    del draft.config["_torchspec_version"]
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="vllm==0.33.0"))
    assert [f.fixable for f in seen.findings if f.rule == "DC405"] == [False]


def test_the_switch_stays_where_fc_takes_one_state(tmp_path: Path) -> None:
    draft = Draft()
    draft.shape("fc.weight", HIDDEN, HIDDEN)
    draft.set(eagle_config={"use_aux_hidden_state": False})
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    assert not any(edits_for(seen, f) for f in seen.findings if f.rule == "DC402")


def test_a_wider_target_is_stated_where_fc_was_made_for_it(tmp_path: Path) -> None:
    draft = Draft()
    draft.target = {**(draft.target or {}), "hidden_size": 2 * HIDDEN}
    draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", 256, HIDDEN)
    assert mend_one(tmp_path, draft) == {"target_hidden_size": 2 * HIDDEN}
