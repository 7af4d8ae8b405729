"""ISTHMUS_VISIBLE_DEVICES, and CUDA_VISIBLE_DEVICES for programs written for CUDA."""

from __future__ import annotations

import pytest

from tests.helpers import children

FOUR = {"ISTHMUS_DRIVER": "host", "ISTHMUS_HOST_DEVICES": "4"}
USE = """
import os, torch
from isthmus import shim
if LATE is not None:
    os.environ["CUDA_VISIBLE_DEVICES"] = LATE
with shim.enter():
    count = torch.cuda.device_count()
    uuids = [torch.cuda.get_device_properties(index).uuid[-1:] for index in range(count)]
    print(count, torch.cuda.is_available(), "".join(uuids))
    for index in range(count):
        x = torch.full((3,), float(index), device=f"cuda:{index}")
        y = x.to(f"cuda:{count - 1 - index}")
        torch.cuda.synchronize(index)
        assert y.tolist() == [index] * 3 and x.get_device() == index
"""


def seen(late: str | None = None, **environment: str) -> str:
    """Return the number of devices, whether there is one, and the driver's numbers of four by the program's."""
    return children.output(USE.replace("LATE", repr(late)), **FOUR, **environment)


@pytest.mark.parametrize(
    ("ours", "cuda", "expected"),
    [
        ("", None, "4 True 0123"),
        ("2,0", None, "2 True 20"),
        (" 3 , 1 ", None, "2 True 31"),
        ("", "1", "1 True 1"),
        ("", "3,1,7,0", "2 True 31"),  # up to the first that does not exist
        ("", "1,1", "0 False"),
        ("", "", "0 False"),
        ("", "9", "0 False"),
        ("", "GPU-8932f937", "4 True 0123"),  # a card of another machine
        ("3,2,1", "2,0", "2 True 13"),
    ],
)
def test_the_devices_that_variables_name(ours: str, cuda: str | None, expected: str) -> None:
    environment = {} if cuda is None else {"CUDA_VISIBLE_DEVICES": cuda}
    assert seen(ISTHMUS_VISIBLE_DEVICES=ours, **environment) == expected


def test_a_program_sets_the_variable_before_its_first_use() -> None:
    assert seen("2") == "1 True 2"


def test_no_device() -> None:
    code = "import torch; print(torch.chip.device_count(), torch.chip.is_available())"
    assert children.output(code, ISTHMUS_VISIBLE_DEVICES="-1") == "0 False"


def test_programs_that_name_the_chip_do_not_read_cudas_variable() -> None:
    code = "import torch; print(torch.chip.device_count())"
    assert children.output(code, **FOUR, CUDA_VISIBLE_DEVICES="1") == "4"


@pytest.mark.parametrize(
    ("value", "text"),
    [("0,9", "'9' is none of the driver's 2 devices"), ("a", "'a' is none"), ("1,1", "names device 1 twice")],
)
def test_wrong_lists_are_one_line(value: str, text: str) -> None:
    code = """
        import torch
        try:
            torch.ones(1, device="chip")
        except RuntimeError as error:
            print(error)
    """
    printed = children.output(code, ISTHMUS_HOST_DEVICES="2", ISTHMUS_VISIBLE_DEVICES=value)
    assert "\n" not in printed and text in printed and f"ISTHMUS_VISIBLE_DEVICES={value}" in printed
