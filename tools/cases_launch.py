"""DC7xx: launch lines. The checkpoint is healthy; what starts the engine is not."""

from __future__ import annotations

from typing import Any

from cases import case
from class_drafts import dflash
from drafts import Draft

SGLANG = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --dtype bfloat16"
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path {draft}"
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
VLLM = "vllm serve meta-llama/Llama-3.1-8B-Instruct --dtype bfloat16"


def launched(draft: Draft, line: str) -> None:
    """Put a launch line beside the checkpoint."""
    draft.files["serve.sh"] = (line + "\n").encode()
    draft.args += "--launch {case}/serve.sh"


def sglang(path: str, line: str, version: str = "0.5.15", **config: Any) -> None:
    """A fixture with a launch line of SGLang."""
    name = path.rpartition("/")[2]

    @case(path, version)
    def edit(draft: Draft) -> None:
        draft.set(**config)
        launched(draft, line.replace("{draft}", f"/models/{name}"))


def vllm(path: str, line: str, version: str = "0.33.0", **config: Any) -> None:
    """A fixture with a launch line of vLLM, and keys of its JSON."""
    name = path.rpartition("/")[2]

    @case(path, f"vllm=={version}")
    def edit(draft: Draft) -> None:
        draft.set(**config)
        launched(draft, line.replace("{draft}", f"/models/{name}"))


def json_of(**keys: Any) -> str:
    """``--speculative-config`` in single quotes."""
    import json

    return f"--speculative-config '{json.dumps(keys)}'"


sglang("good/launched", f"{SGLANG} {EAGLE3} {CHAIN}")
sglang("good/launched-with-a-tree", f"{SGLANG} {EAGLE3} {CHAIN.replace('topk 1', 'topk 4')} --page-size 1")
sglang(
    "good/launched-with-defaults",
    f"{SGLANG} {EAGLE3} --quantization fp8 --speculative-draft-model-quantization unquant",
)
sglang(
    "good/launched-in-depth",
    f"{SGLANG} {EAGLE3} --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
    ttt_length=5,
)
sglang("good/launched-for-less", f"{SGLANG} {EAGLE3} {CHAIN} --context-length 256", max_position_embeddings=256)
vllm(
    "good/launched-vllm", f"{VLLM} {json_of(method='eagle3', model='/models/launched-vllm', num_speculative_tokens=3)}"
)

sglang("DC701/eagle-for-eagle3", f"{SGLANG} {EAGLE3.replace('EAGLE3', 'EAGLE')} {CHAIN}")
sglang("DC701/no-draft", f"{SGLANG} --speculative-algorithm EAGLE3 {CHAIN}")
sglang("DC701/not-speculative", SGLANG)
sglang("DC701/algorithm-of-a-later-release", f"{SGLANG} {EAGLE3.replace('EAGLE3', 'DFLASH')}", "0.5.9")
sglang("DC701/lower-case", f"{SGLANG} {EAGLE3.replace('EAGLE3', 'eagle3')} {CHAIN}", "0.5.9")
vllm(
    "DC701/method-guessed-from-the-path",
    f"{VLLM} {json_of(model='/models/method-guessed-from-the-path', num_speculative_tokens=3)}",
)
vllm(
    "DC701/method-in-capitals",
    f"{VLLM} {json_of(method='EAGLE3', model='/models/method-in-capitals', num_speculative_tokens=3)}",
)
vllm(
    "DC701/method-guessed-wrong",
    f"{VLLM} {json_of(model='/eagle-heads/method-guessed-wrong', num_speculative_tokens=3)}",
    "0.11.0",
)

sglang("DC702/spelling-of-vllm", f"{SGLANG} {EAGLE3} --num-speculative-tokens 3")
vllm(
    "DC702/spelling-of-sglang",
    f"{VLLM} --speculative-draft-model-path /models/spelling-of-sglang "
    f"{json_of(method='eagle3', model='/models/spelling-of-sglang', num_speculative_tokens=3)}",
)
sglang("DC702/later-release", f"{SGLANG} {EAGLE3} {CHAIN} --speculative-draft-model-quantization unquant", "0.5.6")
sglang("DC702/typo", f"{SGLANG} {EAGLE3} {CHAIN.replace('num-steps', 'num-step-count')}")
sglang("DC702/switch-with-a-value", f"{SGLANG} {EAGLE3} {CHAIN} --trust-remote-code=True")
vllm(
    "DC702/key-of-no-release",
    f"{VLLM} {json_of(method='eagle3', model='/models/key-of-no-release', num_speculative_tokens=3, topk=4)}",
)

sglang("DC703/no-steps", f"{SGLANG} {EAGLE3} --speculative-eagle-topk 1 --speculative-num-draft-tokens 4")
sglang("DC703/no-topk", f"{SGLANG} {EAGLE3} --speculative-num-steps 3 --speculative-num-draft-tokens 4")
vllm("DC703/no-tokens", f"{VLLM} {json_of(method='eagle3', model='/models/no-tokens')}")

sglang(
    "DC704/deeper-than-trained",
    f"{SGLANG} {EAGLE3} --speculative-num-steps 15 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16",
    ttt_length=5,
)


@case("DC704/longer-than-the-block", "0.5.15")
def longer_than_the_block(draft: Draft) -> None:
    """A block drafter of four, asked for sixteen."""
    block = dflash()
    draft.config, draft.weights = block.config, block.weights
    line = f"{SGLANG} {EAGLE3.replace('EAGLE3', 'DFLASH')} --speculative-num-draft-tokens 16"
    launched(draft, line.replace("{draft}", "/models/longer-than-the-block"))


sglang("DC705/chain", f"{SGLANG} {EAGLE3} {CHAIN.replace('tokens 4', 'tokens 8')}")
sglang(
    "DC705/tree-too-small", f"{SGLANG} {EAGLE3} {CHAIN.replace('topk 1', 'topk 2').replace('tokens 4', 'tokens 32')}"
)
sglang("DC705/steps-in-words", f"{SGLANG} {EAGLE3} {CHAIN.replace('steps 3', 'steps three')}")
vllm(
    "DC705/no-tokens-at-all",
    f"{VLLM} {json_of(method='eagle3', model='/models/no-tokens-at-all', num_speculative_tokens=0)}",
)
sglang("DC705/chain-0.4.5", f"{SGLANG} {EAGLE3} {CHAIN.replace('tokens 4', 'tokens 8')}", "0.4.5")
sglang(
    "DC705/pages",
    f"{SGLANG} {EAGLE3} {CHAIN.replace('topk 1', 'topk 4')} --page-size 64 --attention-backend triton",
    "0.5.9",
)
sglang("DC705/backend", f"{SGLANG} {EAGLE3} {CHAIN.replace('topk 1', 'topk 4')} --attention-backend trtllm_mha")
vllm(
    "DC705/draft-parallelism",
    f"{VLLM} -tp 4 "
    + json_of(method="eagle3", model="/m/draft-parallelism", num_speculative_tokens=3, draft_tensor_parallel_size=2),
)

sglang("DC706/fp8", f"{SGLANG} {EAGLE3} {CHAIN} --quantization fp8")
sglang("DC706/awq", f"{SGLANG} {EAGLE3} {CHAIN} --quantization awq")
sglang("DC706/float16", f"{SGLANG.replace('bfloat16', 'float16')} {EAGLE3} {CHAIN}")

sglang("DC707/another-name", f"{SGLANG} {EAGLE3.replace('{draft}', '/models/eagle3-v1')} {CHAIN}")
sglang("DC707/another-folder", f"{SGLANG} {EAGLE3.replace('{draft}', 'good/healthy')} {CHAIN}")

sglang("DC708/all-from-outside", f'{SGLANG} ${{SPEC_ARGS:-}} "$@"')
sglang("DC708/arguments", f'{SGLANG} {EAGLE3} --tp $TP {CHAIN} "$@"')

sglang("DC708/config-file", f"{SGLANG} {EAGLE3} {CHAIN} --config server.yaml")
vllm(
    "DC708/unknown-tokens",
    f"{VLLM} {json_of(method='eagle3', model='/models/unknown-tokens', num_speculative_tokens=3)}".replace(
        ": 3}", ": '${N}'}"
    ),
)

sglang("DC505/served-length", f"{SGLANG} {EAGLE3} {CHAIN} --context-length 4096")
