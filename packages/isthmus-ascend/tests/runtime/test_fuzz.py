"""Wrong arguments for some of the runtime's functions: error codes, no crash. `make sanitize` fuzzes all of them."""

import os

import pytest

from tests.helpers import children


@pytest.mark.full
def test_wrong_arguments_are_errors() -> None:
    path = os.pathsep.join(filter(None, [str(children.ROOT), os.environ.get("PYTHONPATH")]))
    code = "from tools.ascend.fuzz import failures; print(*failures(seed=3, calls=20, every=16), sep=chr(10))"
    assert children.output(code, PYTHONPATH=path, ISTHMUS_DRIVER="none").strip() == ""


def test_a_crash_is_reported_with_its_call() -> None:
    code = """
        import os, signal
        from tools.ascend.fuzz import Target, fuzz

        def crash(random, calls, note):
            note("Crash(1, None)")
            os.kill(os.getpid(), signal.SIGSEGV)

        print(fuzz(Target("Crash", crash), seed=1, calls=1))
        print(fuzz(Target("Fine", lambda random, calls, note: None), seed=1, calls=1))
    """
    path = os.pathsep.join(filter(None, [str(children.ROOT), os.environ.get("PYTHONPATH")]))
    found = children.output(code, PYTHONPATH=path, ISTHMUS_DRIVER="none").splitlines()
    assert found == ["Crash: killed by SIGSEGV (seed 1) in Crash(1, None)", "None"]
