"""A reader of shell scripts that runs nothing: quoting, variables, arrays, and what is a command.

What comes from outside (arguments, the environment, the output of commands) stays unknown and is named. A variable
that is set under a condition is unknown too, unless it is set to the same value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drafcheck.launch.pieces import NAME, Piece, Variables, assignment, closing_bracket, is_name, split, text_of
from drafcheck.launch.words import Command, Word

DEEPEST = 20
"""Substitutions in substitutions; what is nested deeper is unknown."""

_OPENING = {"if", "for", "while", "until", "case", "select", "function"}
_CLOSING = {"fi", "done", "esac"}
_BEFORE = {"then", "else", "elif", "do", "!", "{", "}", "time", "if", "while", "until", "coproc"}
_SETTING = {"export", "declare", "local", "readonly", "typeset"}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def commands(text: str, env: Mapping[str, str] | None = None, line: int = 1) -> list[Command]:
    """The simple commands of a script, in order; ``line`` is where it begins in its file.

    ``env`` is what is known from outside. Raises UsageError for one that expands to absurd lengths.
    """
    return _Script(text, Variables(env or {}), line).run()


class _Script:
    """One pass over a script: characters to words, words to commands and assignments."""

    def __init__(self, text: str, variables: Variables, line: int, depth: int = 0) -> None:
        self.text, self.at, self.line = text.replace("\r\n", "\n"), 0, line
        self.variables = variables
        self.depth = depth
        self.conditional = 0
        self.chained = False  # after && or ||
        self.found: list[Command] = []
        self.words: list[list[Piece]] = []
        self.lines: list[int] = []
        self.waiting: list[tuple[str, bool, bool]] = []  # here-documents whose text begins on the next line

    # -- from characters to words
    def run(self) -> list[Command]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end()
        return self.found

    def _step(self, char: str) -> None:
        if char == "\\" and self.text.startswith("\\\n", self.at):
            self.at, self.line = self.at + 2, self.line + 1
        elif char in " \t":
            self.at += 1
        elif char == "\n":
            self._newline()
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = end if end >= 0 else len(self.text)
        elif char in ";&|()":
            self._operator()
        elif char in "<>":
            self._redirect()
        else:
            self.lines.append(self.line)
            self.words.append(self._word())

    def _newline(self) -> None:
        self.at, self.line = self.at + 1, self.line + 1
        self._end()
        self.chained = False
        waiting, self.waiting = self.waiting, []
        for delimiter, quoted, is_script in waiting:
            line, text = self.line, self._document(delimiter)
            if is_script and self.depth < DEEPEST:
                # What the outer shell leaves to the inner one is not known there: only `\$` tells them apart.
                plain = not quoted and "\\$" not in text
                variables = Variables(self.variables.known() if plain else {})
                text = text if quoted else text.replace("\\$", "$")
                self.found += _Script(text, variables, line, self.depth + 1).run()

    def _operator(self) -> None:
        double = self.text[self.at : self.at + 2]
        if double == "&>":
            self.at += 1
            self._redirect()
            return
        self.at += 2 if double in ("&&", "||", ";;") else 1
        self._end()
        self.chained = double in ("&&", "||")

    def _redirect(self) -> None:
        """What a command reads and writes does not matter, but for a here-document that is a shell's script."""
        if self.words and text_of(self.words[-1]).isdigit() and self.at and self.text[self.at - 1].isdigit():
            self.words.pop()
            self.lines.pop()
        document = self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at)
        while self.at < len(self.text) and self.text[self.at] in "<>&-|":
            self.at += 1
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] not in "\n;&|()<>":
            mark = self.text[self.at]
            goal = text_of(self._word())
            if document:
                is_script = any(text_of(word).rpartition("/")[2] in _SHELLS for word in self.words)
                self.waiting.append((goal, mark in "'\"\\", is_script))

    def _document(self, delimiter: str) -> str:
        """The text of a here-document, and the position behind it."""
        start = self.at
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = end if end >= 0 else len(self.text)
            row = self.text[self.at : end]
            self.at, self.line = end + 1, self.line + 1
            if row.strip("\t") == delimiter:
                return self.text[start : self.at - len(row) - 1]
        return self.text[start:]

    def _word(self) -> list[Piece]:
        """The word that begins here, and the position after it."""
        pieces: list[Piece] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|<>)" or (char == "(" and not self._opens_array(pieces)):
                break
            if char == "(":
                self._array(text_of(pieces))
                return []
            pieces += self._piece(char)
        return pieces

    def _piece(self, char: str) -> list[Piece]:
        if char == "'":
            return [Piece(self._until("'", self.at + 1))]
        if char == '"':
            self.at += 1
            return self._quoted()
        if char == "\\":
            self.at += 2
            return self._escaped()
        if char == "$" and self.text.startswith("$'", self.at):
            return [Piece(self._ansi())]
        if char in "$`":
            return self._expansion(quoted=False)
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|<>()'\"\\$`":
            self.at += 1
        return [Piece(self.text[start : self.at])]

    def _escaped(self) -> list[Piece]:
        char = self.text[self.at - 1 : self.at]
        self.line += char == "\n"
        return [] if char == "\n" else [Piece(char)]

    def _until(self, mark: str, start: int) -> str:
        end = self.text.find(mark, start)
        end = end if end >= 0 else len(self.text)
        inside = self.text[start:end]
        self.at, self.line = end + 1, self.line + inside.count("\n")
        return inside

    def _ansi(self) -> str:
        self.at += 2
        made: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != "'":
            char = self.text[self.at]
            if char == "\\" and self.at + 1 < len(self.text):
                self.at += 1
                char = _ESCAPES.get(self.text[self.at], f"\\{self.text[self.at]}")
            made.append(char)
            self.line += char == "\n"
            self.at += 1
        self.at += 1
        return "".join(made)

    def _quoted(self) -> list[Piece]:
        """Up to the closing double quote; an empty piece keeps an empty word."""
        pieces = [Piece("")]
        start = opened = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in '"$`\\':
                pieces.append(Piece(self.text[start : self.at]))
            if char == '"':
                inside, self.at = self.text[opened : self.at], self.at + 1
                whole = inside.startswith("${") and inside.endswith("[@]}")
                return [] if whole and not any(p.text or p.missing for p in pieces) else pieces  # an empty array
            if char in "$`":
                pieces += self._expansion(quoted=True)
                start = self.at
            elif char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                pieces.append(Piece("" if after == "\n" else after if after in '$`"\\' else char + after))
                self.line += after == "\n"
                self.at += 2
                start = self.at
            else:
                self.line += char == "\n"
                self.at += 1
        return [*pieces, Piece(self.text[start:])]

    # -- $ and `
    def _expansion(self, *, quoted: bool) -> list[Piece]:
        start = self.at
        if self.text[start] == "`":
            self._until("`", start + 1)
            return [Piece(self.text[start : self.at], quoted, "`...`")]
        follows = self.text[start + 1 : start + 2]
        if follows == "(":
            self.at = closing_bracket(self.text, start + 1, "(", ")")
            self.line += self.text.count("\n", start, self.at)
            return [Piece(self.text[start : self.at], quoted, "$(...)")]
        if follows == "{":
            self.at = closing_bracket(self.text, start + 1, "{", "}")
            return self._braces(self.text[start + 2 : self.at - 1], quoted)
        end = start + 1
        if follows in set("0123456789@*#?$!-"):
            end += 1
        elif follows in NAME:
            while end < len(self.text) and self.text[end] in NAME:
                end += 1
        self.at = end
        name = self.text[start + 1 : end]
        return self._variable(name, quoted) if name else [Piece("$")]

    def _braces(self, inside: str, quoted: bool) -> list[Piece]:
        written = "${" + inside + "}"
        size = next((i for i, char in enumerate(inside) if char not in NAME), len(inside))
        name, rest = inside[:size], inside[size:]
        if rest in ("[@]", "[*]") and name:
            return self._variable(name, quoted, whole=True)
        value = self.variables.get(name) if name else None
        operator = rest[:2] if rest.startswith(":") else rest[:1]
        is_set = value is not None and (not operator.startswith(":") or any(text_of(word) for word in value))
        is_known = name in self.variables.values and name not in self.variables.unsure
        if not rest or (operator in (":-", "-", ":=", "=", ":?", "?") and is_set):
            return self._variable(name, quoted)
        if operator in (":-", "-", ":=", "=") and self.depth < DEEPEST and name not in self.variables.unsure:
            default = self._inner(rest[len(operator) :], quoted)
            if name and name not in self.variables.values and not any(piece.text or piece.missing for piece in default):
                self.variables.forget(name)  # it is there for what may come from outside
                return [Piece(written, quoted, f"${name}")]
            if operator in (":=", "="):
                self.variables.set(name, [default], sure=not self.conditional)
            return default
        if operator in (":+", "+") and is_known and self.depth < DEEPEST:
            return self._inner(rest[len(operator) :], quoted) if is_set else []
        spread = inside.startswith(("@", "*")) or rest.startswith(("[@]", "[*]"))  # any number of words, quoted or not
        return [Piece(written, quoted and not spread, f"${name}" if name else written)]

    def _inner(self, text: str, quoted: bool) -> list[Piece]:
        """The words after an operator inside braces."""
        inner = _Script(text, self.variables, self.line, self.depth + 1)
        pieces = inner._quoted() if quoted else [*inner._loose()]
        self.variables.charge([pieces])
        return pieces

    def _loose(self) -> Iterator[Piece]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "'\"\\$`":
                yield from self._piece(char)
                continue
            yield Piece(char, quoted=False)
            self.at += 1

    def _variable(self, name: str, quoted: bool, *, whole: bool = False) -> list[Piece]:
        value = self.variables.get(name)
        if value is None:
            spread = name in "@*" or whole
            return [Piece(f"${name}", quoted and not spread, f"${name}")]
        self.variables.charge(value)
        words = value if whole else value[:1]
        pieces: list[Piece] = []
        for number, word in enumerate(words):
            pieces += [piece._replace(quoted=quoted) for piece in word] or [Piece("", quoted)]
            if number + 1 < len(words):
                pieces[-1] = pieces[-1]._replace(ends=True)
        return pieces

    # -- arrays
    def _opens_array(self, pieces: list[Piece]) -> bool:
        written = text_of(pieces)
        return written.endswith("=") and is_name(written.removesuffix("=").removesuffix("+"))

    def _array(self, written: str) -> None:
        """``NAME=( ... )``, which is taken at once."""
        name, add = written.removesuffix("=").removesuffix("+"), written.endswith("+=")
        start, self.at = self.at + 1, closing_bracket(self.text, self.at, "(", ")")
        if self.depth >= DEEPEST:
            self.variables.forget(name)
            return
        inner = _Script(self.text[start : self.at - 1], self.variables, self.line, self.depth + 1)
        self.line += self.text.count("\n", start, self.at)
        elements = [[Piece(w.text, True, w.missing[0] if w.missing else "")] for w in inner._elements()]
        before = self.variables.get(name) if add else []
        if before is None:
            self.variables.forget(name)
        else:
            self.variables.set(name, self.variables.charge([*before, *elements]), sure=self._sure)

    def _elements(self) -> list[Word]:
        made: list[Word] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|<>()":
                self.at, self.line = self.at + 1, self.line + (char == "\n")
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                made += split(self._word(), self.line)
        return made

    # -- from words to commands
    @property
    def _sure(self) -> bool:
        return not self.conditional and not self.chained

    def _end(self) -> None:
        words, lines, self.words, self.lines = self.words, self.lines, [], []
        while words and (first := text_of(words[0])) in _BEFORE | _OPENING | _CLOSING:
            self.conditional += (first in _OPENING) - (first in _CLOSING)
            loop = first in ("for", "select") and len(words) > 1
            if loop:
                self.variables.forget(text_of(words[1]))
            words, lines = ([], []) if loop else (words[1:], lines[1:])
        prefix: dict[str, str] = {}
        while words and (made := assignment(words[0])):
            name, add, pieces = made
            if len(words) == 1:
                self._assign(name, add, pieces)
            elif not any(piece.missing for piece in pieces):
                prefix[name] = text_of(pieces)
            words, lines = words[1:], lines[1:]
        if not words:
            return
        if text_of(words[0]) in _SETTING | {"unset", "read", "source", "."}:
            self._builtin(text_of(words[0]), words[1:])
        made_words = tuple(w for word, line in zip(words, lines, strict=True) for w in split(word, line))
        if made_words:
            self.found.append(Command(made_words, {**self.variables.known(), **prefix}))

    def _builtin(self, name: str, words: list[list[Piece]]) -> None:
        for word in words:
            made = assignment(word)
            if name in _SETTING and made:
                self._assign(*made)
            elif name == "unset":
                self.variables.values.pop(text_of(word), None)
            elif name == "read":
                self.variables.forget(text_of(word))

    def _assign(self, name: str, add: bool, pieces: list[Piece]) -> None:
        before = self.variables.get(name) if add else []
        if before is None:
            self.variables.forget(name)
            return
        value = [[*(before[0] if before else []), *pieces]]
        self.variables.set(name, self.variables.charge(value), sure=self._sure)


def interpolated(text: str, env: Mapping[str, str], line: int = 1) -> Word:
    """One text with its variables replaced and nothing else: quotes and blanks are left as they are."""
    script = _Script(text.replace('"', '\\"') + '"', Variables(env), line)
    pieces = script._quoted()
    missing = tuple(dict.fromkeys(piece.missing for piece in pieces if piece.missing))
    return Word(text_of(pieces), line, missing)
