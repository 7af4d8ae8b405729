"""PyTorch's own tests of a PrivateUse1 device, restated for the chip: which are here, and why some are not.

The first seventeen files are those of PyTorch's reference backend, in
``test/cpp_extensions/open_registration_extension/torch_openreg/tests`` of PyTorch 2.13; where a later revision of a
file has more tests, they are here too. ``open_device_registration``, ``openreg`` and ``python_backend`` are older
tests of the same interface, ``accelerator`` is ``test/test_accelerator.py``. ``cuda_graphs`` are the tests of
``test/test_cuda.py`` that are about graphs: those with graph or capture in their name or class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tools.repository import ROOT

Test = TypeVar("Test", bound=Callable[..., object])


def covers(file: str, *names: str) -> Callable[[Test], Test]:
    """Mark a test as the counterpart of upstream tests.

    Args:
        file: upstream's file without ``test_`` and ``.py``, a key of ``UPSTREAM``.
        names: its test methods.
    """

    return lambda test: test


UPSTREAM = {
    "autocast": """
        test_autocast_with_unsupported_type test_autocast_operator_not_supported test_autocast_low_precision
        test_autocast_fp32 test_autocast_default_dtype test_autocast_set_dtype test_autocast_bfloat16
        test_autocast_low_precision_bfloat16 test_autocast_fp32_with_bfloat16 test_autocast_nested_context
        test_autocast_fallthrough_operation test_autocast_with_requires_grad test_autocast_mixed_input_dtypes
        test_autocast_already_target_dtype test_autocast_combination_operations test_autocast_disable
        test_autocast_cache_enabled test_autocast_fp32_operation_with_float16_input
        test_autocast_fp32_operation_with_float32_input test_openreg_autocast_error_message
        test_openreg_autocast_float16_supported test_openreg_autocast_float32_supported test_autocast_fast_dtype""",
    "autograd": """
        test_autograd_init test_autograd_backward test_autograd_grad_fn test_autograd_no_grad test_autograd_detach
        test_autograd_retain_grad test_autograd_multiple_backward test_autograd_cross_device""",
    "compile": """
        test_backend_in_list test_simple_compile test_compile_fullgraph_multiple_ops test_device_metadata
        test_backend_metadata_propagation test_fake_tensor_mode test_backend_recompilation
        test_recompilation_on_shape_change test_autograd test_nn_module test_dynamic_shapes
        test_device_transfer_traces_fully test_graph_break_resilience test_compile_with_autocast
        test_compile_with_default_device test_interface_registered test_current_device test_device_count""",
    "device": """
        test_device_count test_device_switch test_device_context test_invalid_device_index test_device_capability
        test_tensor_device test_device_guard test_device_switch_persistence test_device_count_consistency
        test_device_poison_fork test_device_properties test_current_device_after_operations
        test_device_context_restoration test_concurrent_device_operations test_device_initialization_state
        test_device_multiprocessing_spawn test_device_state_after_errors""",
    "device_type": """
        test_to_device test_to_device_with_copy test_clone test_copy_ test_copy_from_cpu test_copy_to_cpu
        test_round_trip test_cpu_only_feature test_cuda_only_feature test_skip_on_cpu test_skip_on_cuda
        test_native_device_only test_privateuse1_only test_conditional_skip_privateuse1 test_runtime_skip_pattern
        test_tensor_operations test_basic_tensor_creation test_dtype_propagation""",
    "distributed": "test_occl_backend_registration_and_default_group test_occl_allreduce",
    "event": """
        test_event_create test_event_query test_event_record test_event_elapsed_time test_event_wait_stream
        test_event_synchronize test_event_different_devices test_event_timing_disabled test_event_wait_event
        test_device_synchronization test_blocking_vs_non_blocking_synchronization test_interleaved_stream_operations
        test_multiple_streams_wait_same_event test_event_lifecycle test_generic_stream_event
        test_stream_compatibility""",
    "ipc": """
        test_basic_tensor_roundtrip test_offset_tensor_roundtrip test_strided_tensor_roundtrip
        test_received_via_ipc_cannot_be_reshared test_producer_exits_cleanly_with_tensor_in_limbo""",
    "memory": """
        test_basic_allocation test_memory_lifecycle test_tensor_copy_operations test_tensor_shallow_copy
        test_inplace_operations test_view_operations test_different_dtypes test_tensor_resize
        test_empty_cache_operation test_memory_format_allocation test_large_allocation
        test_sequential_allocations_and_deallocations test_allocation_with_requires_grad test_storage_operations
        test_tensor_from_blob test_no_leak_simple_allocations test_no_leak_varying_sizes test_no_leak_with_copies
        test_no_leak_with_views test_no_leak_inplace_operations test_no_leak_with_gradients
        test_no_leak_repeated_large_allocations test_leak_detection_with_statistics test_pin_memory
        test_pin_memory_different_devices test_pin_memory_view test_pin_memory_storage_sharing
        test_allocation_on_device_1 test_simultaneous_device_allocations test_memory_isolation_between_devices
        test_alternating_device_allocations test_tensor_to_different_device test_bidirectional_device_transfer""",
    "misc": """
        test_backend_module_name test_profiler_activity_alias test_device_type_alias
        test_backend_module_registration test_backend_module_function test_backend_module_function_error_handling
        test_backend_generate_methods test_backend_tensor_methods test_backend_module_methods
        test_backend_storage_methods test_backend_packed_sequence_methods test_backend_packed_sequence_properties
        test_backend_tensor_methods_different_devices test_backend_tensor_type test_backend_type_methods
        test_backend_storage_type_consistency""",
    "opinfo": "test_op_basic_functionality test_out_argument test_noncontiguous_samples",
    "ops": """
        test_empty test_zeros test_tensor test_copy_same_device test_cross_device_copy test_cross_diff_devices_copy
        test_masked_select test_expand test_resize test_printing test_backend_dispatchstub test_quantize
        test_compile_autograd_function_returns_self test_compile_autograd_function_aliasing
        test_scalar_type_fallback test_tensor_type_fallback test_tensorlist_type_fallback
        test_fused_sdp_choice_privateuseone test_scaled_dot_product_fused_attention_overrideable
        test_scaled_dot_product_fused_attention_overrideable_backward test_empty_with_memory_format
        test_empty_strided test_ones test_ones_like test_randn test_full test_copy_different_dtypes test_clone
        test_copy_non_blocking test_view test_reshape test_as_strided test_local_scalar_dense test_set_tensor
        test_set_storage test_abs_contiguous test_abs_non_contiguous test_custom_abs test_abs_out
        test_quantize_per_tensor_different_scales test_quantize_per_tensor_quint8 test_dequantize
        test_cpu_fallback_blocklist test_fallback_operations test_fallback_with_scalars
        test_fused_sdp_choice_with_mask test_scaled_dot_product_attention_with_dropout
        test_scaled_dot_product_attention_is_causal test_custom_autograd_fn_returns_self_basic
        test_custom_autograd_fn_aliasing_basic test_custom_autograd_fn_returns_self_no_grad
        test_custom_autograd_fn_aliasing_no_grad test_maximum_functional test_maximum_out
        test_minimum_ext_structured_meta_functional test_minimum_ext_structured_meta_out""",
    "profiler": """
        test_profiler_basic test_profiler_with_record_function test_profiler_multiple_streams
        test_profiler_event_synchronization test_profiler_nested_record_function test_profiler_key_averages
        test_profiler_table_output test_profiler_export_chrome_trace test_profiler_with_shapes
        test_profiler_default_stream_initialization test_profiler_stream_event_correlation
        test_profiler_elapsed_time test_profiler_context_manager_multiple_times test_profiler_with_backward_pass
        test_profiler_empty_operations test_profiler_exception_handling test_profiler_large_number_of_events
        test_profiler_single_device test_profiler_multiple_devices test_profiler_with_simple_model
        test_profiler_with_training_step test_profiler_with_multiple_batches test_profiler_table_with_model
        test_profiler_with_inference test_profiler_with_data_transfer test_profiler_with_mixed_operations
        test_profiler_overhead test_cpu_fallback_hook_captures_ops test_copy_from_hook_captures_transfer
        test_abs_kernel_hook_captures_event test_ops_work_without_profiler""",
    "rng": """
        test_generator test_rng_state test_manual_seed test_seed test_create_generator_and_seed
        test_offset_unsupported test_generator_seed test_generator_state test_rng_state_consistency
        test_manual_seed_all test_generator_different_devices""",
    "rnn": """
        test_lstm_basic test_lstm_multi_layer test_lstm_bidirectional test_lstm_batch_first
        test_lstm_with_initial_hidden test_lstm_packed_sequence test_lstm_cpu_parity""",
    "storage": """
        test_rewrapped_storage test_serialization test_copy_backend_meta test_open_device_numpy_serialization
        test_open_device_cpu_serialization test_serialization_metadata_preservation
        test_fake_tensor_metadata_preservation test_fake_tensor_metadata_preservation_functional
        test_serialization_map_location_cpu test_serialization_map_location_device
        test_serialization_storage_location_tag test_serialization_default_restore_location""",
    "streams": """
        test_stream_create test_stream_context test_stream_context_exception_restore test_stream_switch
        test_stream_synchronize test_stream_repr test_stream_wait_stream test_stream_wait_event
        test_stream_equality test_stream_multiple_devices test_stream_context_nested test_stream_record_event""",
    "testing": "test_bypass_only_cuda test_bypass_only_on test_vaildate_bypass_execution",
    "utils": """
        test_open_device_dlpack test_dlpack_roundtrip test_dlpack_different_shapes test_dlpack_different_dtypes
        test_dlpack_cross_device test_dlpack_non_contiguous""",
    "cpp": """
        ForBlobSetterAttachesMeta SetterMatchesPostHoc Name AvailableActivities ConfigureReturnsNonNullSession
        AsyncConfigureReturnsNonNullSession StartStopTogglesTracerEnabled Singleton EnableDisable
        CorrelationPushPop RecordAndFlush""",
    "openreg": """
        test_initializes test_autograd_init test_factory test_printing test_cross_device_copy test_copy_same_device
        test_cross_diff_devices_copy test_data_dependent_output test_generator test_pin_memory
        test_rewrapped_storage test_stream_synchronize test_stream_wait_stream test_record_event
        test_event_elapsed_time test_stream_wait_event test_event_wait_stream test_expand test_empty_tensor""",
    "open_device_registration": """
        test_base_device_registration test_common_registration test_open_device_generator_registration_and_hooks
        test_open_device_dispatchstub test_open_device_quantized test_open_device_random test_open_device_tensor
        test_open_device_packed_sequence test_open_device_storage test_open_device_storage_pin_memory
        test_open_device_serialization test_open_device_storage_resize test_open_device_storage_type
        test_open_device_faketensor test_open_device_named_tensor test_compile_autograd_function_returns_self
        test_compile_autograd_function_aliasing test_open_device_scalar_type_fallback
        test_open_device_tensor_type_fallback test_open_device_tensorlist_type_fallback
        test_open_device_numpy_serialization test_open_device_cpu_serialization test_open_device_dlpack""",
    "python_backend": "test_accessing_is_pinned test_backend_simple",
    "accelerator": """
        test_current_accelerator test_generic_multi_device_behavior test_generic_stream_behavior
        test_current_stream_query test_stream_compare_with_non_stream test_device_context_manager
        test_device_index_fullgraph test_multi_device_context_manager test_stream_context_manager
        test_stream_context_manager_reentrance test_multi_device_stream_context_manager
        test_pin_memory_on_non_blocking_copy test_custom_pin_memory_device_argument
        test_custom_pin_memory_device_varargs test_custom_pin_memory_legacy_no_argument
        test_custom_pin_memory_unrelated_optional_argument test_generic_event_behavior test_empty_host_cache
        test_memory_stats test_get_memory_info test_device_capability_supported_dtypes""",
    "cuda_graphs": """
        test_graph_is_current_stream_capturing test_graph_capture_simple test_accelerator_graph_simple
        test_graphsafe_set_get_rng_state test_memory_stats_of_multiple_generators_and_graphs
        test_graph_capture_reset_recapture test_graph_debugdump test_graph_timing test_graph_error
        test_graph_warn_if_has_zero_nodes test_graph_capture_oom
        test_repeat_graph_capture_cublas_workspace_memory test_graph_rng_functional test_graph_rng_distributions
        test_graph_two_successive test_graph_concurrent_replay test_graph_three_successive
        test_graph_memory_stats_and_use_result_after_destroy_graph test_graph_record_stream
        test_graph_cudnn_dropout test_graph_checkpoint_preserve_rng_state test_graph_manual_seed_mismatch_raises
        test_graph_make_graphed_callables test_graph_make_graphed_callables_parameterless_nograd_module
        test_graph_make_graphed_callables_same_pool test_graph_optims_with_explicitly_capturable_param_groups
        test_cuda_graph_error_options test_cuda_graph_raw_graph_keep_graph_false test_cuda_graph_raw_graph
        test_cuda_graph_raw_graph_exec test_cuda_graph_raw_graph_reset_and_recapture
        test_cuda_graph_allocator_propagates_stream test_cuda_graph_tensor_item_not_allowed
        test_pin_memory_no_use test_pin_memory_no_use2 test_pin_memory_use test_two_graphs
        test_unpinned_memory_use test_unpinned_memory_use_device_to_host test_graph_capture_reclaim_2_streams
        test_graph_capture_reclaim_4_streams test_graph_optims test_graph_scaling_fused_optimizers
        test_graph_grad_scaling test_graph_external_wait_and_record""",
}

# test -> upstream tests of which it is the counterpart, where it stands with the others of its subject.
ELSEWHERE = {
    "chip/test_amp.py::test_autocast_computes_in_the_dtype": """
        autocast.test_autocast_fallthrough_operation autocast.test_autocast_combination_operations""",
    "chip/test_amp.py::test_regions_nest": """
        autocast.test_autocast_nested_context autocast.test_autocast_disable""",
    "chip/test_amp_lists.py::test_binary_cross_entropy_is_refused": """
        autocast.test_autocast_operator_not_supported""",
    "chip/test_amp_lists.py::test_dtype_of_the_result": "autocast.test_openreg_autocast_float32_supported",
    "chip/test_graph_replays.py::test_recurrent_modules_are_replayed_bit_equal": """
        cuda_graphs.test_graph_cudnn_dropout""",
    "chip/test_graphs.py::test_replays_are_bit_equal_to_eager_calls": "cuda_graphs.test_graph_capture_simple",
    "chip/test_graphs.py::test_what_makes_the_host_wait_is_refused_by_name_and_line": """
        cuda_graphs.test_cuda_graph_tensor_item_not_allowed""",
    "chip/test_profiler.py::test_annotation_covers_its_kernels": """
        profiler.test_profiler_with_record_function profiler.test_profiler_nested_record_function
        profiler.test_profiler_with_data_transfer profiler.test_profiler_stream_event_correlation""",
    "chip/test_profiler.py::test_results_do_not_depend_on_the_profiler": """
        profiler.test_profiler_large_number_of_events profiler.test_ops_work_without_profiler""",
    "chip/test_serialization.py::test_map_location_of_a_chip_file": """
        storage.test_serialization_map_location_cpu storage.test_serialization_map_location_device""",
    "chip/test_sharing.py::test_views_share_one_storage": """
        ipc.test_basic_tensor_roundtrip ipc.test_offset_tensor_roundtrip
        ipc.test_strided_tensor_roundtrip ipc.test_received_via_ipc_cannot_be_reshared
        ipc.test_producer_exits_cleanly_with_tensor_in_limbo""",
    "core/test_device.py::test_absent_device_is_named_by_every_function": "device.test_invalid_device_index",
    "core/test_device.py::test_accelerator_is_the_chip": "accelerator.test_current_accelerator",
    "core/test_device.py::test_current_device_is_set_and_restored": """
        device.test_device_count device.test_device_count_consistency device.test_device_switch
        accelerator.test_generic_multi_device_behavior device.test_device_context
        device.test_device_guard accelerator.test_device_context_manager
        accelerator.test_multi_device_context_manager device.test_tensor_device
        device.test_device_switch_persistence""",
    "core/test_device.py::test_lazy_initialisation": "device.test_device_initialization_state",
    "core/test_fork.py::test_after_first_use_it_is_refused": "device.test_device_poison_fork",
    "core/test_random.py::test_fork_rng_of_some_devices": "open_device_registration.test_open_device_random",
    "core/test_random.py::test_offset_of_the_default_generator": "rng.test_offset_unsupported",
    "core/test_random.py::test_own_generator": """
        rng.test_generator rng.test_create_generator_and_seed rng.test_generator_seed
        openreg.test_generator
        open_device_registration.test_open_device_generator_registration_and_hooks""",
    "core/test_random.py::test_seed_from_the_system": "rng.test_seed",
    "core/test_streams.py::test_an_event_used_again_stands_for_its_last_record": """
        event.test_event_query event.test_event_synchronize event.test_event_lifecycle
        event.test_blocking_vs_non_blocking_synchronization""",
    "core/test_streams.py::test_contexts_nested_and_mixed": """
        streams.test_stream_context streams.test_stream_context_exception_restore
        accelerator.test_multi_device_stream_context_manager accelerator.test_stream_context_manager""",
    "core/test_streams.py::test_elapsed_time_is_milliseconds": """
        event.test_event_elapsed_time event.test_generic_stream_event
        openreg.test_event_elapsed_time""",
    "core/test_streams.py::test_pytorch_generic_names": """
        streams.test_stream_synchronize streams.test_stream_record_event
        openreg.test_stream_synchronize""",
    "core/test_streams.py::test_stream_context_inside_itself": """
        streams.test_stream_context_nested accelerator.test_stream_context_manager_reentrance""",
    "core/test_streams.py::test_work_is_ordered_by_an_event": """
        accelerator.test_generic_stream_behavior event.test_event_wait_stream
        event.test_event_wait_event event.test_multiple_streams_wait_same_event
        openreg.test_event_wait_stream""",
    "dispatch/test_modules.py::test_module_db": "rnn.test_lstm_with_initial_hidden",
    "dispatch/test_modules.py::test_recurrent_layer": """
        rnn.test_lstm_basic rnn.test_lstm_multi_layer rnn.test_lstm_bidirectional
        rnn.test_lstm_batch_first rnn.test_lstm_packed_sequence rnn.test_lstm_cpu_parity""",
    "dispatch/test_opinfo.py::test_operator": """
        autograd.test_autograd_backward autograd.test_autograd_grad_fn ops.test_empty ops.test_zeros
        ops.test_tensor ops.test_ones ops.test_ones_like ops.test_randn ops.test_full
        device_type.test_basic_tensor_creation openreg.test_factory openreg.test_empty_tensor""",
    "memory/test_memory.py::test_empty_cache_releases_memory_to_the_driver": """
        memory.test_empty_cache_operation""",
    "memory/test_memory.py::test_empty_host_cache_releases_pinned_memory": """
        accelerator.test_empty_host_cache""",
}

_QUANTIZED = (
    "the chip refuses quantized tensors (test_refused_layouts.py): their storage type belongs to a backend, and "
    "PyTorch 2.13 declares them deprecated"
)
_LATER = "of a later version than the supported 2.13, in which {}"
_OVERRIDEABLE = (
    "the chip's choice is that of the backend that it delegates to, bit-equal in both directions "
    "(test_attention.py); the overrideable kernel, on request, is tested in ops/test_sdpa.py"
)

_RAW = "of CUDA's cudaGraph_t, which another library reads; debug_dump() shows the captured calls"
_RECLAIM = (
    "of an option of CUDA's allocator (off by default); here memory that another stream of a capture used is "
    "reused after the capture"
)

# file.test -> reason for not having a counterpart.
REASONS = {
    "cuda_graphs.test_cuda_graph_raw_graph": _RAW,
    "cuda_graphs.test_cuda_graph_raw_graph_exec": _RAW,
    "cuda_graphs.test_graph_capture_reclaim_2_streams": _RECLAIM,
    "cuda_graphs.test_graph_capture_reclaim_4_streams": _RECLAIM,
    **{
        f"accelerator.{name}": _LATER.format("a batch that pins itself is not given the device")
        for name in ("test_custom_pin_memory_device_argument", "test_custom_pin_memory_device_varargs")
    },
    "storage.test_copy_backend_meta": _LATER.format("metadata is not copied between tensors"),
    **{
        name: _LATER.format("no fake tensor carries metadata of a backend")
        for name in (
            "compile.test_backend_metadata_propagation",
            "storage.test_fake_tensor_metadata_preservation",
            "storage.test_fake_tensor_metadata_preservation_functional",
        )
    },
    "compile.test_backend_in_list": "the reference backend names a compiler of its own after the device; the chip "
    "is compiled by PyTorch's default backend, which test_compile.py uses",
    "cpp.ForBlobSetterAttachesMeta": "of PyTorch's at::for_blob, not of a device",
    "cpp.SetterMatchesPostHoc": "of PyTorch's at::for_blob, not of a device",
    **{
        f"cpp.{name}": "of C++ classes of the reference backend's profiler; tests/test_profiler*.py test the "
        "chip's by what PyTorch shows"
        for name in """Name AvailableActivities ConfigureReturnsNonNullSession AsyncConfigureReturnsNonNullSession
        StartStopTogglesTracerEnabled Singleton EnableDisable CorrelationPushPop RecordAndFlush""".split()
    },
    "ops.test_fused_sdp_choice_privateuseone": _OVERRIDEABLE,
    "ops.test_fused_sdp_choice_with_mask": _OVERRIDEABLE,
    "ops.test_scaled_dot_product_fused_attention_overrideable_backward": _OVERRIDEABLE,
    "ops.test_quantize": _QUANTIZED,
    "ops.test_quantize_per_tensor_different_scales": _QUANTIZED,
    "ops.test_quantize_per_tensor_quint8": _QUANTIZED,
    "ops.test_dequantize": _QUANTIZED,
    "open_device_registration.test_open_device_quantized": _QUANTIZED,
    "open_device_registration.test_open_device_named_tensor": "PyTorch 2.13 has no named tensors",
    "python_backend.test_backend_simple": "of a backend written in Python around NumPy arrays, which takes the "
    "place of the chip in its process",
    "device_type.test_conditional_skip_privateuse1": "shows how a test is skipped; it runs nothing",
}

GRAPHS_PAGE = ROOT / "docs" / "results" / "cuda-graphs.md"


def graphs_page() -> str:
    """Return the page of the graph tests: each upstream test, and its outcome or the reason why there is none."""
    names = UPSTREAM["cuda_graphs"].split()
    reasons = {name: REASONS.get(f"cuda_graphs.{name}", "") for name in names}
    passed = sum(not reason for reason in reasons.values())
    rows = [f"| `{name}` | {reason or 'passes'} |" for name, reason in reasons.items()]
    return "\n".join(
        [
            "# PyTorch's tests of CUDA graphs",
            "",
            "Made by `python -m tests.privateuse1.inventory`. PyTorch's tests of graphs (`test/test_cuda.py`),",
            f"restated for the chip in `packages/isthmus/tests/privateuse1/test_graph*.py`: {passed} of {len(names)} "
            "pass.",
            "",
            "| test | outcome |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    GRAPHS_PAGE.write_text(graphs_page())
    GRAPHS_PAGE.chmod(0o640)
