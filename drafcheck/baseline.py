"""A list of findings that were there already: ``--write-baseline`` makes it, ``--baseline`` hides what it lists.

A finding is known again by its rule, the checkpoint's path from the folder of the list, and the names of the tensors,
parameters and keys that it is about: not by its words, its numbers, its lines or the engine's release.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from drafcheck.address import is_remote
from drafcheck.errors import UsageError
from drafcheck.output import write_file
from drafcheck.paths import absolute
from drafcheck.source import LocalFile, SourceError
from drafcheck.suppress import NEVER

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.runner import Examination

SCHEMA = "drafcheck-baseline-1"
_KEYS = ("rule", "path", "fingerprint")
LIMIT = 64 << 20
"""Longer files are refused. In bytes."""


class Baseline:
    """The findings of one file, each as often as it was there; their paths count from its folder."""

    def __init__(self, path: str, prints: Sequence[str]) -> None:
        """``prints`` are fingerprints as ``fingerprint`` gives them."""
        self.folder = os.path.dirname(absolute(path))  # noqa: PTH120
        self.prints = Counter(prints)


def read(path: str) -> Baseline:
    """The baseline in a file. Raises UsageError for a file that can not be read or is none."""
    try:
        raw = LocalFile(Path(path)).read(0, LIMIT + 1)  # a pipe would be waited for
        if len(raw) > LIMIT:
            raise UsageError(f"{path} is longer than the {LIMIT:,} bytes that are read of a baseline")
        return Baseline(path, [_print_of(entry) for entry in _entries(json.loads(raw))])
    except SourceError as error:
        raise UsageError(f"can not read the baseline {path}: {error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{path} is no baseline: write it with --write-baseline") from None


def _entries(document: Any) -> list[Any]:
    entries = document["findings"]
    if document["schema"] != SCHEMA or not isinstance(entries, list):
        raise ValueError(document["schema"])
    return entries


def _print_of(entry: Any) -> str:
    for key in _KEYS:
        if not isinstance(entry[key], str):
            raise TypeError(key)
    return str(entry["fingerprint"])


def write(path: str, examined: Sequence[Examination]) -> Baseline:
    """Write the present findings to a file, in one step. Raises UsageError when that fails."""
    made = Baseline(path, ())
    found = [(seen, f) for seen in examined for f in seen.findings if not f.rule.startswith(NEVER)]
    entries = [
        {"rule": f.rule, "path": _from(made.folder, seen.path), "fingerprint": fingerprint(f, seen, made.folder)}
        for seen, f in found
    ]
    entries.sort(key=lambda e: (e["path"], e["rule"], e["fingerprint"]))
    write_file(path, json.dumps({"schema": SCHEMA, "findings": entries}, indent=1) + "\n")
    made.prints.update(e["fingerprint"] for e in entries)
    return made


def hide(examined: Sequence[Examination], known: Baseline) -> None:
    """Move the findings that are ``known`` to those suppressed, each as often as the baseline lists it."""
    from drafcheck.report.model import Suppressed

    left = known.prints.copy()
    for seen in examined:
        kept = []
        for finding in seen.findings:
            print_ = fingerprint(finding, seen, known.folder)
            if left[print_] and not finding.rule.startswith(NEVER):
                left[print_] -= 1
                seen.suppressed.append(Suppressed(finding=finding, by="baseline"))
            else:
                kept.append(finding)
        seen.findings[:] = kept


def fingerprint(finding: Finding, seen: Examination, folder: str) -> str:
    """Thirty-two hexadecimal digits for what a finding is about; paths count from ``folder``."""
    from hashlib import sha256

    places = sorted({(_inside(p.file, seen), p.tensor or "", p.key or "") for p in finding.locations})
    what = [finding.rule, _from(folder, seen.path), places, sorted(set(finding.about))]
    return sha256(json.dumps(what).encode()).hexdigest()[:32]


def _from(folder: str, checkpoint: str) -> str:
    return checkpoint if is_remote(checkpoint) else PurePath(os.path.relpath(checkpoint, folder)).as_posix()


def _inside(file: str | None, seen: Examination) -> str:
    """A file as the checkpoint names it; of one elsewhere, such as the target's config, the name alone."""
    elsewhere = file is not None and (file == seen.target or PurePath(file).is_absolute())
    return PurePath(file).name if elsewhere and file is not None else file or ""
