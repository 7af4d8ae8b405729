"""The tests' own helpers: children that are forked, and the sample of parametrized cases."""

from __future__ import annotations

import itertools
import signal

import pytest

from isthmus_common import children as commands
from tests.helpers import children
from tests.helpers.sampling import pairwise

CODE = "import torch; torch.ones(1, device='chip'); print(torch.chip.is_initialized())"


def test_a_child_ends_as_an_interpreter_does():
    done = children.run("import atexit, sys\natexit.register(print, 'last')\nprint('first')\nsys.exit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, "first\nlast\n", "")
    done = children.run("import sys; sys.exit('a message')")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "a message\n")
    done = children.run("def fail():\n    1 / 0\nfail()")
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "Traceback (most recent call last):",
        '  File "<string>", line 3, in <module>',
    ]
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    done = children.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == -signal.SIGSEGV
    done = children.run("import sys\nprint(sys.stdout.name, file=sys.__stdout__)\nsys.stdout.close()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "<stdout>\n", "")


def test_a_child_has_its_own_environment_and_chip():
    code = "import os, sys, torch; print(os.getcwd(), sys.argv, torch.chip.device_count())"
    assert children.output(code, ISTHMUS_HOST_DEVICES="3") == "/ ['-c'] 3"
    assert children.output(code, ISTHMUS_HOST_DEVICES="1") == "/ ['-c'] 1"
    assert children.output(CODE) == "True"


@pytest.mark.full
def test_a_child_prints_what_a_fresh_interpreter_prints():
    assert children.output(CODE) == children.output_fresh(CODE)


@pytest.mark.full
def test_a_variable_read_by_the_import_of_pytorch_has_a_fresh_interpreter():
    code = "import torch; print(torch.get_num_threads())"
    assert [children.output(code, OMP_NUM_THREADS=each) for each in "12"] == ["1", "2"]


def test_every_pair_of_values_is_sampled():
    cases = [dict(zip("abc", case, strict=True)) for case in itertools.product(range(4), range(3), range(2))]
    chosen = [cases[index] for index in pairwise(cases)]
    assert len(chosen) < len(cases)
    for one, other in itertools.combinations("abc", 2):
        assert {(case[one], case[other]) for case in chosen} == {(case[one], case[other]) for case in cases}
    alone = [{"a": value} for value in range(5)]
    assert pairwise(alone) == [0, 1, 2, 3, 4]
    assert pairwise([{}]) == [0]


def test_the_end_of_a_command_is_one_line() -> None:
    for script, problem in (
        ("true", ""),
        ("echo first; echo last >&2; exit 3", "status 3: last"),
        ("kill -KILL $$", "killed by SIGKILL"),
        ("kill -40 $$", "killed by signal 40"),
    ):
        assert commands.run_command(["sh", "-c", script])[1] == problem
