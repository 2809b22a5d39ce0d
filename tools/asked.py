"""Ask one SGLang release about many configs in one process: what the recorders of ropes and of quantised layers share.

A recorder is started by ``ask`` as a worker of the environment in which the release runs, and answers by ``work``.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
One = Callable[[Any, str, str], Json]
"""What is answered to one config: of the oracle, the release's folder, and a folder with a config.json."""

MARK = "\n@@JSON@@"


def work(given: Sequence[str], one: One, before: Callable[[], None] = lambda: None) -> None:
    """Be the worker that ``ask`` starts: all configs, one after the other; prints one JSON object.

    ``given`` is what it was told: the oracle's folder, the release's, and a file of configs. ``before`` is done first.
    """
    oracle_folder, wheel, configs = given
    sys.path.insert(0, oracle_folder)
    oracle = importlib.import_module("oracle")
    oracle.setup(wheel)
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16)
    before()
    found: dict[str, Json] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, config) in enumerate(json.loads(Path(configs).read_text()).items()):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
            if not found:
                oracle.init_runtime(str(folder), oracle.ver(wheel)[1])
            found[name] = one(oracle, wheel, str(folder))
    print(MARK + json.dumps(found, default=str), flush=True)
    os._exit(0)


def ask(
    oracle: Any, oracle_folder: str, wheel: str, asked: dict[str, Json], *, script: Path, healthy: Json
) -> dict[str, Json]:
    """The verdicts of one release on every config; ``script`` is run as a worker.

    With the ``healthy`` config the oracle finds out which third-party modules must be stood in for.
    """
    with tempfile.TemporaryDirectory() as scratch:
        probe, configs = Path(scratch) / "probe", Path(scratch) / "configs.json"
        probe.mkdir()
        (probe / "config.json").write_text(json.dumps(healthy))
        learnt = oracle.run(wheel, str(probe))
        configs.write_text(json.dumps(asked))
        env = {
            **os.environ,
            "PYTHONPATH": str(Path(oracle.TF) / learnt["deps"]),
            "ORACLE_STUBS": ",".join(learnt["stubs"]),
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONWARNINGS": "ignore",
        }
        command = [oracle.PY, str(script.resolve()), "--worker", oracle_folder, wheel, str(configs)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, check=False)
        if MARK not in done.stdout:
            raise SystemExit(f"{wheel}: {done.stderr[-2000:]}")
        verdicts: dict[str, Json] = json.loads(done.stdout.rpartition(MARK)[2])
        return verdicts
