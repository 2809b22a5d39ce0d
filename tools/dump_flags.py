"""Print the options of vLLM's server as its own parser declares them: JSON, name -> what it takes.

    python tools/dump_flags.py > FOLDER/0.33.0.json      # in an environment in which that release can be imported

Its options come from the types of config classes, which only running them tells. tools/gen_flags.py reads the files.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

SWITCHES = ("BooleanOptionalAction", "EnableDisableAction")
PLACES = ("vllm.entrypoints.openai.cli_args", "vllm.entrypoints.common.cli_args")
PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")


def takes(action: argparse.Action) -> str:
    """What an option takes, in the words of flags.toml."""
    if action.nargs == 0 or type(action).__name__ in SWITCHES:
        return "none"
    return {None: "one", "?": "maybe"}.get(action.nargs, "many")  # type: ignore[arg-type]


def imported(places: tuple[str, ...], name: str) -> object:
    """The first ``name`` that one of the modules has. Raises ImportError when none has it."""
    for place in places:
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(name)


def main() -> None:
    """Build the parser and list it."""
    make = imported(PLACES, "make_arg_parser")
    parser = make(imported(PARSERS, "FlexibleArgumentParser")())  # type: ignore[operator]
    # Not action.option_strings: spellings that are hidden from the help are missing there.
    found = {name: takes(action) for name, action in parser._option_string_actions.items()}
    json.dump(found, sys.stdout, indent=0, sort_keys=True)


if __name__ == "__main__":
    main()
