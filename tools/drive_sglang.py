"""Keep one release of SGLang open, and ask its real loaders about one checkpoint after another.

    ORACLE_HOME=DIR python tools/drive_sglang.py SCRIPTS RELEASE_FOLDER HEALTHY... < folders > answers

SCRIPTS holds oracle.py, which knows how a release is asked about one checkpoint. What costs most there is the same for
every checkpoint: importing the engine, setting up its process groups, and the modules that are imported on first use.
All that is done once here, on the HEALTHY checkpoints; then each folder named on standard input is asked about in a
fork of this process, so that no answer depends on an earlier one. One line of JSON answers one line, in order; the
lines of the healthy checkpoints come first.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import importlib
import inspect
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FUSION = "disable_shared_experts_fusion"
SECONDS = 90.0
"""After which a loader is given up: it hangs."""

Row = dict[str, Any]


def restart(oracle: Any, wheel: str) -> None:
    """Become a process of the environment in which the scripts run this release."""
    release = oracle.ver(wheel)
    dependencies = next(folder for first, folder in oracle.DEPS if release[1] >= first)
    learnt = Path(oracle.HOME, f".stubs-{release[0]}.json")
    stubs = json.loads(learnt.read_text()) if learnt.is_file() else []
    environment = {
        **os.environ,
        "PYTHONPATH": f"{oracle.TF}/{dependencies}",
        "ORACLE_STUBS": ",".join(stubs),
        "ORACLE_DRIVEN": "1",
        "SGLANG_IS_IN_CI": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONWARNINGS": "ignore",
        "TOKENIZERS_PARALLELISM": "false",
    }
    os.execve(oracle.PY, [oracle.PY, str(Path(__file__).resolve()), *sys.argv[1:]], environment)


class AtOnce(concurrent.futures.Executor):
    """Does at once what it is given: loaders that write in threads are watched tensor by tensor."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes whatever a pool of threads takes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """The result, which is there already. What ``fn`` raises is raised here."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Watch:
    """What a loader did once it had read all tensors, told by the values: every tensor is given one of its own.

    The scripts look at the parameters after each tensor; a loader that gathers all of them first writes later.
    """

    def __init__(self, oracle: Any) -> None:
        """Has the scripts show the model that they build and the tensors that they hand out."""
        self.values: dict[str, float] = {}
        self.model: Any = None
        find, files = oracle.find_class, oracle.iter_files

        def found(wheel: str, architecture: str) -> tuple[Any, Any]:
            kind, module = find(wheel, architecture)
            return (None if kind is None else functools.partial(self._built, kind)), module

        def handed(*given: Any) -> Any:
            for name, tensor in files(*given):
                if tensor.dtype.is_floating_point:
                    tensor.fill_(1 + len(self.values) % 127 / 128)  # numbers that every dtype holds
                if tensor.numel():  # of integers that are read as a mapping the first one is nobody's value
                    self.values[name] = float(tensor.flatten()[0])
                yield name, tensor

        oracle.find_class, oracle.iter_files = found, handed

    def _built(self, kind: Any, **given: Any) -> Any:
        if "draft_model_idx" in inspect.signature(kind.__init__).parameters:
            given["draft_model_idx"] = 0
        self.model = kind(**given)
        return self.model

    def completed(self, row: Row) -> Row:
        """The row with the writes that came ``late``, of which only the last to each place is seen."""
        if self.model is None or not isinstance(row["loaded"], dict):
            return row
        seen = {parameter for written in row["loaded"].values() for parameter in written}
        late = {n: p for n, p in self.model.named_parameters() if n not in {*seen, *row["missing_params"]}}
        for parameter, content in late.items():
            held = set(content.detach().float().unique().tolist())
            for name in [name for name, value in self.values.items() if value in held]:
                row["loaded"].setdefault(name, []).append(parameter)
        row["dropped"] = [name for name in row["dropped"] if name not in row["loaded"]]
        return {**row, "late": sorted(late)}


def opened(oracle: Any, wheel: str) -> Callable[[str], Row]:
    """Import the release and set up its process groups; what asks about one checkpoint of it."""
    oracle.setup(wheel)
    import torch

    torch.set_num_threads(1)
    concurrent.futures.ThreadPoolExecutor = AtOnce  # type: ignore[assignment, misc]
    for module in ("models.llama_eagle3", "configs.model_config", "model_loader.loader"):
        try:
            importlib.import_module(f"sglang.srt.{module}")
        except Exception as failed:  # the answers will say so
            print(f"{module}: {failed!r}", file=sys.stderr)
    runtime = oracle.init_runtime("", oracle.ver(wheel)[1])
    with contextlib.suppress(TypeError):  # it cannot be set in later releases, which do without on a CPU
        if hasattr(runtime[0], FUSION):  # a GPU's, with 256 experts: a class that switches it off decides for the next
            object.__setattr__(runtime[0], FUSION, True)
    oracle.init_runtime = lambda _folder, _version: (runtime[0], list(runtime[1]))
    given = {"wheel": wheel, "target_config": None, "algorithm": "EAGLE3", "preloaded": True}
    watch = Watch(oracle)

    def ask(folder: str) -> Row:
        watch.model = None
        watch.values.clear()
        return watch.completed(dict(oracle.worker(argparse.Namespace(ckpt=folder, **given))))

    return ask


def forked(ask: Callable[[str], Row], folder: str) -> Row:
    """The answer of a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            row = ask(folder)
            pipe.write(said({"error": "child died: the scripts failed"} if is_no_answer(row) else row))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answered = bool(select.select([pipe], [], [], SECONDS)[0])
        content = pipe.read() if answered else b""
    if not answered:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return dict(json.loads(content)) if content else {"error": "child died or hung", "stage": None}


def is_no_answer(row: Row) -> bool:
    """Whether the scripts stumbled over what the engine made, such as a mapping that is no vector."""
    return str((row.get("trace") or [""])[-1]).rpartition("/")[2].startswith("oracle.py:")


def said(row: Row) -> str:
    """An answer as one line; the table of all parameters stays behind."""
    return json.dumps({key: value for key, value in row.items() if key != "params"}, default=str)


def main() -> None:
    """Answer until standard input ends."""
    scripts, wheel, *healthy = sys.argv[1:]
    sys.path.insert(0, scripts)
    oracle = importlib.import_module("oracle")
    if "ORACLE_DRIVEN" not in os.environ:
        restart(oracle, wheel)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the engine prints as well
    ask = opened(oracle, wheel)
    for folder in healthy:
        print(said(ask(folder)), file=answers)
    for line in sys.stdin:
        print(json.dumps({**forked(ask, line.strip()), "ckpt": Path(line.strip()).name}), file=answers)


if __name__ == "__main__":
    main()
