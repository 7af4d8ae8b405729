"""Regression tests of the kernel route: the numpy chip, which has only kernels, against the CPU."""

import json

import pytest

from tests.helpers.children import output

HEAD = """
import torch
def raises(kind, call, text):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing was raised: {text}")
def same(call, *tensors):
    ours, theirs = call(*(t.to("chip") for t in tensors)), call(*tensors)
    assert ours.dtype == theirs.dtype and ours.cpu().equal(theirs), (ours, theirs)
"""


CHECKS = {
    "an_in_place_comparison_of_bools_with_numbers_keeps_its_result": """
same(lambda a, b: a.clone().eq_(b), torch.tensor([True, False, True]), torch.tensor([1, 1, 0]))
same(lambda a, b: a.clone().logical_and_(b), torch.tensor([True, False, True]), torch.tensor([0.0, 1.0, 2.0]))
""",
    "operands_promote_among_themselves": """
same(lambda a: torch.floor_divide(a, 2), torch.tensor([7, 5, 0], dtype=torch.uint8))
raises(NotImplementedError, lambda: torch.tensor([3 + 4j], device="chip").abs(), "aten::abs")
""",
    "the_default_dtype_is_not_remembered": """
x = torch.arange(3, device="chip")
assert torch.sin(x).dtype == torch.float32
torch.set_default_dtype(torch.float64)
assert torch.sin(x).dtype == torch.float64
""",
    "a_cpu_scalar_may_be_an_operand_but_not_an_output": """
x = torch.ones(3, device="chip")
assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
raises(RuntimeError, lambda: torch.tensor(1.0).add_(x[0]), "same device")
raises(RuntimeError, lambda: torch.sum(x, 0, out=torch.empty(())), "same device")
""",
    "writing_to_a_lazy_clone_leaves_the_original": """
x = torch.arange(3.0, device="chip")
torch._lazy_clone(x).add_(1)
assert x.tolist() == [0, 1, 2]
""",
    "captured_lists_are_written_in_place_at_each_replay": """
def capture(call):
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        call()
    return graph
def fulls(value, count=3):
    return [torch.full((4,), float(value), device="chip") for _ in range(count)]
def check(tensors, call, before, after):
    graph = capture(call)
    assert all(t.eq(before).all() for t in tensors), tensors
    graph.replay()
    assert all(t.eq(after).all() for t in tensors), tensors
x = fulls(1)
check(x, lambda: torch._foreach_add_(x, 5), 1, 6)
check(x, lambda: torch._foreach_mul_(x, fulls(2)), 6, 12)
check(x, lambda: torch._foreach_mul_(x, torch.tensor(0.5)), 12, 6)
columns = list(torch.ones(4, 3, device="chip").unbind(1))
check(columns, lambda: torch._foreach_add_(columns, columns), 1, 2)
for kind in (torch.optim.SGD, torch.optim.Adagrad):
    weights = [w.requires_grad_() for w in fulls(2)]
    optimizer = kind(weights, lr=1.0, foreach=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    check(weights, optimizer.step, 2, 1)
z = torch.zeros(4, device="chip")
graph = capture(lambda: z.index_put_((torch.arange(2, device="chip"),), torch.ones(2, device="chip")))
assert z.tolist() == [0] * 4
graph.replay()
assert z.tolist() == [1, 1, 0, 0]
""",
    "out_sets_the_dtype_of_a_reduction_and_must_match_elsewhere": """
x = torch.full((4096,), 24.0, dtype=torch.half, device="chip")
assert torch.sum(x, 0, out=torch.empty((), device="chip")).item() == 4096 * 24.0
square = torch.ones(2, 2, device="chip")
raises(RuntimeError, lambda: torch.mm(square, square, out=square.double()), "Expected out tensor to have dtype")
""",
    "an_output_that_is_an_input_is_not_resized": """
x = torch.arange(3.0, device="chip")
raises(RuntimeError, lambda: torch.add(x, torch.ones(2, 3, device="chip"), out=x), "doesn't match")
assert x.tolist() == [0, 1, 2]
""",
    "recursive_decompositions_end": """
x = torch.zeros(3).to(torch.uint16).to("chip")
raises(NotImplementedError, lambda: torch.logical_not(x), "no route on driver numpy for uint16: no kernel of numpy")
""",
    "masks_and_indices_from_the_cpu": """
mask = torch.tensor([[True, False], [False, True], [True, True]])
same(lambda x: x[mask.to(x.device)], torch.arange(6.0).view(3, 2))
same(lambda x: x[mask], torch.arange(6.0).view(3, 2))
same(lambda x: x[:, torch.tensor([1, 0])], torch.arange(6.0).view(3, 2))
same(lambda x: x.masked_fill(mask.to(x.device), 7.0), torch.arange(6.0).view(3, 2))
def assign(x):
    x = x.clone()
    x[mask.to(x.device)] = -1.0
    return x
same(assign, torch.arange(6.0).view(3, 2))
raises(IndexError, lambda: torch.ones(3, device="chip")[torch.ones(2, dtype=torch.bool)], "mask")
assert "device='chip:0'" in repr(torch.randn(3).to("chip"))
""",
}
RUN = """
import json, traceback
errors = {}
for name, code in CHECKS.items():
    try:
        exec(code, dict(globals()))
    except Exception:
        errors[name] = traceback.format_exc()
    torch.set_default_dtype(torch.float32)
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """Failures in one child that ran all checks."""
    code = f"{HEAD}\nCHECKS = {CHECKS!r}\n{RUN}"
    found: dict[str, str] = json.loads(output(code, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1"))
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_kernel_route(check: str, errors: dict[str, str]) -> None:
    assert check not in errors, errors[check]


def test_a_kernel_that_returns_a_value_is_named(tmp_path) -> None:
    library = tmp_path / "wrong.py"
    library.write_text(
        "from isthmus.opset.library import Library\n"
        "library = Library('wrong')\n"
        "@library.operator('aten::neg', dtypes=('float32',), raw=True, host=True)\n"
        "def neg(context, x, out):\n"
        "    return 'done'\n"
    )
    text = output(
        """
        import torch
        try:
            torch.ones(3, device="chip").neg()
        except RuntimeError as error:
            print(error)
        """,
        ISTHMUS_LIBRARIES=str(library),
        ISTHMUS_ROUTE="aten::neg=kernel",
    )
    assert "aten::neg by library wrong" in text and "returned a value" in text
