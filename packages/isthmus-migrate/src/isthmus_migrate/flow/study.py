"""Study a project before its files are searched: what each module has to know about the others."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple, TypeVar

from isthmus_migrate.flow.accelerator_only import find_accelerator_only
from isthmus_migrate.flow.cuda_only import unconditional_cuda_calls, users
from isthmus_migrate.flow.facts import Facts
from isthmus_migrate.flow.gather import gather
from isthmus_migrate.flow.job_scripts import find_submitted_names
from isthmus_migrate.flow.mock_effects import Steering
from isthmus_migrate.flow.run_record import add_verdicts
from isthmus_migrate.flow.solve import Solution
from isthmus_migrate.source import constants
from isthmus_migrate.source.cuda_only import CUDA_SOURCE, INDUCTOR, is_below, is_for_cuda_only, runs_cuda
from isthmus_migrate.source.files import File, Kind, Source, read
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.parse import parse
from isthmus_migrate.source.surroundings import TOO_DEEP, Shared, Surroundings
from isthmus_migrate.trace.evidence import Evidence

_MANY = 300  # files; for fewer, starting processes costs more than it saves
_CHUNK = 16  # files
PYTHON = (Kind.PYTHON, Kind.NOTEBOOK)
Progress = Callable[[int, int], None]
Item = TypeVar("Item")
Part = TypeVar("Part")


class Request(NamedTuple):
    """The request to the rules.

    Attributes:
        target: device type to convert for, or "" for any accelerator.
        options: options that enable rules, ``"ddp"``.
        package: dotted name of the folder if it is a package, else "".
        evidence: the record of a run, compared with the files by :func:`recorded.check`.
        torch: oldest version of PyTorch that the result has to run on; () for any that has what it needs.
        quote: quotation mark for new strings; "" for that of each file.
    """

    target: str = ""
    options: frozenset[str] = frozenset()
    package: str = ""
    evidence: Evidence | None = None
    torch: tuple[int, ...] = ()
    quote: str = ""


class _Found(NamedTuple):
    facts: list[Facts]
    texts: list[tuple[bool, frozenset[str]]]
    too_deep: list[str]


ANY = Request()


def study(
    files: Sequence[File], request: Request = ANY, processes: int = 0, progress: Progress = lambda *_: None
) -> tuple[Mapping[str, Surroundings], Solution]:
    """Return the surroundings of each Python file, notebook and configuration file by its name, and the data flow.

    Args:
        files: of the project.
        request: what is asked of the rules.
        processes: number of processes; 0 to choose one.
        progress: called with the number of files done and their total.
    """
    python = [each for each in files if each.kind in PYTHON]
    work = functools.partial(_gather, package=request.package)
    found: list[_Found] = []
    for part in in_processes(work, python, processes, progress):
        found.append(part)
    facts = [each for part in found for each in part.facts]
    taken = constants.unavailable_names([each for part in found for each in part.texts])
    settings = [each.name for each in files if each.kind is Kind.SETTINGS]
    solution = Solution(facts)
    around = surroundings(solution, request, taken, settings)
    if request.evidence is not None:
        named = {each.name: each for each in files}
        around = {name: add_verdicts(named[name], each, request.evidence) for name, each in around.items()}
    around |= dict.fromkeys((name for part in found for name in part.too_deep), TOO_DEEP)
    return around, solution


def surroundings(
    solution: Solution, request: Request, taken: frozenset[str] = frozenset(), settings: Sequence[str] = ()
) -> dict[str, Surroundings]:
    """Return the surroundings of modules by their data flow, and those of configuration files."""
    facts = solution.facts
    own = frozenset(
        owner
        for each in facts
        for owner, _, last in (name.rpartition(".") for name in each.functions)
        if last == "cuda" and owner in each.classes
    )
    built = frozenset(name for each in facts for name in each.built)
    only = users(facts, solution.symbols, lambda name: is_for_cuda_only(name) or is_below(name, built))
    code = users(facts, solution.symbols, lambda name: runs_cuda(name) or is_below(name, built))
    may = users(
        facts,
        solution.symbols,
        lambda name: (
            name != CUDA_SOURCE and (runs_cuda(name) or is_below(name, (*built, *INDUCTOR)))  # not nvidia-smi
        ),
        always=False,
    )
    imported = frozenset(
        member
        for each in facts
        for name in {*each.imports.values()}.union(*each.references.values())
        if (member := solution.symbols.member(name)).rpartition(".")[0] != each.module
    )
    late = any(
        name == each.module or solution.symbols.is_module(name)
        for each in facts
        for name in each.before_choice
    )
    shared = Shared(
        taken=taken,
        own_cuda=own,
        cuda_only=only,
        cuda_code=code,
        may_run_cuda=may,
        built=built,
        imported=imported,
        sheltered=find_accelerator_only(facts, solution.symbols),
        behind_tests=find_accelerator_only(facts, solution.symbols, is_open=False),
        late_choice=late,
        mocks_choice=any(each.mocks_choice for each in facts),
        ignores_local_rank=solution.ignores_local_rank(),
        submitted=find_submitted_names(facts, solution.symbols),
        tested=frozenset().union(*(each.tested for each in facts)),
        raised=frozenset().union(*(each.raised for each in facts)),
    )
    every = Surroundings(request.target, request.options, request.torch, request.quote, shared)
    steering = Steering(facts, solution.symbols, only, code)
    chains = unconditional_cuda_calls(facts, solution.symbols, built)
    around = {
        each.path: every._replace(
            flow=solution.of(each)._replace(steers=steering.of(each)), always=chains.get(each.module, ())
        )
        for each in facts
    }
    if settings:
        around |= dict.fromkeys(settings, every._replace(settings=solution.settings()))
    return around


def surroundings_of_module(module: Module, request: Request = ANY) -> Surroundings:
    """Return the surroundings of a module that is a project of its own."""
    return surroundings(Solution([gather(module)]), request)[module.source.name]


def passes(progress: Progress, files: Sequence[File]) -> tuple[Progress, Progress]:
    """Return the progress of :func:`study` and of a second pass over the files, as parts of one."""
    first = sum(each.kind in PYTHON for each in files)
    total = first + len(files)
    return lambda done, _: progress(done, total), lambda done, _: progress(first + done, total)


def in_processes(
    work: Callable[[Sequence[Item]], Part], files: Sequence[Item], processes: int, progress: Progress
) -> Iterator[Part]:
    """Apply a function to chunks of files, in several processes if they are many; yield its results in order.

    Args:
        work: the function, which can be pickled.
        files: what it is applied to.
        processes: number of processes; 0 to choose one.
        progress: called with the number of files done and their total.
    """
    if processes == 0:
        processes = len(os.sched_getaffinity(0)) if len(files) > _MANY else 1
    chunks = [files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK)]
    if processes == 1:
        for index, chunk in enumerate(chunks):
            yield work(chunk)
            progress(min((index + 1) * _CHUNK, len(files)), len(files))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy PyTorch's threads
    with ProcessPoolExecutor(processes, context, initializer=gc.disable) as pool:  # trees have no cycles
        for index, part in enumerate(pool.map(work, chunks)):
            yield part
            progress(min((index + 1) * _CHUNK, len(files)), len(files))


def _gather(files: Iterable[File], package: str) -> _Found:
    found = _Found([], [], [])
    for file in files:
        source = read(file)
        if not isinstance(source, Source):
            continue
        found.texts.append(constants.find_mentions(source.text))
        module, _ = parse(source, package)
        if module is None:
            continue
        try:
            found.facts.append(gather(module))
        except RecursionError:
            found.too_deep.append(file.name)
    return found
