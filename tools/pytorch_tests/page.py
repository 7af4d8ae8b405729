"""Generate docs/results/pytorch-tests.md: PyTorch's own tests for any device, on the host chip."""

from __future__ import annotations

from tools.ascend.vendor.page import choose_rows, tables
from tools.pytorch_tests.device_tests import SAMPLED
from tools.suites import Row

# Reason -> pattern of a failure, "TestClass::test: message"; the first match counts. None of them is a fault of the
# chip.
REASONS = {
    "a function that NumPy 2 or SciPy 1.17 lacks, or an argument that it refuses": r"module 'numpy' has no attribute|"
    r"ValueError: Parameter Nx=0 is not a positive integer",
    "PyTorch 2.13 answers otherwise on any device; the copy is of an earlier one": r"test_rot90_chip: IndexError|"
    r"input types can't be cast to the desired output type|got an unexpected keyword argument 'interpolation'|"
    r"TestAsArray\w+::test_(alias_from_tensor|retain_autograd_history)_chip\w*: AssertionError: Booleans mismatch|"
    r"test_dim_empty_(keepdim_)?_?(refs_)?linalg_vector_norm_chip: AssertionError|"
    r"'torch' has no attribute '(vitals_enabled|read_vitals)'|not have the attribute '_multi_tensor_adamw'|"
    r"test_as_subclass: TypeError: Creating a Tensor subclass|test_(storage|tensor)_dead_weak_ref: AssertionError|"
    r"unflatten\(\): argument 'dim' \(position 1\) must be int, not str|test_storage_use_count_chip: AssertionError|"
    r"test_cpp_warnings_have_python_context_chip: AssertionError|check_random_bounds handles only integral|"
    r"UnpicklingError: Weights only load failed|test_unflatten(_invalid_arg)?: \w+: \"?unflattened_size must be|"
    # A row that is wholly masked gives zeros since PyTorch 2.5, not NaN.
    r"test_transformerencoderlayer_chip_float\d+: AssertionError: np.False_ is not true|"
    r"test_(multiheadattention_fastpath_attn_mask|scaled_dot_product_attention_\dD_input_dim_\dD_attn_mask)\S*: A|"
    # Results of numbers are of the default dtype, no NaN from heaviside, NaN of 0j**0j.
    r"test_type_promotion_(__rdiv__|div_floor_rounding|complex)_chip: |test_reference_numerics_extremal_values_\w*"
    r"heaviside_chip_float\d+: AssertionError|test_reference_numerics_small_values__refs_float_power_chip_comp",
    "words of an error, of the same class as CUDA's": r'"expected scalar type" does not match "Expected tensor for|'
    r'does not match "Expected all tensors to be on the same device|"range of .*" does not match "torch.histc: range|'
    r"\"Could not run 'aten::empty_strided' with arguments from the 'Sparse|"
    r'"Overflow when unpacking long long" does not match "seed |"lambda must be .*" does not match "lambda must be',
    "legacy tensor types, of which PyTorch makes CPU's and CUDA's alone": r"test_tensor_type_chip: AttributeError|"
    r"test_(tensor_factory_gpu_type|set_default_tensor_type)\w*: TypeError: invalid type object",
    "properties that PyTorch makes for devices out of the tree, without CUDA's warning": r"test_typed_storage_"
    r"deprecation_warning: AssertionError: Scalars",
    "a fault of the copy": r"_test_GroupNorm_cuda_half\(\) missing 1 required|name 'device_name' is not defined|"
    r"No such file or directory: '\S*/url.ini'",
    "cuDNN, or another name of CUDA's alone": r"test_(device_mask_chip|cudnn_weight_format): AssertionError|"
    r"No viable backend for scaled_dot_product_attention|test_sdp_choice_with_determinism\w+: AssertionError|"
    r"aten::cudnn_convolution_\w+ is not available on chip|"
    r"Torch not compiled with CUDA enabled|test_conv_cudnn_mismatch_memory_format_chip: TypeError|"
    r"test_grad_scaler_deprecated_warning_chip: AssertionError|module 'isthmus.chip.amp' has no attribute 'common'|"
    r"test_(is_causal_gpu|train_with_is_causal)_chip: AttributeError: module 'torch.backends' has no attribute",
    "a name, a format or a storage of the vendor's": r"has no attribute '(chip_format_cast|_share_chip_|"
    r"chip_time_total|conv)'|name 'torch_chip' is not defined|"
    r"test_legacy_load_maplocation_map_kind_none: AssertionError: RuntimeError not raised",
    "a test of a build without a device": r"test_(NPU_not_built|no_NPU_monkeypatch): AssertionError: \w+ not raised",
    "the chip's kernel is deterministic where CUDA's is not": r"test_nondeterministic_alert_\w+: AssertionError: "
    r"RuntimeError not raised : expected a non-deterministic error",
    "derivatives that PyTorch's tests have for the key AutogradCUDA alone": r"TestAutogradMultipleDispatch\w+::test_"
    r"(autograd_multiple_dispatch_registrations|foward_mode_AD|view_copy)_chip: AssertionError",
    "the chip's backward runs in the calling thread, not in a device's": r"test_(reentrant_parent_error_on_cpu|"
    r"backward_single_threaded)_chip: AssertionError|test_thread_shutdown: AssertionError: Regex didn't match",
    "CUDA refuses what the chip computes": r"test_upsamplingBiMode2d_nonsupported_dtypes_\w+: AssertionError: Run|"
    r"test_addcmul_cuda_errors_with_cpu_scalars_chip: AssertionError: Run|"
    r"test_scatter_reduce_multiply_unsupported_dtypes_chip_complex\d+: AssertionError: RuntimeError not raised",
    "more memory than the chip's 6 GiB": r"OutOfMemoryError: chip \d is out of memory: asked \d+\.\d GiB",
    "torch.is_autocast_enabled() without a device means CUDA, so that autocast of the chip leaves the fast path on; "
    "isthmus run answers for the chip": r"test_transformerencoder_fastpath_\w+_use_autocast_True_\w+: AssertionError",
    "attention of float64 has no second derivative, as CUDA's of float32": r"derivative for aten::_scaled_dot_"
    r"product_flash_attention_for_cpu_backward is not implemented",
    "integers divided by zero, whose result CUDA leaves open": r"test_fmod_remainder_by_zero_integral_chip_\w+: "
    r"RuntimeError: ZeroDivisionError",
    "mt19937 has no offset; ISTHMUS_HOST_RNG=philox has": r"a chip generator of mt19937 has no offset",
    "rounding of float16: exact arithmetic rounded after each operator passes the limit, too": r"test_native_"
    r"multihead_\w+_chip_float16: AssertionError: Tensor-likes are not close",
    "the layout that the CPU's kernel gives its result; the values are equal": r"test_conv_cudnn_ndhwc_chip_\w+: "
    r"AssertionError: False is not true|"  # a convolution in three dimensions is contiguous
    r"test_memory_format_nn_GroupNorm_chip_\w+: AssertionError: False|"  # which the test skips on CUDA
    r"test_transform_bias_rescale_qkv_nested_chip_\w+: AssertionError: Scalars|"  # CUDA's pads to eight
    # A sparse sum has equal indices merged.
    r"test_embedding_backward_chip_float16: AssertionError: The values for attribute 'shape' do not match",
}


def named(row: Row) -> Row:
    """Return a row whose failures begin with the test's name, for reasons that hold for some tests alone."""
    tests = {
        name: [outcome, f"{name.partition('::')[2]}: {text}" if outcome == "failed" else text]
        for name, (outcome, text) in row["tests"].items()
    }
    return {**row, "tests": tests}


def page(rows: list[Row], names: list[str], revision: str) -> str:
    """Return the page as Markdown."""
    rows = [named(row) for row in choose_rows(rows, names)]
    samples = ", ".join(
        f"one test in {every} of {name.replace('.py', '')}" for name, every in SAMPLED.items()
    )
    parts = [
        "# PyTorch's tests for any device",
        "Made by `make pytorch-tests`: PyTorch's tests that take a device, in the copies of Ascend/pytorch at "
        f"{revision} with the chip's name, on two devices of the host chip with 6 GiB each. {len(rows)} of "
        f"{len(names)} files have been run. Share: passed, of the tests that are neither skipped nor have one of the "
        "named reasons.",
        f"Tests that run on the CPU alone are left out. Samples are run of files that take a core hours: {samples}. "
        "What the copies skip for the vendor's chip runs here, except its own kernels of attention. "
        "A file that reaches its time limit has one test that is not "
        "run; those after it are not counted. 64 Mi elements in test_reductions are 1 Mi here. There are no copies "
        "of test_linalg, test_foreach, test_spectral_ops and test_python_dispatch; the operators of the first three "
        "are among [OpInfo's](opinfo.md).",
        *tables(rows, REASONS, lambda file: file),
    ]
    return "\n\n".join(parts) + "\n"
