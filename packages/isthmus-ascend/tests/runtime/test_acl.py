"""The module acl, which is pyACL on the reference runtime, as public programs call it."""

import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from isthmus_ascend.environment import PYTHON

HOST_TO_DEVICE, DEVICE_TO_HOST, FLOAT32_OF_NUMPY = 1, 2, 11


@pytest.fixture(scope="module")
def acl() -> Iterator[ModuleType]:
    sys.path.insert(0, str(PYTHON))
    try:
        import acl

        acl.init()
        assert acl.rt.set_device(0) == 0
        yield acl
    finally:
        sys.path.remove(str(PYTHON))


def test_devices_are_described(acl: ModuleType) -> None:
    count, ret = acl.rt.get_device_count()
    assert count >= 1 and ret == 0
    assert acl.get_soc_name().startswith("Ascend")
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.get_run_mode() == (1, 0)
    free, total, ret = acl.rt.get_mem_info(1)
    assert 0 < free <= total and ret == 0
    rates, ret = acl.rt.get_device_utilization_rate(0)
    assert 0 <= rates["cube_utilization"] <= 100 and ret == 0


def test_memory_is_copied_to_a_device_and_back(acl: ModuleType) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    on_device, ret = acl.rt.malloc(values.nbytes, 0)
    on_host, host_ret = acl.rt.malloc_host(values.nbytes)
    assert (ret, host_ret) == (0, 0)
    size, source = values.nbytes, acl.util.numpy_to_ptr(values)
    assert acl.rt.memcpy(on_device, size, source, size, HOST_TO_DEVICE) == 0
    assert acl.rt.memcpy(on_host, size, on_device, size, DEVICE_TO_HOST) == 0
    assert acl.util.ptr_to_bytes(on_host, size) == values.tobytes()
    copied = acl.util.ptr_to_numpy(on_host, (2, 3), FLOAT32_OF_NUMPY)
    np.testing.assert_array_equal(copied, values)
    assert acl.rt.memcpy(on_device, size - 1, source, size, HOST_TO_DEVICE) == 107000
    assert "24 bytes do not fit into the 23" in acl.get_recent_err_msg()
    assert (acl.rt.free(on_device), acl.rt.free_host(on_host)) == (0, 0)


def test_an_address_is_an_integer(acl: ModuleType) -> None:
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        acl.rt.memcpy(0, 4, b"data", 4, HOST_TO_DEVICE)
    with pytest.raises(TypeError, match="aclrtMemcpy takes 5 arguments"):
        acl.rt.memcpy(0, 4)


def test_events_time_a_stream(acl: ModuleType) -> None:
    stream, ret = acl.rt.create_stream()
    (start, _), (end, _) = acl.rt.create_event(), acl.rt.create_event()
    assert (ret, acl.rt.record_event(start, stream), acl.rt.record_event(end, stream)) == (0, 0, 0)
    assert acl.rt.synchronize_event(end) == 0
    milliseconds, ret = acl.rt.event_elapsed_time(start, end)
    assert milliseconds >= 0 and ret == 0
    assert acl.rt.query_event_status(end) == (1, 0)
    assert [acl.rt.destroy_event(each) for each in (start, end)] == [0, 0]
    assert acl.rt.destroy_stream(stream) == 0


def test_a_subscribed_thread_runs_callbacks(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    called, ended = [], threading.Event()

    def serve(arguments: list[int]) -> None:
        while not ended.is_set():
            acl.rt.process_report(arguments[0])

    thread, ret = acl.util.start_thread(serve, [20])
    assert (ret, acl.rt.subscribe_report(thread, stream)) == (0, 0)
    assert acl.rt.launch_callback(called.append, {"batch": 3}, 1, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert called == [{"batch": 3}]
    assert acl.rt.unsubscribe_report(thread, stream) == 0
    ended.set()
    assert (acl.util.stop_thread(thread), acl.rt.destroy_stream(stream)) == (0, 0)
    assert acl.rt.launch_callback(called.append, 1, 1, stream) == 107017


def test_descriptions_have_sizes(acl: ModuleType) -> None:
    description = acl.create_tensor_desc(27, [4, 5], 2)  # bfloat16
    assert acl.get_tensor_desc_num_dims(description) == 2
    assert acl.get_tensor_desc_dim_v2(description, 1) == (5, 0)
    assert acl.get_tensor_desc_size(description) == 40
    acl.destroy_tensor_desc(description)
    buffer = acl.create_data_buffer(4096, 64)
    assert (acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size(buffer)) == (4096, 64)
    assert (acl.destroy_data_buffer(buffer), acl.destroy_data_buffer(buffer)) == (0, 107017)


def test_attributes_are_set(acl: ModuleType) -> None:
    attributes = acl.op.create_attr()
    assert acl.op.set_attr_bool(attributes, "transpose", True) == 0
    assert acl.op.set_attr_float(attributes, "epsilon", 1e-5) == 0
    assert acl.op.set_attr_list_int(attributes, "axes", [0, 1]) == 0
    acl.op.destroy_attr(attributes)
    assert acl.op.set_attr_int(attributes, "axis", 0) == 107017


def test_offline_models_are_refused_in_one_line(acl: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    assert acl.mdl.load_from_file("/no/such.om") == (0, 100003)
    assert acl.mdl.load_from_file(__file__) == (0, 200006)
    assert acl.op.execute_v2("Cast", [], [], [], [], 0, 0) == 100024
    missing, unsupported, operator = capfd.readouterr().err.splitlines()
    assert missing == "isthmus: acl.mdl.load_from_file: no such file: /no/such.om (100003)"
    assert "offline models are not supported" in unsupported and operator.endswith("(100024)")
    assert "no offline model of operator Cast is loaded" in acl.get_recent_err_msg()


def test_missing_functions_are_named(acl: ModuleType) -> None:
    for module, name in ((acl, "media"), (acl.rt, "create_notify")):
        with pytest.raises(AttributeError, match=rf"acl(\.rt)?\.{name}: not in pyACL of the reference"):
            getattr(module, name)
    assert "bytes_to_ptr" in dir(acl.util)  # programs ask so which functions there are
