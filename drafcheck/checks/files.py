"""DC0xx: are the files there, whole and readable, and does the loader take them?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from drafcheck.checks.values import damaged
from drafcheck.contract import in_force, load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.listing import Listing
from drafcheck.registry import Hit, rule
from drafcheck.tensor import Problem, Trouble
from drafcheck.words import are, count, listed

if TYPE_CHECKING:
    from drafcheck.checkpoint import Index
    from drafcheck.plan.files import Selection
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor


_NAME = itemgetter(0)


def problems(s: Subject, *troubles: Trouble) -> Iterator[Hit]:
    """The problems of the config, of the index in use and of the files that the loader opens."""
    found = list(s.checkpoint.problems)
    if s.selection is not None:
        found += s.selection.index.problems if s.selection.index is not None and s.selection.index_read else ()
        found += (problem for file in s.selection.chosen for problem in file.header.problems)
    for problem in found:
        if problem.trouble in troubles:
            yield _hit(problem)


def _hit(problem: Problem) -> Hit:
    without_config = problem.stops and problem.trouble in (Trouble.NO_CONFIG, Trouble.BAD_CONFIG)
    return Hit(problem.message, (problem.location,), help=problem.help, stops=without_config)


def is_config(hit: Hit, s: Subject) -> bool:
    """Whether a problem is one of the config or of the index, not of a weight file."""
    ours = {p.location.file for p in s.checkpoint.problems}
    return any(place.file in ours for place in hit.locations)


def is_complete(s: Subject) -> bool:
    """Whether the load plan is complete all the same: nothing that the engine needs is lost."""
    plan = s.load
    return plan is not None and not (plan.refused or plan.has_gaps)


@rule("DC001", "no-checkpoint", Severity.ERROR)
def no_checkpoint(s: Subject) -> Iterator[Hit]:  # noqa: ARG001  (a rule, if one that never runs)
    """There is nothing at the path that looks like a checkpoint.

    ## What it does
    Reports a folder without a `config.json`, a weight file (`*.safetensors`, `*.bin`, `*.pt`) or an index, and a file
    that is none of these. The exit code is 3, so that a gate does not take an empty folder for a healthy draft.

    ## Why is this bad?
    Nothing was checked. The path is often one level too high (`snapshots/<revision>/` of a cache) or the export
    wrote elsewhere.

    ## Fix
    Give the folder that holds the draft's `config.json`.
    """
    # Such a path never becomes a Subject: the runner makes the finding when open_checkpoint says so.
    return
    yield


@rule("DC002", "unreadable-config", Severity.ERROR, Severity.NOTE)
def unreadable_config(s: Subject) -> Iterator[Hit]:
    """The draft's config.json is missing or is not a JSON object that every reader takes alike.

    ## What it does
    Reports a config that is missing, empty, not UTF-8, not JSON, not an object, or nested too deeply to be read, and
    one that JSON readers understand differently: a key twice in one object, `NaN` or `Infinity`. Where the release
    reads a config of another form in its place (Mistral's own `params.json`), a note says that it is not checked.

    ## Why is this bad?
    Without the config the engine stops before it looks at a weight. A key that is given twice is read silently,
    the last one wins, and nothing tells which of the two the training used.

    ## Fix
    Write the file again with `json.dump`; of a key that is given twice, keep the one that the training used.
    """
    yield from (_other_form(s, hit) or hit for hit in problems(s, Trouble.NO_CONFIG))
    yield from problems(s, Trouble.BAD_CONFIG)
    stops = s.config is None and not s.checkpoint.place.remote  # what a server does not hand over, another may
    yield from (hit._replace(stops=stops) for hit in problems(s, Trouble.UNREADABLE) if is_config(hit, s))


def _other_form(s: Subject, hit: Hit) -> Hit | None:
    """What a missing config.json means to a release that may read another file for it; None to any other."""
    rules = in_force(load_toml(s.engine.name, "formats.toml").get("instead", []), s.engine)
    names = s.checkpoint.place.names() or []
    beside = rules.get("beside", "") if rules is not None else ""
    if rules is None or rules["file"] not in names or not any(name.startswith(beside) for name in names):
        return None
    path = s.checkpoint.place.address("").lower()
    words = rules.get("words", [[]])
    if not any(all(word in path for word in group) for group in words):
        where = listed([" and ".join(group) for group in words], 5)
        return hit._replace(
            help=f"{s.engine} reads {rules['file']} only from a path with {where} in it; put config.json beside it",
            confidence=Confidence.LIKELY,
        )
    return hit._replace(
        message=f"there is no config.json: {s.engine} reads {rules['file']}, a form that drafcheck does not check",
        help="put the draft's config.json beside its weights to have it checked",
        severity=Severity.NOTE,
    )


@rule("DC003", "lfs-pointer", Severity.ERROR)
def lfs_pointer(s: Subject) -> Iterator[Hit]:
    """A Git LFS pointer lies where the data should be.

    ## What it does
    Reports config, index and weight files that are the small text which stands for a big file, and how many bytes it
    stands for.

    ## Why is this bad?
    The repository was cloned without LFS. The engine stops with `HeaderTooLarge` or a JSON error, which does not name
    the cause (huggingface/transformers issue 27923).

    ## Fix
    Run `git lfs pull` in the clone, or download the checkpoint with `hf download`.
    """
    yield from (hit._replace(stops=s.config is None and is_config(hit, s)) for hit in problems(s, Trouble.LFS_POINTER))


@rule("DC004", "corrupt-safetensors", Severity.ERROR, Severity.WARNING, Severity.NOTE)
def corrupt_weights(s: Subject) -> Iterator[Hit]:
    """A weight file that the loader opens is damaged.

    ## What it does
    Reports safetensors files whose header is too long, not UTF-8 or not JSON, names a tensor twice, or whose tensors
    overlap, leave holes, reach past the file or need another number of bytes than dtype and shape say; and PyTorch
    files whose zip archive or pickle is broken, that torch refuses, or whose archive other readers take for another
    one (a second directory, a file twice, bytes before or between). The verdict on safetensors is that of the
    safetensors library. Where the values of a PyTorch file are all read (`--values`), a warning where they have another
    checksum than its archive says, which torch does not compare, and an error where they do not unpack. A note where
    all readers pass over what is odd about an archive: bytes behind its end, or a comment that is not all there.

    ## Why is this bad?
    The engine stops when it opens the file (not at a PyTorch file that others take for another one). A download that
    was cut short is the usual cause.

    ## Fix
    Download the file again and compare its size with the one on the hub, or export it again.
    """
    yield from problems(s, Trouble.CORRUPT)
    yield from (hit._replace(severity=Severity.NOTE) for hit in problems(s, Trouble.ODD))
    yield from damaged(s)


@rule("DC005", "missing-shard", Severity.ERROR, Severity.WARNING)
def missing_shard(s: Subject) -> Iterator[Hit]:
    """The index names a file that is not there.

    ## What it does
    Reports files in the `weight_map` that the folder lacks: an error when this release refuses such a checkpoint or
    when tensors that it needs are in no other file, a warning when the files at hand hold everything.

    ## Why is this bad?
    Releases that do not compare index and folder load the rest without a word and serve uninitialised weights
    (sgl-project/sglang pull request 32279); later ones stop. With everything in the files at hand nothing is lost
    (accept length 2.30 -> 2.30 on SGLang 0.5.15.post1), until the release is changed.

    ## Fix
    Download the missing file. If the weights were merged into one file, remove the index.
    """
    selection = s.selection
    if selection is None or selection.index is None or not selection.missing:
        return
    index = selection.index
    lost = _not_in_any(selection, {n for n, f in index.weight_map.items() if f in selection.missing})
    verb = "is" if len(selection.missing) == 1 else "are"
    what = (
        f"{index.file} names {count(len(selection.missing), 'file')} that {verb} not there: {listed(selection.missing)}"
    )
    place = (_first_entry(index, selection.missing[0]),)
    if selection.refused is not None and selection.refused.cause == "missing-shard":
        stops = f"{what}; {s.engine} stops: {selection.refused.error}"
        yield Hit(stops, place, help=_shard_help(lost), fixable=_stale(s))
    elif lost and not is_complete(s):
        gone = f"{count(len(lost), 'tensor')} of the index {are(len(lost))} lost"
        outcome = f"{s.engine} loads the rest without a word, and {gone}"
        yield Hit(f"{what}; {outcome}: {listed(lost)}", place, help=_shard_help(lost), fixable=_stale(s))
    else:
        outcome = f"{s.engine} loads all the same, as the files at hand hold everything it needs"
        mends = _stale(s)
        yield Hit(f"{what}; {outcome}", place, help=_shard_help(lost), severity=Severity.WARNING, fixable=mends)


def _stale(s: Subject) -> bool:
    """Whether a repair writes the index anew, as the files at hand hold everything that it promises."""
    from drafcheck.fix.repairs.files import may_reindex  # a healthy index needs no repair

    return may_reindex(s)


def _reindexed(s: Subject) -> bool:
    """The same where the index and the files disagree."""
    from drafcheck.fix.repairs.files import may_reindex

    return may_reindex(s)


def _shard_help(lost: list[str]) -> str:
    if lost:
        return "download the missing file, or export the checkpoint again"
    return "remove the index: the weight files at hand are complete without it"


def _not_in_any(selection: Selection, names: Iterable[str]) -> list[str]:
    """The names that no file which the loader opens has."""
    held = set(map(_NAME, chain.from_iterable(file.header.tensors for file in selection.chosen)))
    return sorted(name for name in names if name not in held)


def _first_entry(index: Index, file: str) -> Location:
    first = next((name for name, f in index.weight_map.items() if f == file), None)
    return index.document.at("weight_map", first) if first is not None else Location(file=index.file)


@rule("DC006", "index-mismatch", Severity.ERROR, Severity.WARNING, Severity.NOTE)
def index_mismatch(s: Subject) -> Iterator[Hit]:
    """The index and the weight files disagree.

    ## What it does
    Reports weight files with tensors of their own that the index leaves out, tensors that the index promises and no
    file holds, and an index that is broken, has entries of a wrong type or names files outside the checkpoint.
    A warning when the load is complete all the same. A tensor that lies in another file than the index says, or that
    the index does not list, is loaded like any other and is not reported. A warning too for a broken index that this
    engine does not look at: others stop. A note for a directory, a pipe or a broken
    link under the name of an index: to loaders there is none then.

    ## Why is this bad?
    A file that the index leaves out is not read, without a word, and a broken index stops the loader.

    ## Fix
    Write the index again from the headers of the files, or remove it: without an index all files are read.
    """
    yield from (hit._replace(fixable=_reindexed(s)) for hit in problems(s, Trouble.BAD_INDEX))
    yield from _unread(s)
    for problem in s.checkpoint.no_index:
        what = f"{problem.message}: {s.engine} loads the weight files as if there were no index"
        yield Hit(what, (problem.location,), help=f"remove {problem.location.file}", severity=Severity.NOTE)
    selection = s.selection
    if selection is None or selection.index is None or (selection.refused and selection.refused.cause == "no-files"):
        return
    if selection.index.refused is not None:
        return  # what stops every loader is said, and what it would have listed is not known
    severity = Severity.WARNING if is_complete(s) else Severity.ERROR
    yield from _left_out(s, selection, selection.index, severity)
    yield from _promised(s, selection, selection.index, severity)


def _unread(s: Subject) -> Iterator[Hit]:
    """What is wrong about an index that this loader does not look at: another engine would stop."""
    selection = s.selection
    if selection is None or selection.index is None or selection.index_read:
        return
    for problem in selection.index.problems:
        yield Hit(
            f"{problem.message}; {s.engine} does not read {selection.index.file} and loads every weight file",
            (problem.location,),
            help=problem.help,
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            fixable=_reindexed(s),
        )


def _left_out(s: Subject, selection: Selection, index: Index, severity: Severity) -> Iterator[Hit]:
    if not selection.index_read:
        return
    chosen = {f.name for f in selection.chosen}
    for name, _ in selection.ignored:
        file = s.checkpoint.file(name)
        if file is None or name in chosen or file in selection.unwanted or name in index.files:
            continue
        own = _not_in_any(selection, {t.name for t in file.header.tensors})
        if own:
            yield Hit(
                f"{index.file} leaves out {name}, so that {s.engine} does not read it: {count(len(own), 'tensor')} "
                f"{are(len(own))} nowhere else: {listed(own)}",
                (Location(file=name, tensor=own[0]), Location(file=index.file)),
                help="write the index again from the headers of all files, or remove it",
                severity=severity,
                fixable=_reindexed(s),
            )


def _holds_all(selection: Selection, index: Index) -> bool:
    """Whether the files have every tensor of the index, told without a set of the names; False where it is not sure."""
    if selection.told or selection.twice or selection.missing or isinstance(index.weight_map, Listing):
        return selection.told
    names = map(_NAME, chain.from_iterable(file.header.tensors for file in selection.chosen))
    return sum(map(index.weight_map.__contains__, names)) == len(index.weight_map)


def _absent(selection: Selection, index: Index) -> list[str]:
    there = (name for name, file in index.weight_map.items() if file not in selection.missing)
    return _not_in_any(selection, there)


def _promised(s: Subject, selection: Selection, index: Index, severity: Severity) -> Iterator[Hit]:
    absent = [] if _holds_all(selection, index) else _absent(selection, index)
    if absent and not any(file.header.faults for file in selection.chosen):
        verb = "is" if len(absent) == 1 else "are"
        yield Hit(
            f"{index.file} lists {count(len(absent), 'tensor')} that {verb} in none of its files: {listed(absent)}",
            (index.document.at("weight_map", absent[0]),),
            help="export the checkpoint again, or write the index again from the headers of the files",
            severity=severity,
            fixable=_reindexed(s),
        )


@rule("DC007", "duplicate-tensor", Severity.ERROR, needs=("weights",))
def duplicate_tensor(s: Subject) -> Iterator[Hit]:
    """Two tensors for one place: a name in two files, or two names for one parameter, with different contents.

    ## What it does
    Reports names in more than one file that is read, and names of which this loader writes two to one parameter, when
    dtype, shape or bytes differ. Identical copies are no fault.

    ## Why is this bad?
    The file that is read last wins without a word. A stray adapter or an older copy beside the weights replaces what
    was trained; on releases that read files in the order of the folder, which one wins differs from disk to disk, and
    where pickles are read by several threads from start to start.

    ## Fix
    Move the file that does not belong to the checkpoint out of its folder.
    """
    selection = s.selection
    yield from _two_names(s)
    differ = [t for t in selection.twice if t.alike is False] if selection is not None else []
    if selection is None or not differ:
        return
    pairs = sorted({(t.first.file, t.second.file) for t in differ})
    first, second = pairs[0]
    chance = selection.chance(differ[0].first, differ[0].second)
    order = f"the one in {second} wins" if chance is None else f"which one wins {chance}"
    yield Hit(
        f"{count(len(differ), 'tensor')} in both {first} and {second} {'differs' if len(differ) == 1 else 'differ'}, "
        f"and {order}: "
        f"{listed([t.second.name for t in differ])}",
        tuple(Location(file=t.file, tensor=t.name) for t in (differ[0].first, differ[0].second)),
        help=f"move the file that does not belong here, {first} or {second}, out of the folder",
    )


def _two_names(s: Subject) -> Iterator[Hit]:
    """Pairs of names for one parameter: one finding for all of which the same decides which is taken."""
    groups: dict[str | None, list[tuple[Tensor, Tensor]]] = {}
    for pair in s.load.collisions if s.load is not None else []:
        chance = s.selection.chance(*pair) if s.selection is not None else None
        groups.setdefault(chance, []).append(pair)
    for chance, pairs in groups.items():
        (one, other), rest = pairs[0], len(pairs) - 1
        outcome = f"{s.engine} takes the second" if chance is None else f"which one {s.engine} takes {chance}"
        likewise = f"; likewise {count(rest, 'more pair')}" if rest else ""
        yield Hit(
            f"`{one.name}` and `{other.name}` are two names for one parameter and differ: {outcome}{likewise}",
            tuple(Location(file=t.file, tensor=t.name) for pair in pairs[:3] for t in pair),
            help="take out the one that does not belong to the drafter"
            if not rest
            else "take out those that do not belong to the drafter",
            about=tuple(dict.fromkeys(t.name for pair in pairs for t in pair)),
        )
