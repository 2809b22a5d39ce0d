"""The upload gate: lint the pull requests of a Hub repository and say what was found in one comment of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from drafcheck.errors import UsageError
from drafcheck.report import markdown

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.community import DiscussionComment, DiscussionWithDetails

    from drafcheck.report.model import Report

T = TypeVar("T")

COMMENT_LIMIT = 60_000
"""The longest comment in bytes of UTF-8."""

_MARK = re.compile(r"<!-- drafcheck gate(, closed)? -->\n")
_LINE = re.compile(r"\s+")


def address(repo: str, pull: int) -> str:
    """Where the files of a pull request are: ``hf://owner/name@refs/pr/5``."""
    return f"hf://{repo}@refs/pr/{pull}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said on one pull request; ``exit_code`` is that of its report alone."""

    repo: str
    pull: int
    report: Report
    exit_code: int


def publish(verdict: Verdict, *, set_status: bool) -> str:
    """Post the findings, or put them in the place of those that this user's gate posted before.

    With ``set_status`` a pull request with findings is closed, and one that the gate closed is opened again once it is
    clean. Returns one sentence on what was done. Raises UsageError when the Hub does not take it.
    """
    hub = _Hub(verdict.repo, verdict.pull)
    found = hub.details()
    former = hub.former(found)
    was_closed = former is not None and _content(former).startswith(_mark(closed=True))
    status = _new_status(found.status, verdict.exit_code, was_closed) if set_status else None
    closed = status == "closed" or (was_closed and status is None and found.status == "closed")
    text = _mark(closed=closed) + markdown.render(verdict.report, limit=COMMENT_LIMIT)
    done = hub.say(text, former)
    if status is not None:
        hub.set_status(status)
        done += f" and set to {status}"
    return f"{verdict.repo} pull request {verdict.pull}: {done}"


def _new_status(now: str, exit_code: int, was_closed: bool) -> str | None:
    """``closed``, ``open`` or None: leave it. What people closed or merged, and what was not checked, stays."""
    if exit_code == 1 and now not in ("closed", "merged"):
        return "closed"
    return "open" if exit_code == 0 and now == "closed" and was_closed else None


def _content(comment: DiscussionComment) -> str:
    """What a comment says, with the line ends that the gate writes."""
    return comment.content.replace("\r\n", "\n")


def _mark(*, closed: bool) -> str:
    """The hidden first line of the gate's comments; it also remembers that the gate closed the pull request."""
    return f"<!-- drafcheck gate{', closed' if closed else ''} -->\n"


class _Hub:
    """One pull request on the Hub, through huggingface_hub; every failure is one sentence."""

    def __init__(self, repo: str, pull: int) -> None:
        from huggingface_hub import HfApi

        self._api: HfApi = HfApi()
        self._repo = repo
        self._pull = pull

    def details(self) -> DiscussionWithDetails:
        return self._ask("read", lambda: self._api.get_discussion_details(self._repo, self._pull))

    def former(self, found: DiscussionWithDetails) -> DiscussionComment | None:
        """The last comment with the gate's mark by the user whose token this is: others may copy the mark."""
        from huggingface_hub.community import DiscussionComment

        comments = [e for e in found.events if isinstance(e, DiscussionComment) and not e.hidden]
        marked = [comment for comment in comments if _MARK.match(_content(comment))]
        if not marked:
            return None
        me = self._ask("read", lambda: str(self._api.whoami()["name"]))
        return next((comment for comment in reversed(marked) if comment.author == me), None)

    def say(self, text: str, former: DiscussionComment | None) -> str:
        repo, pull = self._repo, self._pull
        if former is None:
            self._ask("commented", lambda: self._api.comment_discussion(repo, pull, text))
            return "commented"
        if _content(former).strip() == text.strip():
            return "the comment says so already"
        self._ask("commented", lambda: self._api.edit_discussion_comment(repo, pull, former.id, text))
        return "comment updated"

    def set_status(self, status: str) -> None:
        change = self._api.change_discussion_status
        self._ask(
            f"set to {status}", lambda: change(self._repo, self._pull, "closed" if status == "closed" else "open")
        )

    def _ask(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as error:  # requests, httpx and httpx2 share no ancestor, and a broken answer gives a KeyError
            reason = _LINE.sub(" ", f"{type(error).__name__}: {error}")[:300]
            place = f"{self._repo} pull request {self._pull}"
            raise UsageError(f"{place} could not be {what}: {reason}") from None
