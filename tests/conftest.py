"""Settings of all tests, and fixtures of those that speak HTTP: a Hub on loopback, and nothing else in reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakehub
import pytest
from hypothesis import settings

# A busy machine is no fault of the code: examples are limited by their number, not by a clock. They are the same in
# every run, so that a change is judged by what it changes; `--hypothesis-profile search` looks for others.
settings.register_profile("search", deadline=None, print_blob=True)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")


@pytest.fixture
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but loopback be connected to."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] == "127.0.0.1", address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been waited between attempts."""
    waited: list[float] = []
    monkeypatch.setattr("drafcheck.remote.pause", waited.append)
    return waited


@pytest.fixture
def hub(
    only_loopback: None, waits: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[fakehub.Hub]:
    """A Hub on loopback, which huggingface_hub takes for the only one, with an empty cache and no token."""
    from huggingface_hub import constants, utils

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    forget = getattr(utils, "close_session", None) or utils.reset_sessions  # type: ignore[attr-defined]
    with fakehub.running() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        forget()
        yield running
        forget()
