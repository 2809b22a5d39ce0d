"""The Markdown report: read by a Markdown parser, with names that try to become markup."""

from __future__ import annotations

import html.parser
import re
from typing import Any

import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from test_ci_formats import HOSTILE, hostile
from test_report import ERROR, NOTE, WARNING, anything, checkpoint, report

from drafcheck.report import markdown
from drafcheck.report.model import Outcome

# Markdown


class Page(html.parser.HTMLParser):
    """The tags of a rendered page and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[Any] = []
        self.cells: list[int] = []
        self.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.cells.append(0)
        if tag in ("td", "th"):
            self.cells[-1] += 1

    def handle_data(self, data: str) -> None:
        self.words.append(data)


PLAIN = {"h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "br", "strong", "ul", "li"}


def test_markdown() -> None:
    text = markdown.render(report(checkpoint(ERROR, WARNING, NOTE), checkpoint(outcome=Outcome.CLEAN, path="b")))
    page = Page(text)
    assert set(page.tags) <= PLAIN
    assert page.cells == [5, 5, 5, 4, 4, 4, 4]
    assert text.startswith("## drafcheck: 1 error, 1 warning, 1 note\n")
    words = "".join(page.words)
    assert "fc.weight is [32, 64], the engine builds [32, 96]" in words
    assert "help: export fc with three hidden states" in words
    assert "ckpt/config.json:9:3" in words
    assert "skipped: 2 rules need --target" in words
    assert "only pickles" not in markdown.render(report(checkpoint(ERROR, NOTE)), quiet=True)


@given(anything)
def test_markdown_no_name_becomes_markup(name: str) -> None:
    check_markdown(name)


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE,
        "| a | b |",
        "<img src=x onerror=alert(1)>",
        "![x](http://evil.example/p.png)",
        "``a`b",
        "&lt;b&gt;",
        "~~x~~ **b** _i_ __u__ $x$",
        "<!-- hidden",
        "\\`",
    ],
)
def test_markdown_hostile_names(name: str) -> None:
    check_markdown(name)


def check_markdown(name: str) -> None:
    text = markdown.render(report(checkpoint(hostile(name), path=name or "x")))
    page = Page(text)
    assert set(page.tags) <= PLAIN
    assert page.cells == [5, 5, 4, 4]
    assert page.attributes == []
    assert len(text.splitlines()) == len(markdown.render(report(checkpoint(hostile("x"), path="x"))).splitlines())
    assert not re.search("[@#](?=[A-Za-z0-9])", "".join(page.words))


def test_markdown_escapes_literally() -> None:
    for text in ("a*b_c|d", "x < y & z", "[32, 64]", "2.30 -> 1.01", "https://example.com/x", 'it\'s "so" ~5 $3'):
        assert "".join(Page(markdown.escape(text)).words).strip() == text
        assert "".join(Page(f"x {markdown.code(text)}").words).strip() == f"x {text}"


def test_markdown_stays_below_the_limit() -> None:
    long = ERROR.model_copy(update={"message": "word " * 700})
    faulty = [checkpoint(*[long] * 8, NOTE, path=f"ckpt-{i}") for i in range(60)]
    notes = [checkpoint(NOTE, path=f"noted-{i}", outcome=Outcome.CLEAN) for i in range(300)]
    text = markdown.render(report(*notes, *faulty))
    assert 900_000 < len(text.encode()) <= markdown.LIMIT < 1 << 20
    left = re.search(r"\*\*(\d+) more findings left out\*\*", text)
    assert left
    shown = text.count("| error |") + text.count("| note |")
    assert shown + int(left[1]) == 60 * 9 + 300
    assert "| and 160 more | | | | |" in text
    assert Page(text).tags.count("h2") == 1
