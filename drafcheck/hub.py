"""Repositories of the Hugging Face Hub: ``hf://org/name[@revision][/folder or file]``.

The revision is pinned to a commit first, in the one request that also lists the files, so all that is read belongs
together. Files that the local cache holds for that commit are read from disk. HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE and
HF_HUB_OFFLINE mean what they mean to huggingface_hub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from drafcheck.errors import UsageError
from drafcheck.place import ListedPlace, LocalPlace, Place, inside
from drafcheck.remote import HttpReader, RemoteFile
from drafcheck.source import LocalFile, Source

ANSWER_LIMIT = 64 << 20
"""Bytes that are read at most of what the Hub says about a repository; 10,000 files take about 5 MB."""

_ADDRESS = re.compile(r"hf://([^/@]+(?:/[^/@]+)?)(?:@(refs/(?:pr|convert)/[^/]+|[^/]+))?(?:/(.*))?", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OTHERS = ("datasets", "spaces", "buckets", "kernels")
_PAGES = ("tree", "resolve", "blob", "raw")


@dataclass(frozen=True, slots=True)
class Repo:
    """What an address names. ``revision`` is None for the main branch, ``path`` empty for the whole repository."""

    given: str
    name: str
    revision: str | None = None
    path: str = ""

    @property
    def root(self) -> str:
        """The address of the repository at that revision, without the path."""
        return f"hf://{self.name}" + (f"@{quote(self.revision, safe='/')}" if self.revision else "")


def open_hub(address: str) -> tuple[Place, str | None]:
    """The folder that an ``hf://`` address means and, when it names a file, the file's name.

    Raises UsageError for an address that is none, a repository, revision or file that is not there or may not be
    read, and a Hub that cannot be reached.
    """
    return open_repo(parse(address))


def open_repo(repo: Repo) -> tuple[Place, str | None]:
    """The same for an address that was taken apart."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return _from_cache(repo)
    commit, files = _listing(repo)
    folder, name = _split(repo, files)
    prefix = folder + "/" if folder else ""
    opener = _opener(repo, commit, files)
    place = ListedPlace(_folder_address(repo, folder), inside(files, folder), lambda file: opener(prefix + file, file))
    return place, name


def parse(address: str) -> Repo:
    """Take an address apart. A revision with a slash is written with ``%2F``, but for ``refs/pr/N``.

    Raises UsageError for an address that is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or (match[3] is not None and "/" not in match[1]):
        raise UsageError(f"{address}: addresses of the Hub are written hf://org/name[@revision][/file]")
    name, revision, path = match[1], match[2], (match[3] or "").strip("/")
    if name.partition("/")[0] in _OTHERS:
        raise UsageError(f"{address}: drafcheck reads repositories of models only")
    if ".." in path.split("/"):
        raise UsageError(f"{address}: the path leads out of the repository")
    _validate(address, name)
    return Repo(address, name, unquote(revision) if revision else None, path)


def from_page(url: str) -> Repo | None:
    """The repository that an address of the Hub's own web pages means; None for any other address."""
    from huggingface_hub import constants

    page, home = urlsplit(url), urlsplit(constants.ENDPOINT)
    parts = [unquote(part) for part in page.path.removeprefix(home.path).strip("/").split("/")]
    if (page.scheme, page.netloc) != (home.scheme, home.netloc) or parts[0] == "api" or len(parts) < 2:
        return None
    name, rest = "/".join(parts[:2]), parts[2:]
    if parts[0] in _OTHERS or (rest and (rest[0] not in _PAGES or len(rest) < 2)):
        return None
    _validate(url, name)
    return Repo(url, name, rest[1] if rest else None, "/".join(rest[2:]))


def _validate(address: str, name: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UsageError(f"{address}: {name:.100} is no name of a repository") from error


def _folder_address(repo: Repo, folder: str) -> str:
    return f"{repo.root}/{folder}" if folder else repo.root


def _split(repo: Repo, files: Mapping[str, int | None]) -> tuple[str, str | None]:
    """(folder, file) of the path. Raises UsageError when there is no such thing."""
    if repo.path in files:
        folder, _, name = repo.path.rpartition("/")
        return folder, name
    if repo.path and not inside(files, repo.path):
        raise UsageError(f"{repo.given}: there is no {repo.path} in the repository")
    return repo.path, None


# What the Hub says.


def _listing(repo: Repo) -> tuple[str, dict[str, int | None]]:
    """The commit of the revision, and every file with its size."""
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/api/models/{repo.name}"
    url += f"/revision/{quote(repo.revision, safe='')}" if repo.revision else ""
    data = _reader(repo, url + "?blobs=true").whole(ANSWER_LIMIT).data
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{repo.given}: the Hub's answer is not json") from error
    commit = said.get("sha") if isinstance(said, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise UsageError(f"{repo.given}: the Hub does not say which commit this revision is")
    return commit, dict(filter(None, map(_entry, said.get("siblings") or [])))


def _entry(sibling: object) -> tuple[str, int | None] | None:
    """Name and size of a file; None for what would not be one in any folder."""
    name = sibling.get("rfilename") if isinstance(sibling, dict) else None
    if not isinstance(name, str) or not isinstance(sibling, dict):
        return None
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        return None
    size = sibling.get("size")
    return name, size if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63 else None


def _reader(repo: Repo, url: str, file: str = "") -> HttpReader:
    token = _token()
    own = {"authorization": f"Bearer {token}"} if token else {}
    what = f"{repo.root}/{file}" if file else repo.given

    def explain(status: int, headers: Mapping[str, str], elsewhere: str) -> str:
        if file and elsewhere and not headers.get("x-error-code"):  # of no other Hub, and after the listing was read
            return f"the repository can be read, but the storage host {elsewhere} refuses the file (status {status})"
        return _explain(repo, status, headers, token is not None)

    return HttpReader(url, what, own, explain)


def _token() -> str | None:
    """The token as huggingface_hub finds it: HF_TOKEN, or what ``hf auth login`` saved.

    The rest of build_hf_headers is left out: in 2.x it may ask the Hub for a list of coding agents first.
    """
    from huggingface_hub import constants, get_token

    return None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()


def _opener(repo: Repo, commit: str, files: Mapping[str, int | None]) -> Callable[[str, str], Source]:
    """How to open a file of this commit: from the cache when it is there."""
    from huggingface_hub import constants, try_to_load_from_cache

    def opener(path: str, name: str) -> Source:
        cached = try_to_load_from_cache(repo.name, path, revision=commit)
        if isinstance(cached, str):
            return LocalFile(Path(cached), name)
        url = f"{constants.ENDPOINT}/{repo.name}/resolve/{commit}/{quote(path)}"
        return RemoteFile(name, _reader(repo, url, path), files[path])

    return opener


def _explain(repo: Repo, status: int, headers: Mapping[str, str], has_token: bool) -> str:
    """Why the Hub refuses, as it says in a header; the status alone does not tell what is missing."""
    code = headers.get("x-error-code", "")
    login = "the token may not read it" if has_token else "set HF_TOKEN, or log in with `hf auth login`"
    if code == "GatedRepo":
        return f"the repository is gated: ask for access on its page; {login}"
    if status == 401 and headers.get("x-error-message", "").startswith("Invalid credentials"):
        return "the Hub does not take the token (HF_TOKEN, or the one that was saved)"
    if status in (401, 403):
        return f"the repository is private, or there is none of this name; {login}"
    if code == "RevisionNotFound":
        return f"there is no revision {repo.revision or 'main'} of it"
    if code == "EntryNotFound":
        return "there is no such file in the repository"
    missing = f"there is no such repository, or it is private; {login}"
    return missing if status == 404 else f"the Hub answers with status {status}"


# What the cache holds.


class CachedPlace(LocalPlace):
    """What the cache holds of a commit. What is not in it may still be in the repository."""

    complete = False

    def __init__(self, folder: Path, address: str, absent: Path) -> None:
        """The part of a snapshot at ``folder``; ``absent`` is where the cache notes what the repository lacks."""
        super().__init__(folder)
        self._address = address
        self._absent = absent

    def address(self, name: str) -> str:
        """The address of a file."""
        return f"{self._address}/{name}"

    def confirm_absent(self, what: str) -> None:
        """Raises UsageError unless the cache knows that the repository has no such file."""
        if not (self._absent / what).is_file():
            raise UsageError(f"{self._address}: HF_HUB_OFFLINE is set and the cache does not hold {what}")


def _from_cache(repo: Repo) -> tuple[Place, str | None]:
    """The snapshot of the revision. Raises UsageError when there is none, or not of this file."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    store = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo.name, repo_type="model")
    commit = _cached_commit(store, repo.revision or "main")
    snapshot = store / "snapshots" / (commit or "")
    spot = snapshot / repo.path
    if commit is None or not spot.exists():
        raise UsageError(f"{repo.given}: HF_HUB_OFFLINE is set and it is not in the cache; fetch it with `hf download`")
    folder, name = (spot, None) if spot.is_dir() else (spot.parent, spot.name)
    inner = folder.relative_to(snapshot).as_posix()
    address = _folder_address(repo, "" if inner == "." else inner)
    return CachedPlace(folder, address, store / ".no_exist" / commit / inner), name


def _cached_commit(store: Path, revision: str) -> str | None:
    """The commit that the cache knows a revision by."""
    try:
        ref = store / "refs" / revision
        known = ref.read_text().strip() if ".." not in ref.parts and ref.is_file() else revision
    except (OSError, ValueError):
        return None
    return known if _COMMIT.fullmatch(known) else None
