"""How click is bent: a default command, and completion of rule codes, engines and paths."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from drafcheck.errors import UsageError

if TYPE_CHECKING:
    from drafcheck.registry import Rule

    TextType = click.ParamType[str]
    WordsType = click.ParamType[list[str]]
    ShareType = click.ParamType[float]
else:  # older releases of click have no parameter for the type
    TextType = WordsType = ShareType = click.ParamType

DEFAULT = "check"


class DefaultGroup(click.Group):
    """A group that takes its first argument for a path to check unless it is one of its commands.

    ``later`` names further commands, each with the module that defines it under that name: their options cost time
    that a lint need not spend.
    """

    def __init__(self, *args: Any, later: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        """As ``click.Group``, and the commands that are made when they are asked for."""
        super().__init__(*args, **kwargs)
        self.later = dict(later or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in alphabetical order."""
        return sorted([*super().list_commands(ctx), *self.later])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; imports the module of a later one."""
        if cmd_name not in self.later:
            return super().get_command(ctx, cmd_name)
        made: click.Command = getattr(importlib.import_module(self.later[cmd_name]), cmd_name)
        return made

    def every_command(self) -> dict[str, click.Command]:
        """All commands by name, also the later ones: for documentation."""
        ctx = click.Context(self)
        return {name: made for name in self.list_commands(ctx) if (made := self.get_command(ctx, name))}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``check`` before anything that is neither a command nor an option of the group."""
        own = {opt for param in self.get_params(ctx) for opt in param.opts}
        if args and args[0] not in self.list_commands(ctx) and args[0] not in own:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both ways to call: with paths, and with a command."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] CKPT...")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of ``check`` stand here too: it is what runs without a command."""
        default = self.commands[DEFAULT]
        params = [*default.params, *self.get_params(ctx)]
        records = [r for p in params if isinstance(p, click.Option) and (r := p.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and the options of ``check``; what is neither is a path to check."""
        default = self.commands[DEFAULT]
        inner = click.Context(default, parent=ctx, info_name=DEFAULT)
        found = [*super().shell_complete(ctx, incomplete), *default.shell_complete(inner, incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class PathWord(click.Path):
    """A path or an address. An empty one, which a script gives for a variable that is not set, would mean a folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as it is. Raises UsageError for an empty one."""
        if value == "" and param is not None:
            raise UsageError(f"the path of {max(param.opts, key=len)} is empty")
        return super().convert(value, param, ctx)


class WordList(WordsType):
    """Words separated by commas."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """``DC101,DC3`` as a list; empty words are dropped."""
        if isinstance(value, list):
            return value
        return [word.strip() for word in str(value).split(",") if word.strip()]


class Share(ShareType):
    """A part in per cent: ``5%`` or ``5``, at least 0.01 and at most 100."""

    name = "share"
    least = 0.01

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The part as a number of at most 1."""
        try:
            percent = float(str(value).strip().removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not self.least <= percent <= 100:
            self.fail(f"{value!r} is no part in per cent from {self.least:g}% to 100%, such as 5%", param, ctx)
        return percent / 100


class RuleWords(WordList):
    """Codes, prefixes or names of rules, separated by commas, with completion."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last word of the list."""
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(before + comma + item.value, help=item.help) for item in _rule_items(last)]


class RuleWord(TextType):
    """One code or name of a rule, with completion."""

    name = "rule"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a code, or a name once a letter of one is there."""
        return _rule_items(incomplete)


class EngineWord(TextType):
    """An engine, with or without ``==version``, with completion from the contract book."""

    name = "engine"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the engine, then its releases, the newest first."""
        from drafcheck.contract import engines, releases

        name = incomplete.partition("=")[0]
        words = [*engines(), "all"] if name not in engines() else [f"{name}=={v}" for v in reversed(releases(name))]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _rule_items(incomplete: str) -> list[CompletionItem]:
    from drafcheck.registry import load_rules

    return [item for rule in load_rules().values() if (item := _rule_item(rule, incomplete))]


def _rule_item(rule: Rule, incomplete: str) -> CompletionItem | None:
    if rule.code.startswith(incomplete.upper()):
        return CompletionItem(rule.code, help=rule.name)
    return CompletionItem(rule.name, help=rule.code) if rule.name.startswith(incomplete) else None
