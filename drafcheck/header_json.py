"""The JSON of a safetensors header, member by member, refusing what the safetensors library refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.tensor import Tensor
from drafcheck.words import json_fault, plural

if TYPE_CHECKING:
    from drafcheck.header_bulk import Entries

DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""The width in bits of one element of each dtype that safetensors 0.8 knows."""

WORD = 1 << 64  # the library computes sizes in 64-bit integers and refuses what overflows
_DEPTH = 127  # the library's JSON reader refuses deeper nesting
METADATA = "__metadata__"
_SHAPES_KEPT = 4096  # shapes repeat from layer to layer; a hostile file may make every one another
_NUMBER = "0|[1-9][0-9]{0,18}"
# The form in which the library writes an entry, or Python's json with its spaces: read at once, to keep a million
# tensors fast.
_ENTRY = re.compile(
    r'"([^"\\\x00-\x1f]*)": ?\{"dtype": ?"([A-Z0-9_]+)", ?'
    rf'"shape": ?\[([0-9, ]*)\], ?"data_offsets": ?\[({_NUMBER}), ?({_NUMBER})\]\}}(?:, ?|(?!"))'
)
_SIZES = re.compile(rf"(?:{_NUMBER})(?:, ?(?:{_NUMBER}))*")
_MANY, _AT_ONCE = 4 << 20, 1 << 20
"""Characters: a header that is no longer is not worth the import of numpy, and so many are read together of others."""
DIMENSIONS = 1024
"""A tensor of more is refused, where the library sets no limit: PyTorch and numpy make none of more than 64."""
MEMBER_LIMIT = 8 << 20
"""Characters of one tensor's description, or of the metadata: more, all the values of which would be held at once,
can take a hundred times the memory. The library sets no such limit."""
_FIRST_LOOK, _LONGEST_TOKEN = 4 << 10, 16  # of all but strings and numbers the pair of escapes of one character
_SPACE = re.compile(r"[ \t\n\r]*")


class CorruptError(Exception):
    """One sentence about what is wrong, and the tensor that it concerns."""

    def __init__(self, message: str, tensor: str | None = None) -> None:
        """``message`` continues the file's name: ``is empty``."""
        super().__init__(message)
        self.message = message
        self.tensor = tensor


class Run(NamedTuple):
    """Tensors without a gap between them, each of the bytes that it needs, from the ``first`` to before the ``last``.

    ``start`` and ``stop`` are absolute byte offsets in the file.
    """

    first: int
    last: int
    start: int
    stop: int


class Parser:
    """Reads the members of the header object one by one, so that a million tensors fit into little memory.

    Of a long one those that stand in the usual form are read many at once: ``runs`` are those that need no other look.
    """

    def __init__(self, file: str) -> None:
        """``file`` is the name that the tensors carry."""
        self.file = file
        self.tensors: list[Tensor] = []
        self.metadata: dict[str, str] = {}
        self.runs: list[Run] = []
        self._metadata_seen = False
        self._one_by_one = 0  # up to here in the text
        self._base = 0
        self._shapes: dict[str, tuple[int, ...]] = {"": ()}
        self._dtypes = {name: name for name in DTYPE_BITS}  # one string for each dtype, not one a tensor

    def parse(self, text: str, base: int) -> None:
        """Read the header object; ``base`` is where the tensor bytes start in the file. Raises CorruptError."""
        self._base = base
        self._one_by_one = 0 if len(text) >= _MANY else len(text)
        at = skip(text, 0)
        if not text.startswith("{", at):
            raise CorruptError(_not_an_object(text, at))
        at = skip(text, at + 1)
        if text.startswith("}", at):
            at += 1
        else:
            at = self._members(text, at)
        at = skip(text, at)
        if at != len(text):
            raise CorruptError(f"has something after its header object (byte {8 + at})")

    def _members(self, text: str, at: int) -> int:
        while True:
            plain = self._plain_members(text, at)
            if plain == at or text[plain - 1] in ", ":
                plain = self._member(text, skip(text, plain))
            at = skip(text, plain)
            if text.startswith("}", at):
                return at + 1
            if not text.startswith(",", at):
                raise CorruptError(f"has a header that is not json: expected a comma at byte {8 + at}")
            at = skip(text, at + 1)

    def _plain_members(self, text: str, at: int) -> int:
        """Take members in the library's own form, each with its comma, as long as they come; where it stopped."""
        while True:
            while at >= self._one_by_one and _ENTRY.match(text, at):
                at = self._many_members(text, at)
            at = self._few_members(text, at, self._one_by_one)
            if at < self._one_by_one or _ENTRY.match(text, at) is None:
                return at

    def _many_members(self, text: str, at: int) -> int:
        """Take those that lie in the next piece of the text; where others are among them, each is looked at."""
        from drafcheck.header_bulk import entries  # numpy, for long headers alone

        piece = text[at : at + _AT_ONCE]
        found = entries(piece) if METADATA not in piece else None
        taken = found.length if found is not None and self._take_all(found) else 0
        if 2 * taken < len(piece):
            self._one_by_one = at + len(piece)
        return at + taken

    def _take_all(self, found: Entries) -> bool:
        """Add the tensors of the entries; False, and none of them, where one has a dtype or shape to be told about."""
        from drafcheck.header_bulk import gapless, picked

        dtypes = [self._dtypes.get(kind, "") for kind in found.dtypes.texts]
        shapes = [self._shape(sizes) for sizes in found.shapes.texts]
        known = [shape for shape in shapes if shape is not None]
        if "" in dtypes or len(known) < len(shapes):
            return False
        starts, stops = (found.starts + self._base).tolist(), (found.stops + self._base).tolist()
        first = len(self.tensors)
        if gapless(found, [DTYPE_BITS[dtype] for dtype in dtypes], known):
            starts[1:] = stops[:-1]  # one number for both, not two
            self.runs.append(Run(first, first + len(starts), starts[0], stops[-1]))
        kinds, sizes = picked(dtypes, found.dtypes.codes), picked(known, found.shapes.codes)
        fields = zip(found.names, kinds, sizes, repeat(self.file), starts, stops, strict=False)
        self.tensors.extend(map(tuple.__new__, repeat(Tensor), fields))
        return True

    def _shape(self, sizes: str) -> tuple[int, ...] | None:
        """The shape that is written so, each kept once; None for what is no list of sizes."""
        shape = self._shapes.get(sizes)
        if shape is None and sizes.count(",") < DIMENSIONS and _SIZES.fullmatch(sizes) is not None:
            shape = tuple(map(int, sizes.split(",")))
            if len(self._shapes) < _SHAPES_KEPT:
                self._shapes[sizes] = shape
        return shape

    def _few_members(self, text: str, at: int, until: int) -> int:
        """The same one by one, as far as ``until``.

        One flat loop: a million tensors may pass here, and calls and shared objects decide over time and memory.
        """
        match, append, dtypes, base, file = _ENTRY.match, self.tensors.append, self._dtypes, self._base, self.file
        shapes, new, last = self._shapes, tuple.__new__, -1
        while at < until and (found := match(text, at)):
            name, kind, sizes, start, stop = found.groups()
            dtype, shape = dtypes.get(kind), shapes.get(sizes) or self._shape(sizes)
            if dtype is None or shape is None or name == METADATA:
                break
            begin, end = base + int(start), base + int(stop)
            append(new(Tensor, (name, dtype, shape, file, last if begin == last else begin, end)))
            last, at = end, found.end()
        return at

    def _add(self, name: str, dtype: str, shape: tuple[int, ...], start: int, stop: int) -> None:
        self.tensors.append(Tensor(name, dtype, shape, self.file, self._base + start, self._base + stop))

    def _member(self, text: str, at: int) -> int:
        name, at = _value(text, at)
        if not isinstance(name, str):
            raise CorruptError(f"has a header that is not json: expected a name at byte {8 + at}")
        at = skip(text, at)
        if not text.startswith(":", at):
            raise CorruptError(f"has a header that is not json: expected a colon at byte {8 + at}")
        value, at = _member_value(text, skip(text, at + 1), name)
        _check_text(name, name)
        if name == METADATA:
            self._take_metadata(value)
        else:
            self._add(name, *_entry(name, value))
        return at

    def _take_metadata(self, value: Any) -> None:
        if self._metadata_seen:
            raise CorruptError("has __metadata__ twice")
        self._metadata_seen = True
        if value is None:  # the library takes null for nothing
            return
        if not isinstance(value, _Pairs):
            raise CorruptError(f"has {_json_type(value)} as __metadata__, which must be an object")
        for key, text in value:
            if not isinstance(text, str):
                raise CorruptError(f"has __metadata__ whose value of {key!r:.60} is {_json_type(text)}, not a string")
            _check_text(key, None)
            _check_text(text, None)
            self.metadata[key] = text


def skip(text: str, at: int) -> int:
    """Where the white space at ``at`` ends."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _not_an_object(text: str, at: int) -> str:
    if at == len(text):
        return "has an empty header"
    return f"has a header that starts with {text[at]!r} where a json object must start"


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, duplicates and all."""


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"number out of range: {text:.20}")
    return value


def _int(text: str) -> int | float:
    # The library reads minus zero as a float and integers past 64 bits as floats: neither is a size.
    if text == "-0" or len(text) > 20:
        return _float(text)
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not json")


_DECODER = JSONDecoder(object_pairs_hook=_Pairs, parse_float=_float, parse_int=_int, parse_constant=_constant)


def _value(text: str, at: int, name: str | None = None) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise CorruptError("has a header that is nested too deeply", name) from error
    except JSONDecodeError as error:
        raise CorruptError(
            f"has a header that is not json: {json_fault(error.msg)} at byte {8 + error.pos}", name
        ) from error
    except ValueError as error:
        raise CorruptError(f"has a header that is not json: {error}", name) from error


def _member_value(text: str, at: int, name: str) -> tuple[Any, int]:
    """The value of a member of the header, read from a piece of the text that grows until the value ends in it."""
    length = _FIRST_LOOK
    while length < len(text) - at:
        try:
            value, stop = _DECODER.raw_decode(text[at : at + length])
            if stop < length:  # what ends with the piece may be a part of a number
                return value, at + stop
        except (ValueError, RecursionError) as error:
            if not isinstance(error, JSONDecodeError) or (length == MEMBER_LIMIT and _in_the_middle(error)):
                break
        if length == MEMBER_LIMIT:
            raise CorruptError(f"has {name[:60]!r} described in more than {MEMBER_LIMIT:,} characters", name)
        length = min(length << 4, MEMBER_LIMIT)
    return _value(text, at, name)


def _in_the_middle(error: JSONDecodeError) -> bool:
    """Whether a piece of a text is no JSON for another reason than that it ends too early."""
    return not error.msg.startswith("Unterminated string") and error.pos < MEMBER_LIMIT - _LONGEST_TOKEN


def _check_text(text: str, tensor: str | None) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CorruptError("has a header with half a surrogate pair in a string", tensor) from error


def _entry(name: str, value: Any) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(value, _Pairs):
        raise CorruptError(f"describes a tensor by {_json_type(value)}, not by an object", name)
    fields = dict(value)
    if len(fields) != len(value):
        raise CorruptError("describes a tensor with one field given twice", name)
    for key in ("dtype", "shape", "data_offsets"):
        if key not in fields:
            raise CorruptError(f"describes a tensor without {key}", name)
    _check_extra(fields, name)
    dtype = _dtype(fields["dtype"], name)
    shape = _sizes(fields["shape"], "shape", name)
    if len(shape) > DIMENSIONS:
        raise CorruptError(f"gives a shape of {len(shape):,} dimensions, more than {DIMENSIONS:,}", name)
    offsets = _sizes(fields["data_offsets"], "data_offsets", name)
    if len(offsets) != 2:
        raise CorruptError(f"gives data_offsets with {plural(len(offsets), 'number')} instead of 2", name)
    return dtype, shape, offsets[0], offsets[1]


def _dtype(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise CorruptError(f"gives {_json_type(value)} as dtype", name)
    if value not in DTYPE_BITS:
        raise CorruptError(f"gives the unknown dtype {value[:60]!r}", name)
    return value


def _sizes(value: Any, key: str, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        raise CorruptError(f"gives {_json_type(value)} as {key}, not a list", name)
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int):
            raise CorruptError(f"gives {key} with {_json_type(number)} in it", name)
        if number < 0:
            raise CorruptError(f"gives {key} with the negative number {number}", name)
        if number >= WORD:
            raise CorruptError(f"gives {key} with {number}, which does not fit into 64 bits", name)
    return tuple(value)


def _check_extra(fields: dict[str, Any], name: str) -> None:
    """Fields that the format does not define are ignored, yet must be JSON to the library's eyes."""
    for key, value in fields.items():
        _check_text(key, name)
        for depth, leaf in _walk(value):
            if depth + 2 > _DEPTH:
                raise CorruptError("has a header that is nested too deeply", name)
            if isinstance(leaf, str):
                _check_text(leaf, name)


def _walk(value: Any) -> Iterator[tuple[int, Any]]:
    """Every value inside ``value`` with its depth; iterative, as the depth is the file's to choose."""
    rest = [(0, value)]
    while rest:
        depth, item = rest.pop()
        if isinstance(item, _Pairs):
            rest.extend((depth + 1, part) for pair in item for part in pair)
            yield depth + 1, None
        elif isinstance(item, list):
            rest.extend((depth + 1, part) for part in item)
            yield depth + 1, None
        else:
            yield depth, item


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, _Pairs):
        return "an object"
    names: dict[type, str] = {str: "a string", int: "an integer", float: "a float", list: "a list"}
    return names.get(type(value), "something else")
