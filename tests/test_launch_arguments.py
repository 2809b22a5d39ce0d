"""Options are taken apart as argparse does it, with the options of a real release."""

from __future__ import annotations

import argparse
from functools import cache
from typing import NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drafcheck.contract import releases
from drafcheck.launch.arguments import flags_of, take
from drafcheck.launch.model import UNKNOWN
from drafcheck.launch.words import Word

VERSION = "0.5.23"
NARGS = {"one": None, "many": "*", "maybe": "?"}


class Refused(Exception):
    """What the parser would exit with."""


class Strict(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


@cache
def parser() -> Strict:
    """A parser of argparse's own with the options of that release; the values of an option in the order given."""
    made = Strict(add_help=False)
    for name, takes in flags_of("sglang", VERSION).items():
        if takes in ("none", "refused"):
            made.add_argument(name, dest=name, action="store_true", default=None)
        else:
            made.add_argument(name, dest=name, nargs=NARGS[takes])
    return made


NAMES = sorted(name for name, takes in flags_of("sglang", VERSION).items() if takes in ("none", "one", "many"))
written = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES).flatmap(lambda name: st.integers(min(3, len(name)), len(name)).map(lambda n: name[:n])),
    st.sampled_from(["--tp", "--model", "--speculative-algo", "--no-such-option", "--tp_size", "-x"]),
)
argument = st.one_of(
    written,
    st.tuples(written, st.sampled_from(["1", "a b", "", "-1", "--x"])).map("=".join),
    st.sampled_from(["1", "-1", "value", "a=b", "0.5"]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(argument, max_size=6))
@example(["--admin-api-key", "--no-such-option=a b"])
@example(["--no-such-option=a b"])
@example(["--tp=a b"])
def test_options_are_those_of_argparse(line: list[str]) -> None:
    taken = take([Word(word) for word in line], flags_of("sglang", VERSION), underscores=False)
    faults = [option for option in taken.options if option.fault not in ("", UNKNOWN)]
    try:
        found, rest = parser().parse_known_args(line)
    except Refused:
        assert faults
        return
    assert not [option for option in faults if option.fault != "refused"]
    unknown = [option for option in taken.options if option.fault == UNKNOWN]
    assert bool(rest) == bool(unknown or taken.strays)
    ours = {option.name: option.values for option in taken.options if not option.fault}
    theirs = {name: value for name, value in vars(found).items() if value is not None}
    assert set(ours) == set(theirs) - {option.name for option in faults}
    for name, values in ours.items():
        expected = theirs[name]
        listed = [] if expected is True else expected if isinstance(expected, list) else [expected]
        assert [word.text for word in values] == listed, name


@pytest.mark.parametrize("version", [str(version) for version in releases("sglang")])
def test_every_release_has_the_options_that_start_a_draft(version: str) -> None:
    wanted = {"--model-path", "--tp-size", "--dtype", "--speculative-algorithm", "--speculative-num-steps"}
    assert wanted <= set(flags_of("sglang", version))
    assert len(flags_of("sglang", version)) > 100
