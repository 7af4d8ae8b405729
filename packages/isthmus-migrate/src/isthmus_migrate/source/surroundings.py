"""Facts about the rest of the project, and about the request, for a module's rules."""

from collections.abc import Mapping
from typing import NamedTuple

from isthmus_migrate.source.verdicts import NO_FLOW, NO_SETTINGS, Flow, Verdict


class Shared(NamedTuple):
    """The facts that the modules of a project show together; functions, classes and extensions are dotted names.

    Attributes:
        taken: names that the device constant cannot have.
        own_cuda: classes with a method ``cuda``.
        cuda_only: functions and classes that use what only CUDA has.
        cuda_code: those of them that run kernels, graphs or engines for CUDA.
        may_run_cuda: functions and classes that run a kernel, graph or engine, in any case or on a condition.
        built: extensions that the project builds of CUDA sources.
        imported: members of modules that other modules name, ``"package.module.name"``.
        sheltered: functions and classes that are used only where there is an accelerator.
        behind_tests: those, and others whose users in the project have tested for an accelerator.
        ignores_local_rank: whether it takes LOCAL_RANK of the environment, and reads no option of this name.
        late_choice: whether the project sets ``CUDA_VISIBLE_DEVICES`` after modules of it are imported.
        mocks_choice: whether its tests replace ``torch.cuda.is_available``, which then is asked at run time.
        submitted: what scripts that submit jobs use; it may run where there is no accelerator.
        tested: texts that modules look for in messages.
        raised: texts of the project's own errors that speak of CUDA's memory.
    """

    taken: frozenset[str] = frozenset()
    own_cuda: frozenset[str] = frozenset()
    cuda_only: frozenset[str] = frozenset()
    cuda_code: frozenset[str] = frozenset()
    may_run_cuda: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    sheltered: frozenset[str] = frozenset()
    behind_tests: frozenset[str] = frozenset()
    ignores_local_rank: bool = False
    late_choice: bool = False
    mocks_choice: bool = False
    submitted: frozenset[str] = frozenset()
    tested: frozenset[str] = frozenset()
    raised: frozenset[str] = frozenset()


class Surroundings(NamedTuple):
    """The facts that the rules of a module need.

    Attributes:
        target: device type to convert for, or "" for any accelerator.
        options: options of `isthmus migrate convert` that enable rules, ``"ddp"``.
        torch: oldest version of PyTorch that the result has to run on, ``(2, 1)``; () for any that has what it needs.
        quote: quotation mark for new strings; "" for that of each file.
        project: what the modules of the project show together.
        flow: what the data flow of the project shows about the module.
        always: names from a function that the module calls in any case to one that runs code for CUDA only.
        settings: for a configuration file, what the project uses a setting as, by its name.
        is_too_deep: whether the module's expressions are nested too deeply to be followed.
    """

    target: str = ""
    options: frozenset[str] = frozenset()
    torch: tuple[int, ...] = ()
    quote: str = ""
    project: Shared = Shared()
    flow: Flow = NO_FLOW
    always: tuple[str, ...] = ()
    settings: Mapping[str, Verdict] = NO_SETTINGS
    is_too_deep: bool = False


ALONE = Surroundings()
TOO_DEEP = Surroundings(is_too_deep=True)
