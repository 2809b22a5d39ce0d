"""Checks of others: modules that a settings file names, whose checks are declared with the same ``@rule``.

Only what is named is imported, and nothing is ever searched for. A checkpoint is data, often a stranger's: neither may
a settings file in its folder name plugins (unless --config names that file), nor may a module lie in it.
"""

from __future__ import annotations

import importlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from drafcheck.address import is_remote
from drafcheck.errors import UsageError
from drafcheck.registry import PREFIX, Rule, declared, forget, load_rules, prefix_of
from drafcheck.settings import root_of
from drafcheck.subject import NEEDS

if TYPE_CHECKING:
    from drafcheck.settings import SettingsFile

_CODE = re.compile(r"[A-Z]{2,}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def with_plugins(config: str | None) -> dict[str, Rule]:
    """The built-in rules, and those of the plugins in a settings file. Raises UsageError when one can not be used."""
    rules = load_rules()
    if config is not None:
        from drafcheck.settings import Search

        found = Search(config).find("")
        assert found is not None
        rules |= plugin_rules(found)
    return rules


def plugin_rules(found: SettingsFile) -> dict[str, Rule]:
    """The rules of all plugins that the settings name, by code. Raises UsageError, with file and line."""
    rules: dict[str, Rule] = {}
    for number, module in enumerate(found.values.plugins):
        try:
            rules |= _load(module)
        except UsageError as error:
            raise found.wrong(str(error), "plugins", number) from None
    return dict(sorted(rules.items()))


def refuse_strange(found: SettingsFile, checkpoint: str) -> None:
    """Raise UsageError when it is the checkpoint that brings the plugins, or the settings that name them."""
    if not found.values.plugins or is_remote(checkpoint):
        return
    root = root_of(checkpoint)
    found.refuse_own(checkpoint, "plugins", "plugins are not imported")
    installed = Path(sysconfig.get_path("purelib"))  # a virtual environment may well lie beside the weights
    for number, module in enumerate(found.values.plugins):
        if any(root in place.parents and installed not in place.parents for place in _places(module)):
            raise found.wrong(f"the plugin {module} lies in the checkpoint's folder: not imported", "plugins", number)


def _places(module: str) -> Iterator[Path]:
    """Where the top package of a module would be imported from; finding that out runs nothing of it."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return
    if spec is not None:
        paths = [spec.origin or "", *(spec.submodule_search_locations or ())]
        yield from (Path(path).resolve() for path in paths if path)
        yield from (Path(path).absolute() for path in paths if path)


def _load(module: str) -> dict[str, Rule]:
    before = {*load_rules(), *declared()}
    try:
        importlib.import_module(module)
        found = {code: rule for code, rule in declared().items() if code not in before or _is_of(rule, module)}
        _examine(module, found.values())
    except (Exception, SystemExit) as error:
        forget(set(declared()) - before)
        sys.modules.pop(module, None)
        raise error if isinstance(error, UsageError) else _unusable(module, error) from None
    return found


def _unusable(module: str, error: BaseException) -> UsageError:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return UsageError(f"there is no module {module}: is the plugin installed for {sys.executable}?")
    return UsageError(f"the plugin {module} can not be imported: {type(error).__name__}: {error}")


def _is_of(rule: Rule, module: str) -> bool:
    """Whether a rule that was there before, because something else imported it, is the module's."""
    return f"{rule.check.__module__}.".startswith(f"{module}.")


def _examine(module: str, rules: Iterable[Rule]) -> None:
    rules = list(rules)
    if not rules:
        raise UsageError(f"the plugin {module} declares no rule")
    for rule in rules:
        fault = next(_faults(rule), None)
        if fault is not None:
            raise UsageError(f"the plugin {module} declares the rule {rule.code} {rule.name}, {fault}")


def _faults(rule: Rule) -> Iterator[str]:
    if not _CODE.fullmatch(rule.code):
        yield "whose code should be two capital letters or more and three digits, such as ACME001"
    if prefix_of(rule.code) == PREFIX:
        yield f"but codes that begin with {PREFIX} are drafcheck's own"
    if not _NAME.fullmatch(rule.name):
        yield "whose name should be words of small letters joined by hyphens"
    if not rule.severities:
        yield "without a severity"
    if not rule.doc.strip():
        yield "without a docstring"
    unknown = next((need for need in rule.needs if need not in NEEDS), None)
    if unknown is not None:
        yield f"which needs {unknown!r}: known are {', '.join(NEEDS)}"
