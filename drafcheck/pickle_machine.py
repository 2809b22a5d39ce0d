"""A stack machine that reads a pickle without importing or calling anything.

It understands what torch writes for a state dict. Every other global that a pickle names is a fault: the
machine stops there, and ``drafcheck.pickle_sweep`` lists them all. Calls are never made; they become plain records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from drafcheck.pickle_calls import HostileError, build, call, made
from drafcheck.pickle_globals import HARMLESS, LITERALS, UNTYPED, WEIGHTS_ONLY, resolved
from drafcheck.pickle_records import DIMENSION_LIMIT, OPAQUE, Global, Storage, Table, storage_of

if TYPE_CHECKING:
    from pickletools import OpcodeInfo

STEP_LIMIT = 8_000_000
"""Pickles with more steps are not read to their end. An opcode that makes an object counts as several, by its size."""

_STEPS = {
    **dict.fromkeys(("EMPTY_DICT", "DICT", "REDUCE", "NEWOBJ"), 7),
    **dict.fromkeys(("EMPTY_LIST", "LIST", "BINPERSID", "GLOBAL", "STACK_GLOBAL", "INST", "OBJ"), 3),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "TUPLE", "TUPLE2", "TUPLE3"), 1),
    **dict.fromkeys(LITERALS, 1),
}
"""How many steps more than one these are."""


class PickleError(Exception):
    """The pickle cannot be understood. ``message`` continues the file's name, ``unsafe`` when it names code."""

    def __init__(self, message: str, *, unsafe: bool = False) -> None:
        """One sentence, and whether the pickle asks for code to be run."""
        super().__init__(message)
        self.message = message
        self.unsafe = unsafe


class ForeignError(PickleError):
    """The pickle uses an opcode that no reader of weights knows. ``message`` names the first one that torch refuses."""


class Machine:
    """Runs one pickle from a stream. After ``run``, ``foreign`` names the first opcode torch would refuse."""

    def __init__(self, stream: IO[bytes], member: str = "", *, legacy: bool = False, most: int | None = None) -> None:
        """``stream`` stands at the pickle's first byte; ``member`` is the file inside an archive, for messages.

        ``legacy``: the pickle is that of a file of before torch 1.6, whose storages say more. ``most``: so many steps
        are taken, what the pickles before it in the file have left; ``left`` is what this one leaves.
        """
        self.left = STEP_LIMIT if most is None else most
        self._stream = stream
        self._of = f" of {member}" if member else ""
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._legacy = legacy
        self._at = 0
        self.foreign: str | None = None
        self.untyped = False  # whether there is a storage without a dtype
        self.storages: dict[str, Storage] = {}  # every one as the pickle first mentions it

    def run(self) -> Any:
        """The value that the pickle leaves, as plain records. Raises PickleError."""
        import pickletools

        try:
            with warnings.catch_warnings():  # odd escapes in a stranger's strings are not our user's concern
                warnings.simplefilter("ignore")
                return self._run(pickletools.genops(self._stream))
        except PickleError:
            raise
        except HostileError as error:
            raise PickleError(f"has a pickle that {error} ({self._place()})", unsafe=True) from error
        except RecursionError as error:
            raise PickleError("has a pickle that is nested too deeply") from error
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, EOFError, UnicodeError) as error:
            raise PickleError(f"has a pickle that is broken {self._place()}: {_short(error)}") from error

    def _run(self, operations: Iterator[tuple[OpcodeInfo, Any, int | None]]) -> Any:
        known, push = _KNOWN, self._stack.append
        for opcode, arg, pos in operations:  # a million times for 40,000 tensors: what is done here counts
            name = opcode.name
            self._at = pos or 0
            steps, handler = known.get(name) or (1, None)
            self.left -= steps
            if self.left < 0:
                raise PickleError(f"has a pickle of more than {STEP_LIMIT} steps, which is not read to its end")
            if self.foreign is None and name not in WEIGHTS_ONLY:
                self.foreign = f"{name} {self._place()}"
            if handler is not None:
                handler(self, arg)
            elif name in LITERALS:
                push(arg)
            elif name == "STOP":
                return self._pop()
            else:
                self._rest(name)
        raise PickleError(f"has a pickle without end ({self._place()})")

    def _rest(self, name: str) -> None:
        """What is no opcode of a state dict."""
        if name not in _IGNORED:
            raise ForeignError(refused(self.foreign or f"{name} {self._place()}"))

    def _place(self) -> str:
        return f"at byte {self._at}{self._of}"

    def _pop(self) -> Any:
        stack, marks = self._stack, self._marks
        if len(stack) <= (marks[-1] if marks else 0):
            raise PickleError(f"has a pickle that takes from an empty stack {self._place()}")
        return stack.pop()

    def _top(self) -> Any:
        stack, marks = self._stack, self._marks
        if len(stack) <= (marks[-1] if marks else 0):
            raise PickleError(f"has a pickle that takes from an empty stack {self._place()}")
        return stack[-1]

    def _items(self) -> list[Any]:
        if not self._marks:
            raise PickleError(f"has a pickle that looks for a mark that is not there {self._place()}")
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _push_mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _pop_one(self, _: Any) -> None:
        if self._marks and len(self._stack) == self._marks[-1]:
            self._marks.pop()
        else:
            self._pop()

    def _pop_mark(self, _: Any) -> None:
        self._items()

    def _dup(self, _: Any) -> None:
        self._stack.append(self._top())

    def _constant(self, value: Any) -> None:
        self._stack.append(value)

    def _python2(self, value: str) -> None:
        # torch.load decodes them as UTF-8 and raises where they are not
        self._stack.append(value.encode("latin-1").decode("utf-8"))

    def _tuple(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._stack.append(tuple(reversed(items)))

    def _tuple_mark(self, _: Any) -> None:
        self._stack.append(tuple(self._items()))

    def _list_mark(self, _: Any) -> None:
        self._stack.append(self._items())

    def _dict_mark(self, _: Any) -> None:
        items = self._items()
        self._stack.append(Table())
        self._fill(items)

    def _opaque_mark(self, _: Any) -> None:
        self._items()
        self._stack.append(OPAQUE)

    def _append(self, _: Any) -> None:
        value = self._pop()
        self._extend([value])

    def _appends(self, _: Any) -> None:
        self._extend(self._items())

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise ValueError("more items for what is no list")
        target.extend(items)

    def _setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._fill([key, value])

    def _setitems(self, _: Any) -> None:
        self._fill(self._items())

    def _fill(self, items: list[Any]) -> None:
        target = self._top()
        if len(items) % 2:
            raise PickleError(f"has a pickle with a key without a value {self._place()}")
        if not isinstance(target, Table):
            raise ValueError("items for what is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target.take(key, value)

    def _put(self, index: int | str) -> None:
        self._memo[int(index)] = self._top()

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _get(self, index: int | str) -> None:
        if int(index) not in self._memo:
            raise PickleError(f"has a pickle that recalls what it never stored {self._place()}")
        self._stack.append(self._memo[int(index)])

    def _global(self, arg: str) -> None:
        module, _, name = arg.partition(" ")
        self._name(module, name)

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise PickleError(
                f"has a pickle that names code by something other than text {self._place()}: {_CODE}", unsafe=True
            )
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        path = resolved(module, name)
        if path not in HARMLESS:
            raise PickleError(f"has a pickle that asks for {path:.200} {self._place()}: {_CODE}", unsafe=True)
        self._stack.append(Global(path))

    def _inst(self, arg: str) -> None:
        self._items()
        self._global(arg)
        self._stack[-1] = OPAQUE

    def _obj(self, _: Any) -> None:
        items = self._items()
        self._refuse_unless_named(items[0] if items else None)
        self._stack.append(OPAQUE)

    def _extension(self, code: int) -> None:
        raise PickleError(
            f"has a pickle that asks for the registered extension {code} {self._place()}: {_CODE}", unsafe=True
        )

    def _reduce(self, _: Any) -> None:
        self._call(call)

    def _newobj(self, _: Any) -> None:
        self._call(made)

    def _newobj_ex(self, _: Any) -> None:
        self._pop()
        self._call(made)

    def _call(self, how: Callable[[str, tuple[Any, ...]], Any]) -> None:
        args, function = self._pop(), self._pop()
        self._refuse_unless_named(function)
        if not isinstance(args, (tuple, list)) or len(args) > DIMENSION_LIMIT:
            raise ValueError("arguments that are no short list")
        self._stack.append(how(function.path, tuple(args)))

    def _refuse_unless_named(self, function: Any) -> None:
        if not isinstance(function, Global):
            raise PickleError(f"has a pickle that calls what is not a function {self._place()}: {_CODE}", unsafe=True)

    def _build(self, _: Any) -> None:
        state, target = self._pop(), self._top()
        if isinstance(target, Global):
            raise PickleError(
                f"has a pickle that sets attributes of {target.path} {self._place()}: loading it would change the "
                "program that does",
                unsafe=True,
            )
        build(target, state)  # of a dict its `_metadata`: nothing that a loader reads

    def _persistent(self, _: Any) -> None:
        pid = self._pop()
        storage = storage_of(pid, legacy=self._legacy)
        if pid[1].path == UNTYPED:
            self.untyped = True
        first = self.storages.setdefault(storage.key, storage)
        # torch makes a storage when it is first mentioned, and what is said of its type later does not count
        self._stack.append(storage._replace(dtype=first.dtype, width=first.width))


_CODE = "loading it would run code"

_IGNORED = frozenset({"PROTO", "FRAME"})

_HANDLERS: dict[str, Callable[[Machine, Any], None]] = {
    "MARK": Machine._push_mark,
    "POP": Machine._pop_one,
    "POP_MARK": Machine._pop_mark,
    "DUP": Machine._dup,
    "NONE": lambda m, _: m._constant(None),
    "NEWTRUE": lambda m, _: m._constant(True),
    "NEWFALSE": lambda m, _: m._constant(False),
    "SHORT_BINSTRING": Machine._python2,
    "EMPTY_TUPLE": lambda m, _: m._constant(()),
    "EMPTY_LIST": lambda m, _: m._constant([]),
    "EMPTY_DICT": lambda m, _: m._constant(Table()),
    "EMPTY_SET": lambda m, _: m._constant(OPAQUE),
    "FROZENSET": Machine._opaque_mark,
    "ADDITEMS": Machine._pop_mark,
    "TUPLE": Machine._tuple_mark,
    "TUPLE1": lambda m, _: m._tuple(1),
    "TUPLE2": lambda m, _: m._tuple(2),
    "TUPLE3": lambda m, _: m._tuple(3),
    "LIST": Machine._list_mark,
    "DICT": Machine._dict_mark,
    "APPEND": Machine._append,
    "APPENDS": Machine._appends,
    "SETITEM": Machine._setitem,
    "SETITEMS": Machine._setitems,
    "PUT": Machine._put,
    "BINPUT": Machine._put,
    "LONG_BINPUT": Machine._put,
    "MEMOIZE": Machine._memoize,
    "GET": Machine._get,
    "BINGET": Machine._get,
    "LONG_BINGET": Machine._get,
    "GLOBAL": Machine._global,
    "STACK_GLOBAL": Machine._stack_global,
    "INST": Machine._inst,
    "OBJ": Machine._obj,
    "EXT1": Machine._extension,
    "EXT2": Machine._extension,
    "EXT4": Machine._extension,
    "REDUCE": Machine._reduce,
    "NEWOBJ": Machine._newobj,
    "NEWOBJ_EX": Machine._newobj_ex,
    "BUILD": Machine._build,
    "BINPERSID": Machine._persistent,
}


_KNOWN = {name: (1 + _STEPS.get(name, 0), _HANDLERS.get(name)) for name in {*_HANDLERS, *_STEPS}}
"""How many steps an opcode is, and what it does."""


def refused(opcode: str) -> str:
    """What to say of a file with an opcode, and its place, that torch does not take."""
    return f"uses the pickle opcode {opcode}, which torch.load(weights_only=True) refuses"


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:120]
