"""The reference runtime of AscendCL, without torch_npu."""

import os

import pytest

from isthmus_ascend.environment import variables
from tests.helpers import children
from tests.runtime.runtime import LIBRARIES

RUNTIME = (
    "devices errors memory registration copies batches cores streams events values callbacks "
    "virtual_memory sharing information"
).split()
MODELS = ("models", "task_groups")
MISUSE = "captures captured_streams lists mappings objects forks".split()
HCCL = "reductions movements communicators absent_ranks sub_communicators".split()
ENVIRONMENT = {
    "ISTHMUS_ASCEND_DEVICES": "2",
    "ISTHMUS_ASCEND_MEMORY": "64MiB",
    "ISTHMUS_ASCEND_SOC": "Ascend910B3",
    "ISTHMUS_DRIVER": "none",
    "LD_LIBRARY_PATH": variables()["LD_LIBRARY_PATH"],  # libacl_op_compiler.so opens libopapi.so by its name
    "PYTHONPATH": os.pathsep.join(filter(None, [str(children.ROOT), os.environ.get("PYTHONPATH")])),
}


@pytest.mark.parametrize("job", RUNTIME)
def test_runtime(job: str) -> None:
    children.output(f"from tests.runtime import runtime_jobs; runtime_jobs.{job}()", **ENVIRONMENT)


@pytest.mark.parametrize("job", MODELS)
def test_models(job: str) -> None:
    children.output(f"from tests.runtime import model_jobs; model_jobs.{job}()", **ENVIRONMENT)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("job", MISUSE)
def test_misuse(job: str) -> None:
    children.output(f"from tests.runtime import misuse_jobs; misuse_jobs.{job}()", **ENVIRONMENT)


@pytest.mark.parametrize(
    ("job", "fault"),
    [("ecc", "ecc:2"), ("lost", "lost:3"), ("hang", "hang"), ("hang_until_reset", "hang"), ("link", "link")],
)
def test_faults(job: str, fault: str) -> None:
    variables = {**ENVIRONMENT, "ISTHMUS_ASCEND_FAULT": fault}
    children.output(f"from tests.runtime import fault_jobs; fault_jobs.{job}()", **variables)


def test_unknown_faults_are_refused() -> None:
    failed = children.run(
        "from tests.runtime.runtime import acl; acl.aclInit(None)",
        **{**ENVIRONMENT, "ISTHMUS_ASCEND_FAULT": "ecc:no"},
    )
    assert failed.returncode == 2
    assert "ISTHMUS_ASCEND_FAULT=ecc:no: not a fault" in failed.stderr


@pytest.mark.parametrize("job", HCCL)
def test_hccl(job: str) -> None:
    children.output(f"from tests.runtime import hccl_jobs; hccl_jobs.{job}()", **ENVIRONMENT)


def test_older_operators() -> None:
    children.output("from tests.runtime import older_jobs; older_jobs.views()", **ENVIRONMENT)
    children.output("from tests.runtime import older_operators; older_operators.every()", **ENVIRONMENT)


def test_nulls() -> None:
    paths = [str(LIBRARIES / name) for name in ("libascendcl.so", "libacl_op_compiler.so", "libhccl.so")]
    children.output(
        f"import sys; sys.argv[1:] = {paths}; from tests.runtime import runtime_jobs; runtime_jobs.nulls()",
        **ENVIRONMENT,
    )


def test_invalid_option() -> None:
    code = "from tests.runtime.runtime import acl; acl.aclrtSetDevice(0)"
    failed = children.run(code, **{**ENVIRONMENT, "ISTHMUS_ASCEND_MEMORY": "much"})
    assert "ISTHMUS_ASCEND_MEMORY=much: not a size" in failed.stderr
    failed = children.run(code, **{**ENVIRONMENT, "ISTHMUS_HOST_STRICT": "1"})
    assert "ISTHMUS_HOST_STRICT=1 is not supported" in failed.stderr


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("1,3", [1, 3]),
        ("2", [2]),
        ("01,003", [1, 3]),
        ("", []),
        (",0", []),
        ("npu0", []),
        ("0,", [0]),
        ("0 ,1", [0]),
        ("1, 2", [1]),
        ("1,32,2", [1]),
        ("0,99999999999", [0]),
        ("1,0", []),
        ("0,0", []),
        ("0,1,1", []),
    ],
)
def test_visible_devices(visible: str, devices: list[int]) -> None:
    children.output(
        f"from tests.runtime import runtime_jobs; runtime_jobs.visible({devices})",
        **{**ENVIRONMENT, "ISTHMUS_ASCEND_DEVICES": "4", "ASCEND_RT_VISIBLE_DEVICES": visible},
    )
