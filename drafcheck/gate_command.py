"""``drafcheck gate``: from the environment of a webhook's job to a comment and an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from drafcheck.cli_options import Given, RulesGiven, input_options, on_command_line, options_of, rule_options
from drafcheck.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from drafcheck.report.model import Report
    from drafcheck.runner import Examination
    from drafcheck.webhook import Event


class GateGiven(Given, RulesGiven):
    """The options of ``gate``, as click hands them over."""

    secret_env: str
    set_status: bool


@click.command()
@input_options
@rule_options
@click.option(
    "--secret-env",
    metavar="NAME",
    default="WEBHOOK_SECRET_HEADER",
    show_default=True,
    help="The variable that holds the X-Webhook-Secret of the payload.",
)
@click.option("--set-status", is_flag=True, help="Close a pull request with findings; open it again once it is clean.")
def gate(**given: Unpack[GateGiven]) -> int:
    """Check the pull request that a webhook of the Hub tells of, and comment on it.

    The payload is in WEBHOOK_PAYLOAD or on standard input. The secret that came with it has to be the one in
    WEBHOOK_SECRET. HF_TOKEN has to be allowed to read the repository and to write to its discussions.

    Exit codes: those of check, the worst of all pull requests; 0 also for an event that changes none.
    """
    from drafcheck.output import write_err
    from drafcheck.webhook import check_secret, read_event

    check_secret(os.environ, given["secret_env"])
    event = read_event(_payload())
    if not event.pulls:
        write_err(f"nothing to do for {event.repo}: {event.reason}\n")
        return 0
    return _check(event, given)


def _payload() -> bytes:
    """What the Hub told: at most one byte more than is allowed is read. Raises UsageError when there is nothing."""
    from drafcheck.webhook import PAYLOAD_LIMIT

    text = os.environ.get("WEBHOOK_PAYLOAD", "")
    payload = text.encode("utf-8", "surrogateescape")
    if not payload and sys.stdin is not None and not sys.stdin.isatty():
        payload = sys.stdin.buffer.read(PAYLOAD_LIMIT + 1)
    if not payload.strip():
        raise UsageError("no payload: neither is WEBHOOK_PAYLOAD set nor is there anything on standard input")
    return payload


def _check(event: Event, given: GateGiven) -> int:
    """Check every pull request first, print the report, then comment: what is found is said even if the Hub fails."""
    from dataclasses import replace

    from drafcheck.gate import Verdict, address, publish
    from drafcheck.output import write_err
    from drafcheck.report.model import FailOn, worst
    from drafcheck.runner import examine_many, report_of

    fail_on = given["fail_on"] if on_command_line("fail_on") else None
    options = replace(options_of(given, given["select"], given["ignore"]), fail_on=fail_on)
    places = [address(event.repo, pull) for pull in event.pulls]
    examined = examine_many(places, options)
    groups = [[seen for seen in examined if seen.path == place] for place in places]  # one for each engine
    reports = [report_of(group) for group in groups]
    unprinted = _print(examined, report_of(examined), given)
    codes = []
    for pull, group, report in zip(event.pulls, groups, reports, strict=True):
        codes.append(report.exit_code_for(FailOn(group[0].setup.options.fail_on or given["fail_on"])))
        done = publish(Verdict(event.repo, pull, report, codes[-1]), set_status=given["set_status"])
        write_err(f"{done}\n")
    if unprinted is not None:
        raise unprinted
    return worst(codes)


def _print(examined: list[Examination], report: Report, given: GateGiven) -> UsageError | None:
    """Print the report; the error of a standard output that takes nothing, which must keep no comment back."""
    from drafcheck.output import write_out
    from drafcheck.report.formats import View, render
    from drafcheck.report.model import FailOn
    from drafcheck.report.style import style_for

    view = View(report, FailOn(given["fail_on"]), examined, style=style_for(given["color"], sys.stdout))
    try:
        write_out(render("full", view))
    except UsageError as error:
        return error
    return None
