"""``drafcheck contracts``: what the contract book describes, and how it was proven."""

from __future__ import annotations

import sys

import click

from drafcheck.cli_options import contracts_option


@click.command()
@click.argument("word", metavar="[ENGINE|CLASS]", required=False)
@click.option(
    "--format", "style", type=click.Choice(["full", "json"]), default="full", show_default=True, help="Of the list."
)
@contracts_option
def contracts(word: str | None, style: str, contracts: tuple[str, ...]) -> int:
    """List the engines, releases and draft classes that drafcheck knows, and how each contract was proven.

    With the name of an engine only its own; with that of a draft class or a contract all that is known of it.
    """
    from drafcheck.contract import extended
    from drafcheck.output import write_out

    if contracts:
        from drafcheck.contract_folders import checked
    with extended(checked(contracts) if contracts else ()):
        write_out(_text(word, style))
    return 0


def _text(word: str | None, style: str) -> str:
    from drafcheck.contract import engines
    from drafcheck.report.contracts import as_json, detail, entries, overview
    from drafcheck.report.style import style_for

    found = entries(word)
    names = [name for name in engines() if word is None or word.lower() == name or any(e.engine == name for e in found)]
    if style == "json":
        return as_json(found, names)
    paint = style_for("auto", sys.stdout)
    if word is not None and word.lower() not in engines():
        return "\n".join(detail(entry, paint) for entry in found)
    return overview(found, names, paint)
