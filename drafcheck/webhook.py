"""What a webhook of the Hub delivers: whether it may be believed, and which pull requests it is about.

The payload is a stranger's text until the secret has been compared, and its names are strangers' even then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafcheck.errors import UsageError

EXPECTED = "WEBHOOK_SECRET"
RECEIVED = "WEBHOOK_SECRET_HEADER"
PAYLOAD_LIMIT = 1 << 20
"""Longer payloads are not read. In bytes; those of the Hub have a few thousand."""

PULLS_LIMIT = 20
"""One push that changes more pull requests than this is not taken for a push."""

_PULL = re.compile(r"refs/pr/([1-9]\d{0,8})", re.ASCII)
_DONE = ("merged", "closed")


class _Part(BaseModel):
    """Only what the gate uses: the Hub may add fields and values."""

    model_config = ConfigDict(strict=True)


class _Event(_Part):
    action: str
    scope: str


class _Repo(_Part):
    type: str
    name: str


class _Discussion(_Part):
    num: Annotated[int, Field(gt=0, lt=1_000_000_000)]
    status: str
    is_pull: Annotated[bool, Field(alias="isPullRequest")]


class _UpdatedRef(_Part):
    ref: str
    new: Annotated[str | None, Field(alias="newSha")] = None


class _Payload(_Part):
    event: _Event
    repo: _Repo
    discussion: _Discussion | None = None
    refs: Annotated[list[_UpdatedRef] | None, Field(alias="updatedRefs")] = None


@dataclass(frozen=True, slots=True)
class Event:
    """What happened: ``pulls`` are the numbers of the pull requests of ``repo`` whose files are to be checked.

    Without any, ``reason`` says in a few words why this event is none of the gate's.
    """

    repo: str
    pulls: tuple[int, ...] = ()
    reason: str = ""


def check_secret(environment: Mapping[str, str], received: str = RECEIVED) -> None:
    """Compare the secret that came with the payload with the one that is expected, in constant time.

    ``received`` is the variable that holds the former. Raises UsageError when one of the two is not set, or when they
    differ.
    """
    import hmac

    expected, given = environment.get(EXPECTED, ""), environment.get(received, "")
    if not expected:
        raise UsageError(f"{EXPECTED} is not set: without a secret anybody could start the gate")
    if not given:
        raise UsageError(f"{received} is not set: it has to hold the X-Webhook-Secret that came with the payload")
    if not hmac.compare_digest(_bytes(expected), _bytes(given)):
        raise UsageError(f"the secret in {received} is not the one in {EXPECTED}: the payload is not believed")


def read_event(payload: bytes) -> Event:
    """The event that a payload tells of. Raises UsageError when it is no payload of a Hub webhook."""
    if len(payload) > PAYLOAD_LIMIT:
        raise UsageError(f"the webhook's payload is longer than {PAYLOAD_LIMIT} bytes")
    try:
        told = _Payload.model_validate_json(payload)
    except ValidationError as error:
        raise UsageError(f"not the payload of a Hub webhook: {_first(error)}") from None
    _check_name(told.repo.name)
    reason = _none_of_ours(told)
    pulls = () if reason else _pulls(told)
    return Event(told.repo.name, pulls, reason if pulls or reason else "it changes no pull request")


def _check_name(name: str) -> None:
    """Raise UsageError unless the Hub could have a repository of this name."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UsageError(f"not the payload of a Hub webhook: repo.name is {name!r:.200}") from None
    # Releases of huggingface_hub differ in whether they take other alphabets and a newline at the end.
    if not (name.isascii() and name.isprintable() and name.count("/") == 1):
        raise UsageError(f"not the payload of a Hub webhook: repo.name is {name!r:.200}, not owner/name")


def _none_of_ours(told: _Payload) -> str:
    """Why an event is passed over; empty for one about the files of a model's pull requests."""
    if told.repo.type != "model":
        return "it is not about a model"
    if told.event.action not in ("create", "update"):
        return "nothing was created or changed"
    if told.event.scope == "discussion":
        return _about(told.discussion)
    # Comments above all: the gate's own would start it again and again.
    return "" if told.event.scope == "repo.content" else "it is not about the files of a pull request"


def _about(discussion: _Discussion | None) -> str:
    if discussion is None or not discussion.is_pull:
        return "the discussion is no pull request"
    return f"the pull request is {discussion.status}" if discussion.status in _DONE else ""


def _pulls(told: _Payload) -> tuple[int, ...]:
    if told.discussion is not None:
        return (told.discussion.num,) if told.discussion.is_pull else ()
    named = (_PULL.fullmatch(r.ref) for r in told.refs or () if r.new is not None)
    pulls = tuple(dict.fromkeys(int(found[1]) for found in named if found))
    if len(pulls) > PULLS_LIMIT:
        raise UsageError(f"the payload changes {len(pulls)} pull requests at once, more than {PULLS_LIMIT}")
    return pulls


def _first(error: ValidationError) -> str:
    """The first fault in one sentence, without the payload's own words."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


def _bytes(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogateescape")
