"""Webhook payloads: which pull requests they are about, and what strangers may write into them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafcheck.errors import UsageError
from drafcheck.webhook import PAYLOAD_LIMIT, Event, check_secret, read_event

SECRETS = {"WEBHOOK_SECRET": "s3cret", "WEBHOOK_SECRET_HEADER": "s3cret"}
PULL = {"num": 5, "status": "open", "isPullRequest": True, "title": "t"}


def payload(scope: str = "discussion", action: str = "update", **parts: Any) -> dict[str, Any]:
    """A payload of the Hub, cut to what matters; ``parts`` replace or add top-level keys."""
    repo = {"type": "model", "name": "org/draft", "id": "1", "private": False, "owner": {"id": "2"}}
    return {"event": {"action": action, "scope": scope}, "repo": repo, "webhook": {"id": "3", "version": 3}, **parts}


def event(told: object) -> Event:
    return read_event(json.dumps(told).encode())


def pushed(*refs: str, sha: str | None = "0123abc") -> dict[str, Any]:
    return payload("repo.content", updatedRefs=[{"ref": ref, "oldSha": None, "newSha": sha} for ref in refs])


@pytest.mark.parametrize("action", ["create", "update"])
def test_a_pull_request_that_was_opened(action: str) -> None:
    assert event(payload(action=action, discussion=PULL)) == Event("org/draft", (5,))


def test_pushes_to_pull_requests() -> None:
    assert event(pushed("refs/pr/7")).pulls == (7,)
    assert event(pushed("refs/heads/main", "refs/pr/7", "refs/pr/8", "refs/pr/7")).pulls == (7, 8)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (payload("discussion.comment", "create", discussion=PULL, comment={"id": "1"}), "not about the files"),
        (payload("repo.config"), "not about the files"),
        (payload(discussion={**PULL, "isPullRequest": False}), "no pull request"),
        (payload(discussion={**PULL, "status": "merged"}), "is merged"),
        (payload(discussion={**PULL, "status": "closed"}), "is closed"),
        (payload(), "no pull request"),
        (payload("repo", "delete"), "nothing was created"),
        (payload("discussion", "delete", discussion=PULL), "nothing was created"),
        (payload(discussion=PULL, repo={"type": "dataset", "name": "org/data"}), "not about a model"),
        (pushed("refs/heads/main"), "changes no pull request"),
        (pushed("refs/pr/7", sha=None), "changes no pull request"),
        (pushed("refs/pr/0", "refs/pr/7/..", "refs/pr/\u0667", "refs/pr/7\n", "xrefs/pr/7"), "changes no pull request"),
        (payload("repo.content", updatedRefs=None), "changes no pull request"),
    ],
)
def test_events_that_are_none_of_the_gates(told: dict[str, Any], reason: str) -> None:
    found = event(told)
    assert found.pulls == () and reason in found.reason


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"event":' * 50_000,
        b"1" * (PAYLOAD_LIMIT + 1),
        b'{"event": NaN}',
    ],
)
def test_what_is_no_payload(raw: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        read_event(raw)
    assert len(str(refused.value)) < 300 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": None},
        {"event": {"action": 1, "scope": "discussion"}},
        {"repo": "org/draft"},
        {"repo": {"type": "model", "name": ["org/draft"]}},
        {"repo": {"type": "model"}},
        {"discussion": []},
        {"discussion": {**PULL, "num": "5"}},
        {"discussion": {**PULL, "num": 5.5}},
        {"discussion": {**PULL, "num": True}},
        {"discussion": {**PULL, "num": 0}},
        {"discussion": {**PULL, "num": -5}},
        {"discussion": {**PULL, "num": 10**400}},
        {"discussion": {**PULL, "isPullRequest": "yes"}},
        {"discussion": {"num": 5}},
        {"updatedRefs": {"ref": "refs/pr/5"}},
        {"updatedRefs": [{"ref": 5}]},
    ],
)
def test_wrong_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not the payload of a Hub webhook"):
        event({**payload(discussion=PULL), **wrong})


@pytest.mark.parametrize(
    "name",
    [
        "",
        "draft",
        "a/b/c",
        "../draft",
        "org/..",
        "org/.draft",
        "org/draft.git",
        "org/a--b",
        "org/draft\n",
        "org/draft@refs/pr/1",
        "org/draft?x=1",
        "org/%2e%2e",
        "org/d r",
        "org/\u0434raft",
        "org/" + "a" * 97,
        "org/draft\x1b[2J",
        "http://127.0.0.1/x",
    ],
)
def test_names_that_no_repository_has(name: str) -> None:
    with pytest.raises(UsageError, match=r"repo\.name") as refused:
        event(payload(discussion=PULL, repo={"type": "model", "name": name}))
    assert str(refused.value).isprintable()


def test_too_many_pull_requests() -> None:
    with pytest.raises(UsageError, match="21 pull requests at once"):
        event(pushed(*(f"refs/pr/{n}" for n in range(1, 22))))


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
PARTS = ["event", "repo", "discussion", "updatedRefs"]


@given(st.sampled_from(PARTS), Json)
def test_any_value_in_any_place(key: str, value: object) -> None:
    """Whatever stands there: an event with a name the Hub could have, or one sentence."""
    try:
        found = event({**payload(discussion=PULL), key: value})
    except UsageError as refused:
        assert "\n" not in str(refused)
    else:
        assert found.repo == "org/draft" and (found.pulls or found.reason)


def test_secrets_that_agree() -> None:
    check_secret(SECRETS)
    check_secret({"WEBHOOK_SECRET": "\udcff\u00e9", "OTHER": "\udcff\u00e9"}, "OTHER")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"WEBHOOK_SECRET_HEADER": "other"}, "is not the one in WEBHOOK_SECRET"),
        ({"WEBHOOK_SECRET_HEADER": "s3cret "}, "is not the one in WEBHOOK_SECRET"),
        ({"WEBHOOK_SECRET_HEADER": "S3CRET"}, "is not the one in WEBHOOK_SECRET"),
        ({"WEBHOOK_SECRET_HEADER": ""}, "WEBHOOK_SECRET_HEADER is not set"),
        ({"WEBHOOK_SECRET": ""}, "WEBHOOK_SECRET is not set"),
        ({"WEBHOOK_SECRET": "", "WEBHOOK_SECRET_HEADER": ""}, "WEBHOOK_SECRET is not set"),
    ],
)
def test_secrets_that_differ(change: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        check_secret({**SECRETS, **change})
    assert "s3cret" not in str(refused.value).lower()
