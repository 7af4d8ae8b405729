/* The host chip with one function broken: MUTANT is the number of the defect, NAMES lists them. */
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static isthmus_driver table;
static const isthmus_driver* host;

/* A defect is a block: `DEFECT(n, function, parameters) { ... }` replaces the function in mutant n. */
#define DEFECT(name, function, parameters) static isthmus_status name parameters

DEFECT(copy_short, copy, (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)) {
  return host->copy(to, from, bytes > 64 ? bytes - 1 : bytes, kind);
}
DEFECT(copy_swapped, copy, (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)) {
  if (kind == ISTHMUS_DEVICE_TO_DEVICE) return host->copy((void*)from, to, bytes, kind);
  return host->copy(to, from, bytes, kind);
}
DEFECT(copy_waits, copy, (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)) {
  host->stream_synchronize(0);
  return host->copy(to, from, bytes, kind);
}
DEFECT(copy_any_kind, copy, (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)) {
  const int known = kind == ISTHMUS_DEVICE_TO_HOST || kind == ISTHMUS_DEVICE_TO_DEVICE;
  return host->copy(to, from, bytes, known ? kind : ISTHMUS_HOST_TO_DEVICE);
}
DEFECT(copy_async_at_once, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  (void)stream;
  return host->copy(to, from, bytes, kind);
}
DEFECT(copy_async_default_stream, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  (void)stream;
  return host->copy_async(to, from, bytes, kind, 0);
}
DEFECT(copy_async_blocks, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  const isthmus_status status = host->copy_async(to, from, bytes, kind, stream);
  return status == ISTHMUS_OK ? host->stream_synchronize(stream) : status;
}
/* Copies of one kind run on a stream of their own, after the work so far but not before later work. */
static isthmus_stream side;
static void nap(void* unused) {
  (void)unused;
  usleep(20000);
}
static isthmus_status copy_late(isthmus_copy_kind late, void* to, const void* from, size_t bytes,
                                isthmus_copy_kind kind, isthmus_stream stream) {
  isthmus_event event;
  if (kind != late) return host->copy_async(to, from, bytes, kind, stream);
  if (side == 0) host->stream_create(0, &side);
  host->event_create(0, &event);
  host->event_record(event, stream);
  host->stream_wait_event(side, event);
  host->event_destroy(event);
  host->stream_host_function(side, nap, 0);
  return host->copy_async(to, from, bytes, kind, side);
}
static isthmus_status synchronize_side_too(isthmus_stream stream) {
  if (side != 0) host->stream_synchronize(side);
  return host->stream_synchronize(stream);
}
DEFECT(copy_in_late, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return copy_late(ISTHMUS_HOST_TO_DEVICE, to, from, bytes, kind, stream);
}
DEFECT(copy_out_late, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return copy_late(ISTHMUS_DEVICE_TO_HOST, to, from, bytes, kind, stream);
}
DEFECT(copy_within_late, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return copy_late(ISTHMUS_DEVICE_TO_DEVICE, to, from, bytes, kind, stream);
}
/* Pageable memory is used when the stream reaches the copy. */
struct pending {
  void* to;
  const void* from;
  size_t bytes;
};
static void copy_pending(void* argument) {
  struct pending* copy = argument;
  memcpy(copy->to, copy->from, copy->bytes);
  free(copy);
}
static isthmus_status copy_when_reached(isthmus_copy_kind reached, void* to, const void* from, size_t bytes,
                                        isthmus_copy_kind kind, isthmus_stream stream) {
  isthmus_pointer_attributes attributes;
  host->pointer_attributes(kind == ISTHMUS_HOST_TO_DEVICE ? from : to, &attributes);
  if (kind != reached || attributes.kind != ISTHMUS_MEMORY_UNKNOWN) {
    return host->copy_async(to, from, bytes, kind, stream);
  }
  struct pending* copy = malloc(sizeof *copy);
  *copy = (struct pending){to, from, bytes};
  return host->stream_host_function(stream, copy_pending, copy);
}
DEFECT(pageable_source_read_late, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return copy_when_reached(ISTHMUS_HOST_TO_DEVICE, to, from, bytes, kind, stream);
}
DEFECT(pageable_target_written_late, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return copy_when_reached(ISTHMUS_DEVICE_TO_HOST, to, from, bytes, kind, stream);
}
static size_t at_most_64_mib(size_t bytes) {
  return bytes < ((size_t)64 << 20) ? bytes : (size_t)64 << 20;
}
DEFECT(copy_64_mib, copy, (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)) {
  return host->copy(to, from, at_most_64_mib(bytes), kind);
}
DEFECT(copy_async_64_mib, copy_async,
       (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)) {
  return host->copy_async(to, from, at_most_64_mib(bytes), kind, stream);
}
DEFECT(fill_64_mib, set_async, (void* pointer, uint8_t value, size_t bytes, isthmus_stream stream)) {
  return host->set_async(pointer, value, at_most_64_mib(bytes), stream);
}
DEFECT(fill_whole_words, set_async, (void* pointer, uint8_t value, size_t bytes, isthmus_stream stream)) {
  return host->set_async(pointer, value, bytes & ~(size_t)3, stream);
}
DEFECT(fill_default_stream, set_async, (void* pointer, uint8_t value, size_t bytes, isthmus_stream stream)) {
  (void)stream;
  return host->set_async(pointer, value, bytes, 0);
}
DEFECT(allocate_unaligned, memory_allocate, (size_t bytes, void** pointer)) {
  const isthmus_status status = host->memory_allocate(bytes + 16, pointer);
  if (status == ISTHMUS_OK) *pointer = (char*)*pointer + 16;
  return status;
}
static isthmus_status free_unaligned(void* pointer) {
  return host->memory_free(pointer ? (char*)pointer - 16 : pointer);
}
DEFECT(allocate_clears_output, memory_allocate, (size_t bytes, void** pointer)) {
  *pointer = 0;
  return host->memory_allocate(bytes, pointer);
}
DEFECT(allocate_nothing, memory_allocate, (size_t bytes, void** pointer)) {
  return host->memory_allocate(bytes ? bytes : 1, pointer);
}
DEFECT(allocate_wrong_status, memory_allocate, (size_t bytes, void** pointer)) {
  const isthmus_status status = host->memory_allocate(bytes, pointer);
  return status == ISTHMUS_OUT_OF_MEMORY ? ISTHMUS_INTERNAL : status;
}
DEFECT(free_leaks, memory_free, (void* pointer)) {
  (void)pointer;
  return ISTHMUS_OK;
}
DEFECT(free_refuses_null, memory_free, (void* pointer)) {
  return pointer ? host->memory_free(pointer) : ISTHMUS_INVALID_ARGUMENT;
}
DEFECT(free_accepts_anything, memory_free, (void* pointer)) {
  host->memory_free(pointer);
  return ISTHMUS_OK;
}
DEFECT(free_rounds_down, memory_free, (void* pointer)) {
  const isthmus_status status = host->memory_free(pointer);
  return status == ISTHMUS_OK ? status : host->memory_free((void*)((uintptr_t)pointer & ~(uintptr_t)0xfffff));
}
DEFECT(free_with_wrong_status, memory_free, (void* pointer)) {
  return host->memory_free(pointer) == ISTHMUS_OK ? ISTHMUS_OK : ISTHMUS_INTERNAL;
}
DEFECT(host_free_accepts_anything, host_free, (void* pointer)) {
  host->host_free(pointer);
  return ISTHMUS_OK;
}
DEFECT(pinned_unaligned, host_allocate, (size_t bytes, void** pointer)) {
  const isthmus_status status = host->host_allocate(bytes + 8, pointer);
  if (status == ISTHMUS_OK) *pointer = (char*)*pointer + 8;
  return status;
}
static isthmus_status free_pinned_unaligned(void* pointer) { return host->host_free((char*)pointer - 8); }
DEFECT(attributes_of_starts, pointer_attributes, (const void* pointer, isthmus_pointer_attributes* attributes)) {
  const isthmus_status status = host->pointer_attributes(pointer, attributes);
  if ((uintptr_t)pointer % 512 != 0 && attributes->kind == ISTHMUS_MEMORY_DEVICE) {
    attributes->kind = ISTHMUS_MEMORY_UNKNOWN;
    attributes->device = -1;
  }
  return status;
}
DEFECT(attributes_without_pinned, pointer_attributes,
       (const void* pointer, isthmus_pointer_attributes* attributes)) {
  const isthmus_status status = host->pointer_attributes(pointer, attributes);
  if (attributes->kind == ISTHMUS_MEMORY_PINNED) attributes->kind = ISTHMUS_MEMORY_UNKNOWN;
  return status;
}
static int32_t current;
DEFECT(device_of_process, device_set, (int32_t device)) {
  const isthmus_status status = host->device_set(device);
  if (status == ISTHMUS_OK) current = device;
  return status;
}
static isthmus_status get_device_of_process(int32_t* device) {
  *device = current;
  return ISTHMUS_OK;
}
DEFECT(device_clamped, device_set, (int32_t device)) {
  return host->device_set(device < 0 || device > 1 ? 0 : device);
}
DEFECT(properties_cleared, device_properties, (int32_t device, isthmus_device_properties* properties)) {
  memset(properties, 0, sizeof *properties);
  return host->device_properties(device, properties);
}
DEFECT(memory_always_free, device_memory, (uint64_t* free_bytes, uint64_t* total_bytes)) {
  const isthmus_status status = host->device_memory(free_bytes, total_bytes);
  if (status == ISTHMUS_OK) *free_bytes = *total_bytes;
  return status;
}
DEFECT(memory_of_first_device, device_memory, (uint64_t* free_bytes, uint64_t* total_bytes)) {
  int32_t device;
  host->device_get(&device);
  host->device_set(0);
  const isthmus_status status = host->device_memory(free_bytes, total_bytes);
  host->device_set(device);
  return status;
}
DEFECT(total_doubled, device_properties, (int32_t device, isthmus_device_properties* properties)) {
  const isthmus_status status = host->device_properties(device, properties);
  if (status == ISTHMUS_OK) properties->total_memory *= 2;
  return status;
}
DEFECT(memory_doubled, device_memory, (uint64_t* free_bytes, uint64_t* total_bytes)) {
  const isthmus_status status = host->device_memory(free_bytes, total_bytes);
  if (status == ISTHMUS_OK) {
    *free_bytes += *total_bytes;
    *total_bytes *= 2;
  }
  return status;
}
static char message[512];
DEFECT(message_of_process, device_set, (int32_t device)) {
  const isthmus_status status = host->device_set(device);
  if (status != ISTHMUS_OK) snprintf(message, sizeof message, "%s", host->last_error());
  return status;
}
static isthmus_status allocate_with_message_of_process(size_t bytes, void** pointer) {
  const isthmus_status status = host->memory_allocate(bytes, pointer);
  if (status != ISTHMUS_OK) snprintf(message, sizeof message, "%s", host->last_error());
  return status;
}
static const char* last_message(void) { return message; }
DEFECT(one_stream, stream_create, (int32_t priority, isthmus_stream* stream)) {
  (void)priority;
  return host->stream_default(stream);
}
static isthmus_status destroy_nothing(isthmus_stream stream) {
  (void)stream;
  return ISTHMUS_OK;
}
DEFECT(stream_always_idle, stream_query, (isthmus_stream stream)) {
  (void)stream;
  return ISTHMUS_OK;
}
DEFECT(synchronize_nothing, stream_synchronize, (isthmus_stream stream)) {
  (void)stream;
  return ISTHMUS_OK;
}
DEFECT(synchronize_default_stream, device_synchronize, (void)) { return host->stream_synchronize(0); }
DEFECT(wait_for_nothing, stream_wait_event, (isthmus_stream stream, isthmus_event event)) {
  (void)stream;
  (void)event;
  return ISTHMUS_OK;
}
DEFECT(wait_in_the_host, stream_wait_event, (isthmus_stream stream, isthmus_event event)) {
  (void)stream;
  return host->event_synchronize(event);
}
DEFECT(record_default_stream, event_record, (isthmus_event event, isthmus_stream stream)) {
  (void)stream;
  return host->event_record(event, 0);
}
DEFECT(event_always_done, event_query, (isthmus_event event)) {
  (void)event;
  return ISTHMUS_OK;
}
DEFECT(event_synchronize_nothing, event_synchronize, (isthmus_event event)) {
  (void)event;
  return ISTHMUS_OK;
}
DEFECT(elapsed_in_seconds, event_elapsed, (isthmus_event start, isthmus_event end, double* milliseconds)) {
  const isthmus_status status = host->event_elapsed(start, end, milliseconds);
  if (status == ISTHMUS_OK) *milliseconds /= 1000;
  return status;
}
DEFECT(elapsed_in_microseconds, event_elapsed, (isthmus_event start, isthmus_event end, double* milliseconds)) {
  const isthmus_status status = host->event_elapsed(start, end, milliseconds);
  if (status == ISTHMUS_OK) *milliseconds *= 1000;
  return status;
}
DEFECT(elapsed_in_whole_milliseconds, event_elapsed,
       (isthmus_event start, isthmus_event end, double* milliseconds)) {
  const isthmus_status status = host->event_elapsed(start, end, milliseconds);
  if (status == ISTHMUS_OK) *milliseconds = (double)(long)(*milliseconds + 0.999);
  return status;
}
DEFECT(elapsed_without_sign, event_elapsed, (isthmus_event start, isthmus_event end, double* milliseconds)) {
  const isthmus_status status = host->event_elapsed(start, end, milliseconds);
  if (status == ISTHMUS_OK && *milliseconds < 0) *milliseconds = -*milliseconds;
  return status;
}
DEFECT(window_shifted, host_window, (int32_t device, isthmus_host_window* window)) {
  const isthmus_status status = host->host_window(device, window);
  if (status == ISTHMUS_OK) window->host_base = (char*)window->host_base + 512;
  return status;
}
DEFECT(priorities_reversed, stream_priority_range, (int32_t* lowest, int32_t* highest)) {
  *lowest = -1;
  *highest = 1;
  return ISTHMUS_OK;
}
DEFECT(host_function_at_once, stream_host_function,
       (isthmus_stream stream, isthmus_host_function function, void* user_data)) {
  (void)stream;
  function(user_data);
  return ISTHMUS_OK;
}
DEFECT(telemetry_of_full_size, telemetry, (int32_t device, isthmus_telemetry* telemetry)) {
  isthmus_telemetry full;
  full.struct_size = sizeof full;
  const isthmus_status status = host->telemetry(device, &full);
  if (status == ISTHMUS_OK) memcpy(telemetry, &full, sizeof full);
  return status;
}
DEFECT(destroy_leaks, virtual_destroy, (isthmus_memory_handle handle)) {
  (void)handle;
  return ISTHMUS_OK;
}
/* Collectives. */
DEFECT(all_reduce_always_sums, all_reduce,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        isthmus_comm comm, isthmus_stream stream)) {
  return host->all_reduce(to, from, count, dtype, op == ISTHMUS_PREMUL_SUM ? op : ISTHMUS_SUM, factor, comm, stream);
}
DEFECT(all_reduce_without_factor, all_reduce,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        isthmus_comm comm, isthmus_stream stream)) {
  return host->all_reduce(to, from, count, dtype, op == ISTHMUS_PREMUL_SUM ? ISTHMUS_SUM : op, 0, comm, stream);
}
DEFECT(all_reduce_waits, all_reduce,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        isthmus_comm comm, isthmus_stream stream)) {
  host->stream_synchronize(stream);
  return host->all_reduce(to, from, count, dtype, op, factor, comm, stream);
}
DEFECT(all_reduce_in_thousands, all_reduce,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        isthmus_comm comm, isthmus_stream stream)) {
  return host->all_reduce(to, from, count > 1000 ? count / 1000 * 1000 : count, dtype, op, factor, comm, stream);
}
DEFECT(reduce_on_every_rank, reduce,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        int32_t root, isthmus_comm comm, isthmus_stream stream)) {
  (void)root;
  return host->all_reduce(to, from, count, dtype, op, factor, comm, stream);
}
DEFECT(broadcast_from_zero, broadcast,
       (void* buffer, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm, isthmus_stream stream)) {
  (void)root;
  return host->broadcast(buffer, count, dtype, 0, comm, stream);
}
DEFECT(reduce_scatter_sums, reduce_scatter,
       (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor,
        isthmus_comm comm, isthmus_stream stream)) {
  return host->all_reduce(to, from, count, dtype, op, factor, comm, stream);
}
DEFECT(send_without_last, send,
       (const void* from, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
        isthmus_stream stream)) {
  host->set_async((char*)from + 4 * (count - 1), 0, 4, stream);
  return host->send(from, count, dtype, peer, comm, stream);
}
/* Activity records. */
static isthmus_activity_callback deliver;
static isthmus_activity altered(const isthmus_activity* record, int without_bytes) {
  isthmus_activity other = *record;
  if (without_bytes) {
    other.bytes = 0;
  } else {
    other.end_ns = other.start_ns - 1;
  }
  return other;
}
static void deliver_without_bytes(const isthmus_activity* records, size_t count, void* user_data) {
  for (size_t i = 0; i < count; ++i) {
    const isthmus_activity record = altered(records + i, 1);
    deliver(&record, 1, user_data);
  }
}
static void deliver_ended_early(const isthmus_activity* records, size_t count, void* user_data) {
  for (size_t i = 0; i < count; ++i) {
    const isthmus_activity record = altered(records + i, 0);
    deliver(&record, 1, user_data);
  }
}
DEFECT(records_without_bytes, activity_start, (isthmus_activity_callback callback, void* user_data)) {
  deliver = callback;
  return host->activity_start(deliver_without_bytes, user_data);
}
DEFECT(records_end_early, activity_start, (isthmus_activity_callback callback, void* user_data)) {
  deliver = callback;
  return host->activity_start(deliver_ended_early, user_data);
}
DEFECT(no_records, activity_start, (isthmus_activity_callback callback, void* user_data)) {
  (void)callback;
  (void)user_data;
  return ISTHMUS_OK;
}
static isthmus_status stop_nothing(void) { return ISTHMUS_OK; }
DEFECT(correlation_ignored, activity_push_correlation, (uint64_t correlation)) {
  (void)correlation;
  return ISTHMUS_OK;
}
/* Export and import. */
DEFECT(import_of_a_copy, memory_import, (const isthmus_ipc_handle* handle, void** pointer)) {
  void *shared, *own;
  isthmus_status status = host->memory_import(handle, &shared);
  if (status != ISTHMUS_OK) return status;
  host->memory_allocate((3 << 20) + 5, &own);
  host->copy(own, shared, (3 << 20) + 5, ISTHMUS_DEVICE_TO_DEVICE);
  *pointer = own;
  return ISTHMUS_OK;
}
DEFECT(import_of_a_new_event, event_import, (const isthmus_ipc_handle* handle, isthmus_event* event)) {
  (void)handle;
  return host->event_create(0, event);
}
DEFECT(unmap_forgets, virtual_unmap, (void* pointer, size_t bytes)) {
  host->set_async(pointer, 0, bytes, 0);
  host->stream_synchronize(0);
  return host->virtual_unmap(pointer, bytes);
}

__attribute__((visibility("default"))) const isthmus_driver* isthmus_driver_get(uint32_t version) {
  void* library = dlopen(HOST, RTLD_NOW | RTLD_LOCAL);
  host = ((isthmus_driver_get_fn)dlsym(library, ISTHMUS_DRIVER_SYMBOL))(version);
  memcpy(&table, host, host->struct_size);
  EDIT
  return &table;
}
