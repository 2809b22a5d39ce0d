"""What may stand in launch.toml, flags.toml and depth.toml: the tests hold the book against it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from drafcheck.contract_words import Pair, Range, Word, Words


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Entry(_Table):
    """One fact; it holds for the releases in ``versions`` and the algorithms named, for all without them."""

    versions: Range = ""
    algorithms: Words = []
    source: str = ""


class Commands(_Table):
    """What starts the engine. ``entrypoint``: what its images run by themselves: their arguments are options."""

    modules: Words
    scripts: Words
    programs: list[Pair]
    images: Words
    entrypoint: Words = []
    source: Word


class Parser(_Table):
    """How options are spelled. ``positional``: the releases in which the model may be an argument of its own."""

    underscores: bool
    positional: Range | None = None
    source: Word


class Json(_Table):
    """An option whose value is a JSON object, and what its keys stand for."""

    option: Word
    keys: dict[str, Word]


class Known(_Entry):
    """Keys that the JSON may have."""

    names: Word


class Algorithms(_Entry):
    """The algorithms that a release takes. ``open``: plugins may add others."""

    names: Words
    any_case: bool = False
    open: bool = False


class Detect(_Entry):
    """What a release takes a draft for when no method is given: by its path, its class, its model_type."""

    kept: Words
    words: list[Pair]
    classes: dict[str, Word] = {}
    model_types: dict[str, Word]
    overridden: Word = ""
    otherwise: Word
    error: str = ""


class MethodsBook(_Table):
    """``<engine>/methods.toml``."""

    detect: list[Detect]


class Draft(_Table):
    """Algorithms that want a draft: without one they take the target's weights (``needed``), or stop."""

    needed: Words
    stops: Words
    error: Word
    source: Word


class Together(_Entry):
    """``others`` are only given together with ``first``, unless one of ``unless`` is."""

    first: Word
    others: Words
    unless: Words = []
    error: Word


class Without(_Entry):
    """``missing`` is wanted where ``given`` is (with a value above ``above``)."""

    given: Word
    missing: Word
    above: int = 0
    error: Word
    likely: bool = False


class Required(_Entry):
    """An option without a default."""

    key: Word
    error: Word


class Uncaptured(_Table):
    """The algorithms that run an EAGLE-3 head, with one state in place of three."""

    algorithms: Words
    source: Word


class Numbers(_Entry):
    """Keys that hold an integer, ``least`` or more, which is ``checked`` at start or not. ``lax``: "3" is one."""

    keys: Words
    least: int | None = None
    checked: bool = False
    lax: bool = False
    error: str = ""
    mistyped: str = ""


class Refusal(_Entry):
    """What a release says to values that do not go together."""

    error: str = ""


class DraftTp(Refusal):
    """The draft's own tensor parallelism. ``own``: algorithms that go by it; ``otherwise``: options that split more."""

    own: Words = []
    otherwise: Words = []


class Paged(_Entry):
    """What becomes of several candidates with pages of several tokens; ``backends`` are those that can."""

    outcome: Literal["changes", "stops"]
    backends: Words = []
    error: str = ""


class Single(_Entry):
    """Attention backends that draft one chain."""

    backends: Words
    error: Word


class Depth(_Table):
    """Which options count the steps of a head and the tokens of a block, ``given`` of which is not drafted."""

    steps: Word
    block: Words
    given: int
    source: Word


class Quantization(_Entry):
    """Whether the draft gets the target's --quantization, and what says otherwise."""

    inherits: bool
    own: str = ""


class Online(_Table):
    """Methods that quantise plain weights while they load."""

    methods: Words
    source: Word


class LaunchBook(_Table):
    """``<engine>/launch.toml``."""

    commands: Commands
    parser: Parser
    options: dict[str, Words]
    json_: Json | None = Field(default=None, alias="json")
    known: list[Known] = []
    foreign: dict[str, str] = {}
    algorithms: list[Algorithms] = []
    draft: Draft
    together: list[Together] = []
    without: list[Without] = []
    required: list[Required] = []
    uncaptured: Uncaptured | None = None
    numbers: list[Numbers] = []
    tree: Refusal | None = None
    chain: Refusal | None = None
    paged: list[Paged] = []
    single: list[Single] = []
    block: Refusal | None = None
    depth: Depth | None = None
    draft_tp: DraftTp | None = None
    quantization: list[Quantization] = []
    online: Online | None = None


class Flags(_Entry):
    """Options of some releases, by what they take."""

    takes: Literal["none", "one", "many", "maybe", "refused"]
    names: Word


class FlagBook(_Table):
    """``<engine>/flags.toml``, which tools/gen_flags.py writes."""

    source: Word
    flags: Annotated[list[Flags], Field(min_length=1)]


class Trained(_Table):
    """A config key that says how deep heads of some kinds were trained, unless a class is one of ``unless``."""

    key: Word
    kinds: Words
    unless: Words = []
    source: Word


class DepthBook(_Table):
    """``depth.toml``."""

    steps: list[Trained]
    block: list[Trained]
