"""The kernel route: preparation of arguments and results of a library's operators."""

import os
from pathlib import Path

import pytest

from tests.helpers.children import output, run
from tools.repository import ROOT

LIBRARIES = ROOT / "tests" / "helpers" / "operator_libraries"
FIRST, SECOND = str(LIBRARIES / "first.py"), str(LIBRARIES / "second.py")


def kernels(code: str, *names: str, libraries: str = FIRST, **environment: str) -> str:
    """Run code on the host chip with some operators forced to the library's kernels; return its output."""
    forced = ",".join(f"{name}=kernel" for name in names)
    script = f"import torch\n{code}"
    return output(script, ISTHMUS_LIBRARIES=libraries, ISTHMUS_ROUTE=forced, **environment)


def check(code: str, *names: str, **environment: str) -> None:
    """Run code that ends with assertions."""
    assert kernels(code + "\nprint('reached')", *names, **environment).split()[-1] == "reached"


def test_functional_in_place_and_out_overloads_are_served_by_one_kernel() -> None:
    check(
        """
x = torch.tensor([1.0, 2.0, 3.0], device="chip")
assert (x + x).tolist() == [2, 4, 6]
assert torch.add(x, x, alpha=2).tolist() == [3, 6, 9]
out = torch.empty(0, device="chip")
assert torch.add(x, 1, out=out) is out and out.tolist() == [2, 3, 4]
y = x.clone()
assert y.add_(x) is y and y.tolist() == [2, 4, 6]
stats = torch.chip.dispatch_stats()["operators"]
for name in ("aten::add.Tensor", "aten::add.out", "aten::add_.Tensor"):
    assert stats[name]["route"] == "kernel", name
""",
        "aten::add",
        "aten::add_",
    )


def test_dtypes_promote_as_in_pytorch() -> None:
    check(
        """
def pair(a, b):
    ours = torch.add(a.to("chip"), b.to("chip") if isinstance(b, torch.Tensor) and b.dim() else b)
    theirs = torch.add(a, b)
    assert ours.dtype == theirs.dtype and ours.cpu().equal(theirs), (ours, theirs)
ints, floats, halves = torch.arange(6), torch.rand(6), torch.rand(6).bfloat16()
pair(ints, floats); pair(halves, floats); pair(ints, 1.5); pair(halves, torch.tensor(2.0)); pair(ints.int(), ints)
sines = torch.sin(ints.to("chip"))
assert sines.dtype == torch.float32 and torch.allclose(sines.cpu(), torch.sin(ints), atol=1e-6)
assert (ints.to("chip") == 2.0).cpu().equal(ints == 2.0)
bytes_ = torch.chip.dispatch_stats()["kernel_copy_bytes"]
assert bytes_ > 0
try:
    ints.to("chip").add_(1.5)
except RuntimeError as error:
    assert "can't be cast" in str(error)
else:
    raise AssertionError("an integer tensor took a float result")
""",
        "aten::add",
        "aten::add_",
        "aten::sin",
        "aten::eq.Scalar",
    )


def test_a_kernel_for_contiguous_tensors_gets_contiguous_ones() -> None:
    check(
        """
x = torch.rand(5, 7)
ours = x.to("chip")
assert torch.allclose((ours @ ours.t()).cpu(), x @ x.t(), atol=1e-6)
out = torch.zeros(7, 5, device="chip").t()
torch.mm(ours, ours.t()[:, :5].contiguous(), out=out[:, :5])
assert torch.allclose(out[:, :5].cpu(), x @ x.t()[:, :5], atol=1e-6) and not out[:, 5:].any()
assert torch.chip.dispatch_stats()["kernel_copy_bytes"] > 0
""",
        "aten::mm",
    )


def test_outputs_that_share_memory_with_inputs() -> None:
    check(
        """
x = torch.arange(10.0, device="chip")
torch.add(x[1:], 1, out=x[1:])  # the very memory of the input
assert x.tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10], x
for refused in (
    lambda: torch.add(x[1:], x[:-1], out=x[1:]),  # a part of another
    lambda: x[1:].add_(x[:-1]),
    lambda: torch.zeros(1, device="chip").expand(4).add_(1),
):
    try:
        refused()
    except RuntimeError as error:
        assert "single memory location" in str(error), error
    else:
        raise AssertionError("written to one element more than once")
assert x.tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10], x
y = torch.arange(4.0, device="chip").view(2, 2)
torch.mm(y, y, out=y)
assert y.tolist() == [[2, 3], [6, 11]]
""",
        "aten::add",
        "aten::add_",
        "aten::mm",
    )


def test_lists_optional_tensors_and_several_outputs() -> None:
    check(
        """
parts = [torch.rand(2, 3), torch.rand(4, 3)]
ours = [part.to("chip") for part in parts]
assert torch.cat(ours, 0).cpu().equal(torch.cat(parts, 0))
assert all(a.cpu().equal(b) for a, b in zip(torch._foreach_mul(ours, 3.0), torch._foreach_mul(parts, 3.0)))
torch._foreach_mul_(ours, 2.0)
assert ours[1].cpu().equal(parts[1] * 2)
x = torch.rand(4, 8)
for weight in (None, torch.rand(8)):
    expected = torch.native_layer_norm(x, [8], weight, None, 1e-5)
    got = torch.native_layer_norm(x.to("chip"), [8], None if weight is None else weight.to("chip"), None, 1e-5)
    for a, b in zip(got, expected):
        assert a.shape == b.shape and torch.allclose(a.cpu(), b, atol=1e-5)
""",
        "aten::cat",
        "aten::_foreach_mul",
        "aten::_foreach_mul_",
        "aten::native_layer_norm",
    )


def test_a_kernel_that_declines_leaves_the_call_to_the_next_route() -> None:
    check(
        """
torch.chip.set_route("aten::native_layer_norm", "")
x = torch.rand(2, 4, 8)
got = torch.nn.functional.layer_norm(x.to("chip"), (8,))
assert torch.allclose(got.cpu(), torch.nn.functional.layer_norm(x, (8,)), atol=1e-6)
torch.chip.set_route("aten::native_layer_norm", "kernel")
try:
    torch.nn.functional.layer_norm(x.to("chip"), (8,))
except NotImplementedError as error:
    assert "forced route kernel" in str(error)
    assert torch.chip.dispatch_stats()["refused"] == {"aten::native_layer_norm": 1}
else:
    raise AssertionError("a forced route that does not serve the call")
""",
        "aten::native_layer_norm",
    )


def test_errors_name_operator_library_and_arguments() -> None:
    text = kernels(
        """
try:
    torch.ones(2, 3, device="chip").exp()
except ValueError as error:
    print(error)
""",
        "aten::exp",
    )
    assert "aten::exp by library first (Float[2, 3], Float[2, 3]): ValueError: exp is out of order" in text


def test_random_kernels_get_a_seed_that_manual_seed_reproduces() -> None:
    check(
        """
def draw():
    return torch.empty(64, device="chip").bernoulli_(0.5).tolist()
torch.manual_seed(3)
first, second = draw(), draw()
torch.manual_seed(3)
assert draw() == first and draw() == second and first != second
assert torch.chip.dispatch_stats()["operators"]["aten::bernoulli_.float"]["route"] == "kernel"
""",
        "aten::bernoulli_.float",
    )


def test_kernels_may_request_a_workspace() -> None:
    check("assert torch.ones(3, device='chip').cumsum(0).tolist() == [1, 2, 3]", "aten::cumsum")


def test_gradients_flow_through_kernels() -> None:
    check(
        """
x = torch.rand(3, 4)
ours = x.to("chip").requires_grad_()
(torch.sin(ours) @ ours.t()).sum().backward()
theirs = x.clone().requires_grad_()
(torch.sin(theirs) @ theirs.t()).sum().backward()
assert torch.allclose(ours.grad.cpu(), theirs.grad, atol=1e-5)
""",
        "aten::sin",
        "aten::mm",
    )


@pytest.mark.parametrize(("libraries", "chosen"), [((FIRST, SECOND), "first"), ((SECOND, FIRST), "second")])
def test_libraries_serve_in_the_order_of_preference(libraries: tuple[str, str], chosen: str) -> None:
    text = kernels(
        """
x = torch.ones(2, 2, device="chip")
x + x; x @ x; x.double() @ x.double(); x.int() + x.int()
for row in torch.chip.kernel_choices():
    print(row["operator"], row["dtypes"], row["library"])
""",
        "aten::add",
        "aten::add_",
        "aten::mm",
        libraries=os.pathsep.join(libraries),
    )
    assert f"aten::add.Tensor float32 {chosen}" in text
    assert "aten::add.Tensor int32 first" in text
    assert "aten::mm float32 first" in text and "aten::mm float64 second" in text


def test_trace_prints_each_choice_once() -> None:
    done = run(
        "import torch\nx = torch.ones(2, device='chip')\nfor _ in range(3): x + x\n(x[::1] + x.half()).tolist()",
        ISTHMUS_LIBRARIES=FIRST,
        ISTHMUS_ROUTE="aten::add=kernel",
        ISTHMUS_TRACE="1",
    )
    lines = [line for line in done.stderr.splitlines() if "aten::add.Tensor" in line]
    assert lines == ["isthmus: aten::add.Tensor (float32, contiguous) -> kernel of first"], done.stderr


@pytest.mark.host("its routes")
def test_routes_are_printed_and_forced_at_run_time() -> None:
    check(
        """
assert torch.chip.routes()["aten::mm"] == ("kernel", "forced")
torch.chip.set_route("aten::mm", "fallback")
assert torch.chip.routes()["aten::mm"] == ("fallback", "forced")
x = torch.ones(2, 2, device="chip")
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    x @ x
assert torch.chip.dispatch_stats()["fallback_bytes"] > 0
torch.chip.set_route("aten::mm", "")
assert torch.chip.routes()["aten::mm"][0] == "delegate"
for pattern, route in (("aten::mm", "nonsense"), ("aten::no_such_operator", "kernel")):
    try:
        torch.chip.set_route(pattern, route)
    except ValueError:
        pass
    else:
        raise AssertionError((pattern, route))
""",
        "aten::mm",
    )


def test_a_route_that_no_operator_has_is_refused_at_the_start() -> None:
    done = run(
        "import torch; print(torch.chip.device_count())",
        ISTHMUS_DRIVER="host",
        ISTHMUS_ROUTE="aten::mn=fallback",
    )
    assert done.stdout.split() == ["0"]
    assert "ISTHMUS_ROUTE: aten::mn=fallback: no operator of this driver has that route" in done.stderr


@pytest.mark.parametrize("item", ["aten::mm=", "aten::mm=nowhere", "some_extension::double="])
def test_a_route_that_does_not_exist_is_refused_in_one_line(item: str) -> None:
    done = run("import torch; torch.ones(1, device='chip')", ISTHMUS_DRIVER="host", ISTHMUS_ROUTE=item)
    said = [line for line in done.stderr.splitlines() if line.startswith("isthmus: ")]
    assert done.returncode == 1 and len(said) == 1, done.stderr
    assert (
        f"ISTHMUS_ROUTE: {item}: unknown route; expected kernel, delegate, decomposition or fallback."
        in said[0]
    )


def test_an_operator_of_an_extension_is_served_too(tmp_path: Path) -> None:
    library = tmp_path / "extension.py"
    library.write_text(
        "from isthmus.opset.library import Library, as_array\n"
        "library = Library('extension')\n"
        "@library.operator('test_extension::double', dtypes=('float32',), raw=True, host=True)\n"
        "def double(context, x, out):\n"
        "    as_array(out)[...] = 2 * as_array(x)\n"
    )
    check(
        """
extension = torch.library.Library("test_extension", "DEF")
extension.define("double(Tensor x) -> Tensor")
extension.impl("double", lambda x: torch.empty_like(x), "Meta")
x = torch.ones(3, device="chip")
assert torch.ops.test_extension.double(x).tolist() == [2, 2, 2]
assert torch.chip.dispatch_stats()["operators"]["test_extension::double"]["route"] == "kernel"
""",
        libraries=str(library),
    )


EXTENSION = """
import torch
extension = torch.library.Library("test_extension", "DEF")
extension.define("double(Tensor x) -> Tensor")
extension.impl("double", lambda x: 2 * x, "CPU")
x = torch.ones(3, device="chip")
assert torch.ops.test_extension.double(x).tolist() == [2, 2, 2]
assert torch.chip.dispatch_stats()["operators"]["test_extension::double"]["route"] == "{route}"
assert torch.chip.routes()["aten::mm"][0] == "delegate"
"""


@pytest.mark.host("its routes")
def test_a_route_is_forced_on_an_operator_of_an_extension(tmp_path: Path) -> None:
    library = tmp_path / "extension.py"
    library.write_text(
        "from isthmus.opset.library import Library\n"
        "library = Library('extension')\n"
        "@library.operator('test_extension::double', dtypes=('float32',), raw=True, host=True)\n"
        "def double(context, x, out):\n"
        "    raise AssertionError('the kernel was called')\n"
    )
    output(
        EXTENSION.format(route="delegate"),
        ISTHMUS_LIBRARIES=str(library),
        ISTHMUS_ROUTE="test_extension::*=delegate",
    )


def test_a_route_is_forced_on_an_operator_of_an_extension_without_kernels() -> None:
    script = EXTENSION.format(route="fallback")
    done = run(script, ISTHMUS_DRIVER="host", ISTHMUS_ROUTE="test_extension::double=fallback")
    assert done.returncode == 0, done.stderr
    assert "test_extension::double runs on CPU by copying its tensors both ways" in done.stderr
    assert "has no kernel for float32. Set" in done.stderr
