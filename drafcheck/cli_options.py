"""The options that several commands share, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from drafcheck.commands import EngineWord, PathWord, RuleWords, Share
from drafcheck.errors import UsageError

if TYPE_CHECKING:
    from drafcheck.session import Options

Command = Callable[..., int]


class Given(TypedDict):
    """The options that ``check``, ``show`` and ``gate`` share, as click hands them over."""

    target: str | None
    engine: tuple[str, ...]
    algorithm: str | None
    dtype: str | None
    tp: int | None
    launch: str | None
    reference: str | None
    tokenizer: str | None
    color: str
    config: str | None
    no_config: bool
    contracts: tuple[str, ...]
    runner: str | None
    values: bool
    sample: float | None
    target_weights: str | None


class RulesGiven(TypedDict):
    """The options that choose rules and the threshold; ``select`` and ``ignore`` may stand several times."""

    select: tuple[list[str], ...]
    ignore: tuple[list[str], ...]
    fail_on: str


contracts_option = click.option(
    "--contracts",
    metavar="DIR",
    multiple=True,
    type=PathWord(),
    help="A folder with contracts of your own, laid out as rules/.",
)


def input_options(command: Command) -> Command:
    """The options that say what is checked, and for which engine."""
    options = [
        click.option("--target", metavar="PATH", type=PathWord(), help="The target's folder, config.json or address."),
        click.option(
            "--engine",
            metavar="NAME[==X.Y.Z]",
            multiple=True,
            type=EngineWord(),
            help="Default: the installed release, else the newest. check and gate take several, or all (the newest).",
        ),
        click.option("--algorithm", metavar="NAME", help="The speculative algorithm of the launch."),
        click.option("--dtype", metavar="NAME", help="The dtype of the launch, such as bfloat16."),
        click.option("--tp", metavar="N", type=click.IntRange(1, 4096), help="The tensor parallelism of the launch."),
        click.option(
            "--launch",
            metavar="FILE",
            type=PathWord(),
            help="A script, Dockerfile or manifest that starts the engine (- is standard input): says the above.",
        ),
        click.option("--values", is_flag=True, help="Read every tensor, not only the headers: see DC801 to DC806."),
        click.option(
            "--sample", metavar="N%", type=Share(), help="Of each tensor read N per cent, spread evenly: with --values."
        ),
        click.option(
            "--target-weights",
            metavar="PATH",
            type=PathWord(),
            help="The target's weights: to compare with (DC804, DC805), to confirm mappings, and for fix --unsafe.",
        ),
        click.option("--runner", metavar="NAME", help="The model runner of the launch: v1 or v2 (vLLM)."),
        click.option("--reference", metavar="PATH", type=PathWord(), help="A checkpoint or mapping to compare with."),
        click.option("--tokenizer", metavar="PATH", type=PathWord(), help="To show tokens; default: the target's."),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="Colours; see NO_COLOR.",
        ),
        click.option(
            "--config", metavar="FILE", type=PathWord(), help="The settings file; default: the nearest one upward."
        ),
        click.option("--no-config", is_flag=True, help="No settings: only the command line counts."),
        contracts_option,
    ]
    return _with(options, command)


def rule_options(command: Command) -> Command:
    """The options that choose rules, and what the exit code makes of them."""
    options = [
        click.option(
            "--select", metavar="RULES", multiple=True, type=RuleWords(), help="Only these: DC101, DC3 or a name."
        ),
        click.option("--ignore", metavar="RULES", multiple=True, type=RuleWords(), help="All but these."),
        click.option(
            "--fail-on",
            type=click.Choice(["error", "warning", "never"]),
            default="error",
            show_default=True,
            help="The least severity for exit code 1.",
        ),
    ]
    return _with(options, command)


def options_of(given: Given, select: Iterable[list[str]] = (), ignore: Iterable[list[str]] = ()) -> Options:
    """How to check, as the command line says it. Raises UsageError for options that contradict each other."""
    from drafcheck.session import Options

    if given["sample"] is not None and not given["values"]:
        raise UsageError("--sample says how much --values reads, and --values is not given")
    if given["config"] is not None and given["no_config"]:
        raise UsageError("--config and --no-config do not go together")
    return Options(
        target=given["target"],
        engine=",".join(given["engine"]) or None,
        algorithm=given["algorithm"],
        dtype=given["dtype"],
        tp=given["tp"],
        launch=given["launch"],
        reference=given["reference"],
        tokenizer=given["tokenizer"],
        select=[word for words in select for word in words],
        ignore=[word for words in ignore for word in words],
        config=given["config"],
        search=not given["no_config"],
        contracts=given["contracts"],
        runner=given["runner"],
        target_weights=given["target_weights"],
        values=(given["sample"] or 1.0) if given["values"] else None,
    )


def on_command_line(option: str) -> bool:
    """Whether the user wrote the option: a default yields to the settings."""
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
