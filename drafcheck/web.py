"""Checkpoints on a web server: ``https://host/path/``, a folder or a file.

A web server does not list its folders. The files that a checkpoint usually has are asked for by name, the shards by the
index; files with other names are read when their own address is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit

from drafcheck.address import join
from drafcheck.checkpoint import BESIDE, CONFIG, INDEXES, parse_index
from drafcheck.errors import UsageError
from drafcheck.jsonpos import read_document
from drafcheck.place import Place
from drafcheck.remote import Closed, HttpReader, NotThere, RemoteFile
from drafcheck.source import Source

USUAL = ("model.safetensors", "pytorch_model.bin")
"""What the weights are called when nothing says otherwise; the first that is there counts."""

OPTIONAL = (*INDEXES, *USUAL, BESIDE)
"""What is asked for although it need not be there."""

SHARDS = 1000
"""An index that names more files than this is not followed."""

_FILES = (".json", ".safetensors", ".bin", ".pt", ".pth", ".npy")


def open_web(address: str) -> tuple[Place, str | None]:
    """The folder at a web address and, when it names a file, the file's name. Nothing is asked yet but at the Hub.

    An address of one of the Hub's pages means the repository. Raises UsageError for an address that is none or holds a
    password or a query, which reports would repeat.
    """
    from drafcheck.hub import from_page, open_repo

    parts = _parts(address)
    repo = from_page(address)
    if repo is not None:
        return open_repo(repo)
    if parts.query or parts.fragment:
        raise UsageError("a web address may have no query and no fragment: reports would repeat what is in them")
    folder, _, name = address.rpartition("/")
    if name.endswith(_FILES) and folder.count("/") >= 2:
        return WebPlace(folder), unquote(name)
    return WebPlace(address), None


def _parts(address: str) -> SplitResult:
    """Raises UsageError for an address without a server, or with a name and password in it."""
    try:
        parts = urlsplit(address)
        sound = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"{address}: this is no web address")
    if parts.username is not None:
        raise UsageError("a web address may have no name and password in it: reports would repeat them")
    return parts


class WebPlace:
    """A folder of a web server. What was asked for once is not asked for again."""

    remote = True
    complete = False

    def __init__(self, base: str) -> None:
        """The folder at ``base``."""
        self._base = base.rstrip("/")
        self._known: dict[str, RemoteFile] = {}
        self._there: dict[str, bool] = {}

    def names(self) -> list[str]:
        """The config, the index and the weight files that are there. Raises UsageError when there are none."""
        found = [CONFIG] if self.is_file(CONFIG) else []
        for index, single in zip(INDEXES, USUAL, strict=True):
            shards = self._shards(index)
            weights = [*shards] if shards is not None else [single] if self.is_file(single) else []
            found += [index] if shards is not None else []
            if weights:
                return sorted({*found, *weights})
        if not found:
            raise UsageError(f"{self._base}: there is no {CONFIG}, no {USUAL[0]} and no {INDEXES[0]}")
        return sorted(found)

    def below(self, folder: str) -> list[str]:  # noqa: ARG002
        """Nothing: what is deeper is not looked for."""
        return []

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name. Raises UsageError."""
        return self.is_file(name)

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name. Raises UsageError when the server does not say."""
        if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name:
            return False
        if name not in self._there:
            self._there[name] = self._ask(name)
        return self._there[name]

    def _ask(self, name: str) -> bool:
        try:
            self.source(name).size()
        except NotThere:
            return False
        except Closed:
            if name not in OPTIONAL:
                raise
            return False  # buckets that are public, but for their listing, refuse what is not there
        return True

    def is_folder(self, name: str) -> bool:  # noqa: ARG002
        """Never: see ``below``."""
        return False

    def source(self, name: str) -> Source:
        """The bytes of a file; always the same source, which keeps what it has read."""
        if name not in self._known:
            address = self.address(name)
            self._known[name] = RemoteFile(name, HttpReader(address, address, {}, _explain))
        return self._known[name]

    def address(self, name: str) -> str:
        """The address of a file."""
        return join(self._base, quote(name))

    def confirm_absent(self, what: str) -> None:
        """What the server says it does not have is not there."""

    def _shards(self, index: str) -> list[str] | None:
        """The files of the top folder that an index names and that are there; None when there is no index."""
        if not self.is_file(index):
            return None
        names = parse_index(read_document(self.source(index))).files
        if len(names) > SHARDS:
            raise UsageError(
                f"{self.address(index)} names {len(names)} files, more than the {SHARDS} that are asked for"
            )
        return [name for name in names if "/" not in name and self.is_file(name)]


def _explain(status: int, _: Mapping[str, str], elsewhere: str) -> str:
    server = f"{elsewhere}, to which the server redirects," if elsewhere else "the server"
    if status in (404, 410):
        return f"there is no such file (status {status})"
    if status in (401, 403):
        return f"{server} does not let it be read without a login (status {status})"
    return f"{server} answers with status {status}"
