"""``isthmus triton compare``: launches compiled, interpreted and by PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from isthmus_triton.cli import main  # noqa: E402
from isthmus_triton.compare import copies, difference  # noqa: E402

KERNELS = Path(__file__).with_name("compared_kernels.py")


def test_the_first_difference_is_printed_with_its_program(capsys):
    assert main(["compare", f"{KERNELS}::softmax"]) == 0
    assert main(["compare", str(KERNELS)]) == 1
    text = capsys.readouterr().out
    assert text.count("softmax_kernel") == 2 and "not interpreted" not in text
    assert "out: compiled and unfused: equal" in text and "out: compiled and interpreted: " in text
    (wrong,) = (line for line in text.splitlines() if "DIFFERENT" in line)
    assert "out: compiled and PyTorch: DIFFERENT, 36 of 100 elements, at most" in wrong
    assert "first out[64] by program (2, 0, 0): " in wrong and wrong.endswith("and 0.7001953125")


def test_a_target_that_launches_nothing_is_an_error(capsys, tmp_path):
    with pytest.raises(SystemExit, match=r"no such file: missing\.py"):
        main(["compare", "missing.py"])
    (tmp_path / "idle.py").write_text("def main(): pass\n")
    assert main(["compare", str(tmp_path / "idle.py")]) == 1
    assert "launches no kernel" in capsys.readouterr().err


def test_distances_are_in_units_in_the_last_place():
    one = torch.tensor([1.0, -0.0, 1e-45, float("nan"), 5.0])
    other = torch.tensor([1.0 + 3 * 2**-23, 0.0, -1e-45, float("nan"), 5.0])
    found = difference("x", ("a", "b"), one, other)
    assert (found.count, found.units, found.index, found.is_close) == (2, 3, (0,), True)
    assert difference("x", ("a", "b"), one, one).index is None
    far = difference("x", ("a", "b"), torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 5]]))
    assert (far.index, far.values, far.units, far.is_close) == ((1, 1), (4, 5), 0, False)


def test_copies_share_memory_where_the_arguments_do():
    x = torch.arange(10.0)
    first, second, number = copies((x[2:], x[::2], 3))
    first[0] = -1
    assert second[1] == -1 and number == 3 and x[2] == 2 and second.stride() == (2,)
