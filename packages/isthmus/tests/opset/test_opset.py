"""The opset: coverage of the samples, and references that obey the rules."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from isthmus import opset
from isthmus.conformance import generate, golden
from isthmus.opset import dtypes as dt
from isthmus.opset import reference, rules
from isthmus.opset.derivation import cases_of
from isthmus.opset.derivation.covering import covering_rows
from isthmus.opset.indices import INDICES, position, rule_of
from isthmus.opset.names import matches
from isthmus.opset.operator import ROUNDED, op
from isthmus.opset.sampling import Array, Case, Maker, place, quantize
from isthmus.opset.schema import parse
from tools.opset import torchgen_schemas
from tools.opset.outside import OUTSIDE, reason

NAMES = sorted(opset.operators())


def arrays(value: object) -> list[Array]:
    if isinstance(value, Array):
        return [value]
    return [each for item in value for each in arrays(item)] if isinstance(value, list) else []


def tensors(case: Case) -> list[Array]:
    return [each for value in case.arguments.values() for each in arrays(value)]


def test_every_core_and_traced_operator_is_covered_or_has_a_reason() -> None:
    functions = torchgen_schemas.native_functions()
    core = [name for name, f in functions.items() if "core" in f.tags]
    traced = torchgen_schemas.models()
    assert [n for n in (*core, *traced) if not opset.canonical(n) and not reason(n)] == []
    assert [n for n in OUTSIDE if opset.canonical(f"aten::{n}")] == []


def test_variants_are_served_by_one_operator() -> None:
    assert opset.canonical("aten::add_.Tensor") == "aten::add.Tensor"
    assert opset.canonical("aten::add.out") == "aten::add.Tensor"
    assert opset.canonical("aten::_foreach_mul_.Scalar") == "aten::_foreach_mul.Scalar"
    assert opset.canonical("aten::view") is None
    served = [v for name, record in opset.records().items() for v in (name, *record["variants"])]
    assert len(served) == len(set(served))


def test_an_unknown_operator_is_named_with_its_neighbours() -> None:
    with pytest.raises(opset.UnknownOperator, match=r"no operator 'aten::add.Tensr'.*aten::add.Tensor"):
        opset.schema_of("aten::add.Tensr")
    with pytest.raises(
        opset.UnknownOperator, match=r"add_.Tensor is implemented by the kernel of aten::add.Tensor"
    ):
        opset.schema_of("aten::add_.Tensor")


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NAMES)
def test_samples_of_every_dtype_have_the_layouts_that_apply(name: str) -> None:
    operator = opset.operators()[name]
    for dtype in operator.dtypes:
        cases = cases_of(operator, dtype)
        assert cases, f"{name} has no case for {dtype}"
        assert len({case.id for case in cases}) == len(cases)
        kinds = {case.kind for case in cases}
        if not any(tensors(case) for case in cases):
            assert operator.family == "factory" or name == "aten::randperm"
            continue
        ranked = any(len(t.shape) > 0 for case in cases for t in tensors(case))
        assert not ranked or kinds & {"contiguous", "large"}
        for case in cases:
            if case.kind == "zero-size":
                a_row = name == "aten::_pdist_forward" and tensors(case)[0].shape[0] == 1  # no pair
                assert a_row or any(0 in t.shape for t in tensors(case))
        assert {t.dtype for case in cases for t in tensors(case)} & {dtype, "complex64", "complex128"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", [f for f in opset.FAMILIES if f not in ("factory", "random", "optimizer")])
def test_every_family_has_strided_and_empty_samples(family: str) -> None:
    operators = [o for o in opset.operators().values() if o.family == family]
    without = [o.name for o in operators if not any(c.kind == "strided" for c in cases_of(o, o.dtypes[0]))]
    assert set(without) <= {"aten::grid_sampler_2d", "aten::_pdist_forward", "aten::_fft_c2r"}


def results(value: object) -> list[golden.Expected]:
    if isinstance(value, golden.Expected):
        return [value]
    return [each for item in value for each in results(item)] if isinstance(value, list) else []


# Operators of which PyTorch rejects most derived calls, with the reason.
MOSTLY_REJECTED = {
    "aten::tril": "the derived special values lie in tensors of one dimension",
    "aten::triu": "the derived special values lie in tensors of one dimension",
    "aten::col2im": "the columns are not those of the windows",
    "isthmus::grouped_matmul": "the sizes of the groups do not add up to the rows",
    "isthmus::grouped_matmul_backward": "the sizes of the groups do not add up to the rows",
}


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", NAMES)
def test_references_obey_the_rules_and_pytorch_accepts_most_derived_calls(name: str) -> None:
    operator = opset.operators()[name]
    dtype = "bfloat16" if "bfloat16" in operator.dtypes else operator.dtypes[0]
    tally: Counter[str] = Counter()
    for case in generate.golden_cases(operator, seed=1, dtypes=(dtype,), tally=tally):
        found = results([*case.outputs, *case.written.values()])
        assert found, f"{case.id} expects nothing"
        for each in found:
            assert each.law or (each.reference is not None and each.reference.shape == each.shape)
            assert each.magnitude is None or each.magnitude.shape == each.shape
    mostly_rejected = tally["rejected"] > tally["derived"]
    assert mostly_rejected == (name in MOSTLY_REJECTED), f"{tally}"


def test_a_wrong_rule_is_found() -> None:
    mm = opset.operators()["aten::mm"]
    wrong = op("mm", mm.dtypes, "(self.shape[0], mat2.shape[0])", "self.dtype", mm.samples, ROUNDED)
    with pytest.raises(rules.RuleError, match=r"aten::mm/float32/0-contiguous: the shape rule .* gives"):
        reference.compute_expected(wrong, cases_of(wrong, "float32")[0])


def test_every_accumulating_operator_has_a_magnitude_and_every_tolerance_a_reason() -> None:
    for operator in opset.operators().values():
        for dtype, limit in operator.tolerance.items():
            assert limit.reason
            assert not limit.accumulate or operator.magnitude, f"{operator.name} {dtype}"


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> golden.Reader:
    """Golden data of products of a matrix and a vector, of seed 3."""
    folder = tmp_path_factory.mktemp("products")
    assert generate.generate(folder, "aten::mv", seed=3).cases > 100
    return golden.Reader(folder)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("seed", "same"), [(3, True), (4, False)])
def test_generation_is_deterministic(products: golden.Reader, tmp_path: Path, seed: int, same: bool) -> None:
    generate.generate(tmp_path, "aten::mv", seed=seed)
    first, second = ((folder / golden.MANIFEST).read_bytes() for folder in (products.folder, tmp_path))
    if same:
        assert first == second
    else:
        files = json.loads(second)["files"]
        assert files and files.items().isdisjoint(json.loads(first)["files"].items())


def test_golden_data_reads_back(products: golden.Reader) -> None:
    case = next(c for c in products.cases("aten::mv") if c.dtype == "bfloat16")
    left, right = (np.asarray(t.array, np.float64) for t in case.arguments if isinstance(t, golden.Tensor))
    product = case.outputs[0]
    assert isinstance(product, golden.Expected)
    assert product.reference is not None
    assert np.allclose(product.reference, left @ right, rtol=2.0**-23)  # bfloat16 and 16 bits


def test_a_pattern_without_operators_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--operators aten::nothing: unknown operator"):
        generate.generate(tmp_path, "aten::nothing")


def test_inputs_do_not_depend_on_other_cases() -> None:
    maker = Maker("aten::mm", "float32")
    maker.case("contiguous", maker.tensor(2, 2), maker.tensor(2, 2))
    second = maker.tensor(3, 3).view.copy()
    other = Maker("aten::mm", "float32")
    other.case("contiguous", other.tensor(5, 7), other.tensor(7, 1))
    assert (other.tensor(3, 3).view == second).all()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "heads", "channels_last"])
def test_a_layout_keeps_the_values(layout: str) -> None:
    values = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
    placed = place(values, layout)
    assert (placed.view == values).all()
    assert (reference.to_torch(placed).numpy() == values).all()
    assert (layout == "contiguous") == (placed.strides == (105, 35, 7, 1))


def test_an_expanded_tensor_repeats_its_first_row() -> None:
    placed = place(np.arange(6.0).reshape(2, 3), "expanded")
    assert placed.strides == (0, 1)
    assert (placed.view == [[0, 1, 2], [0, 1, 2]]).all()


def test_halves_are_rounded_to_nearest_even() -> None:
    assert quantize(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bfloat16").astype(float).tolist() == [
        1.0,
        1.015625,
    ]
    assert quantize(np.array([1e39]), "bfloat16").astype(float).tolist() == [np.inf]


def test_every_operator_gets_cases_beyond_its_samples() -> None:
    operator = opset.operators()["aten::addcmul"]
    labelled = {case.label: case for case in cases_of(operator, "float32")}
    strided, broadcast, nan, inf = (labelled[label] for label in ("sliced", "narrowed", "nan", "inf"))
    assert all(t.strides[-1] == 2 and t.offset for t in tensors(strided))
    assert [t.shape[-2:] for t in tensors(broadcast)] == [(17, 1), (1, 35), (17, 1)]
    assert [np.isnan(t.view).sum() for t in tensors(nan)] == [2, 1, 1]  # the first at its end too
    assert all(np.signbit(t.view[t.view == 0]).any() for t in tensors(nan))
    assert [np.isposinf(t.view).sum() for t in tensors(inf)] == [2, 1, 1]
    integers = cases_of(opset.operators()["aten::add.Tensor"], "int64")
    beyond = next(case for case in integers if case.label == "beyond-float")
    assert all((t.view > 1 << 53).any() for t in tensors(beyond))


@pytest.mark.parametrize(
    "name", ["aten::add.Tensor", "aten::sum.dim_IntList", "aten::_softmax", "aten::gather"]
)
def test_derived_cases_have_every_rank_and_layout(name: str) -> None:
    cases = [case for case in cases_of(opset.operators()[name], "float32") if case.label]
    every = [t for case in cases for t in tensors(case)]
    assert {len(t.shape) for t in every} >= set(range(2, 9))
    assert {t.offset * t.storage.itemsize % 16 for t in every} >= {0, 4}
    assert any(t.strides[-1] > 1 for t in every if t.shape and t.shape[-1] > 1)
    assert any(t.strides != tuple(sorted(t.strides, reverse=True)) for t in every)
    assert {case.output for case in cases} >= {"contiguous", "unaligned", "step", "reversed"}
    if "dim" in cases[0].arguments:
        dims = [case.arguments["dim"] for case in cases]
        flat = {d for dim in dims for d in (dim if isinstance(dim, list) else [dim])}
        assert flat >= {*range(-4, 4)}


def test_derived_cases_broadcast_outer_dimensions_single_elements_and_dtypes() -> None:
    cases = cases_of(opset.operators()["aten::add.Tensor"], "float32")
    shapes = {tuple(t.shape for t in tensors(case)) for case in cases}
    full = (2, 3, 4, 5)
    assert shapes >= {(full, full[1:]), (full, (1, 3, 4, 5)), ((1, 3, 4, 5), full)}
    assert shapes >= {((1, 1), (5, 7)), ((5, 7), (1, 1)), ((5, 131), (5, 1)), ((5, 1), (5, 131))}
    assert {tuple(t.dtype for t in tensors(case)) for case in cases} >= {
        ("float32", "int64"),
        ("int32", "float32"),
    }


def test_derived_cases_have_outputs_of_different_layouts_and_one_row_with_nan() -> None:
    labelled = {case.label: case for case in cases_of(opset.operators()["aten::sort"], "float32")}
    assert labelled["out-step-contiguous"].output.split() == ["step", "contiguous"]
    labelled = {case.label: case for case in cases_of(opset.operators()["aten::mm"], "bfloat16")}
    found = np.isnan(labelled["nan-in-row-mat2"].arguments["mat2"].view.astype(float))
    assert found.sum() == 1
    assert found[1:-1, 0].any()


def test_derived_cases_permute_sizes_of_one_share_tensors_and_have_close_numbers() -> None:
    cases = cases_of(opset.operators()["aten::copy_"], "float32")
    permuted = [t for case in cases for t in tensors(case) if t.shape == (2, 3, 1, 4) and t.strides[-1] != 1]
    assert permuted
    labelled = {case.label: case for case in cases_of(opset.operators()["aten::add.Tensor"], "float32")}
    first, second = tensors(labelled["shared-self-other"])
    assert first is second
    numbers = {
        case.arguments["scale"]
        for case in cases_of(opset.operators()["aten::elu"], "float32")
        if case.label == "close-numbers-scale"
    }
    assert len(numbers) == 2
    assert max(numbers) - min(numbers) < 1e-4


def test_large_derived_cases_pass_16_bit_sizes() -> None:
    shapes = {
        name: [t.shape for case in cases_of(opset.operators()[name], "float32") for t in tensors(case)]
        for name in ("aten::exp", "aten::sum.dim_IntList", "aten::mm", "aten::embedding")
    }
    assert max(math.prod(shape) for shape in shapes["aten::exp"]) > 1 << 16
    assert any(len(shape) == 2 and shape[1] > 4096 for shape in shapes["aten::sum.dim_IntList"])
    assert any(shape[1] > 4096 for shape in shapes["aten::mm"])
    assert any(shape[:1] > (1 << 16,) for shape in shapes["aten::embedding"])


def test_pairs_cover_every_pair_of_values() -> None:
    dimensions = {"a": [1, 2, 3], "b": [4, 5], "c": [6, 7, 8, 9]}
    rows = list(covering_rows(dimensions, pairs=True))
    for one, other in itertools.combinations(dimensions, 2):
        assert {(row[one], row[other]) for row in rows} == set(
            itertools.product(dimensions[one], dimensions[other])
        )
    assert len(rows) < 3 * 2 * 4
    each = list(covering_rows(dimensions))
    assert len(each) == 4
    assert all({row[name] for row in each} == set(values) for name, values in dimensions.items())


def test_operators_may_leave_strides_and_special_values_unspecified() -> None:
    def derived(name: str) -> list[Case]:
        operator = opset.operators()[name]
        made = len(list(operator.samples(Maker(name, "float32", 0))))
        return cases_of(operator, "float32")[made:]

    assert "strided" not in {case.kind for case in derived("aten::native_group_norm")}
    cases = derived("aten::convolution_backward")
    assert any(case.kind == "special" for case in cases)  # finite extremes
    assert all(np.isfinite(t.view).all() for case in cases for t in tensors(case))


def test_a_math_library_by_the_limits_of_opencl_passes() -> None:
    limits = {
        "exp": 3,
        "log": 3,
        "sin": 4,
        "cos": 4,
        "tan": 5,
        "tanh": 5,
        "atan2": 6,
        "pow.Tensor_Scalar": 16,
    }
    found = {name: opset.operators()[f"aten::{name}"].tolerance["float32"].ulp for name in limits}
    assert found == limits
    assert opset.operators()["aten::rsub.Scalar"].tolerance["float32"].accumulate == 1  # alpha's product


def test_roots_by_powers_get_no_negative_zero() -> None:
    """The square root of -0.0 is -0.0, its power 0.0."""
    for case in cases_of(opset.operators()["aten::pow.Tensor_Scalar"], "float32"):
        if case.arguments["exponent"] in (0.5, -0.5):
            values = case.arguments["self"].view
            assert not (np.signbit(values) & (values == 0)).any(), case.label


def test_special_values_are_tried_for_every_elementwise_float_operator() -> None:
    for name in ("aten::exp", "aten::add.Tensor", "aten::maximum", "aten::eq.Tensor", "aten::where.self"):
        for dtype in dt.FLOATS:
            special = [
                t for c in cases_of(opset.operators()[name], dtype) if c.kind == "special" for t in tensors(c)
            ]
            values = np.concatenate([t.view.astype(np.float64).reshape(-1) for t in special])
            assert np.isnan(values).any()
            assert np.isinf(values).any()
            assert (np.signbit(values) & (values == 0)).any()


@pytest.mark.full
def test_no_pytorch_is_needed_to_read_the_opset() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from isthmus import opset\nfrom isthmus.opset.derivation import cases_of\n"
        "print(sum(len(cases_of(o, o.dtypes[-1])) for o in opset.operators().values()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 9_000


@pytest.mark.parametrize(
    "pattern", ["aten::add.Tensor", "aten::add", "add.Tensor", "add", "a?d", "*::add.T*"]
)
def test_a_pattern_may_omit_namespace_and_overload(pattern: str) -> None:
    assert matches("aten::add.Tensor", pattern) and matches("aten::add.Tensor", "mm", pattern)
    assert not matches("aten::addmm", pattern)
    assert not matches("aten::add_.Tensor", "add", "Tensor", "aten") and not matches("aten::add.Tensor")


def test_positions_of_arguments() -> None:
    schema = parse(
        "a::b(Tensor x, Tensor[] many, Tensor index, ScalarType t, Tensor[] more, int n) -> Tensor"
    )
    assert [position(schema, name) for name in ("x", "many", "n", "out")] == [0, 1, -2, -1]
    for name, message in (
        ("index", "index stands between lists"),
        ("t", "no argument t"),
        ("y", "no argument y"),
    ):
        with pytest.raises(ValueError, match=f"a::b: {message}"):
            position(schema, name)
    name = next(iter(INDICES))
    with pytest.raises(ValueError, match=f"{name}: no argument"):
        rule_of(parse(f"{name}(Tensor x) -> Tensor"))
