/* The host chip with one function broken by the statements EDIT. */
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static isthmus_driver table;
static const isthmus_driver* host;

/* A defect is a block: `DEFECT(name, function) { ... }` replaces the function of the table. */
#define DEFECT(name, function) static isthmus_status name PARAMETERS_##function
/* Those that change something before the call, or after one that succeeds. */
#define BEFORE(name, function, ...)             \
  DEFECT(name, function) {                      \
    __VA_ARGS__;                                \
    return host->function ARGUMENTS_##function; \
  }
#define AFTER(name, function, ...)                                     \
  DEFECT(name, function) {                                             \
    const isthmus_status status = host->function ARGUMENTS_##function; \
    if (status == ISTHMUS_OK) {                                        \
      __VA_ARGS__;                                                     \
    }                                                                  \
    return status;                                                     \
  }

#define PARAMETERS_copy (void* to, const void* from, size_t bytes, isthmus_copy_kind kind)
#define PARAMETERS_copy_async \
  (void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream stream)
#define PARAMETERS_copy_peer_async \
  (void* to, int32_t to_device, const void* from, int32_t from_device, size_t bytes, isthmus_stream stream)
#define PARAMETERS_set_async (void* pointer, uint8_t value, size_t bytes, isthmus_stream stream)
#define PARAMETERS_memory_free (void* pointer)
#define PARAMETERS_device_memory (uint64_t* free_bytes, uint64_t* total_bytes)
#define PARAMETERS_pointer_attributes (const void* pointer, isthmus_pointer_attributes* attributes)
#define PARAMETERS_memory_allocate (size_t bytes, void** pointer)
#define PARAMETERS_host_free (void* pointer)
#define PARAMETERS_host_allocate (size_t bytes, void** pointer)
#define PARAMETERS_device_set (int32_t device)
#define PARAMETERS_device_properties (int32_t device, isthmus_device_properties* properties)
#define PARAMETERS_stream_create (int32_t priority, isthmus_stream* stream)
#define PARAMETERS_stream_query (isthmus_stream stream)
#define PARAMETERS_stream_synchronize (isthmus_stream stream)
#define PARAMETERS_device_synchronize (void)
#define PARAMETERS_initialize (void)
#define PARAMETERS_stream_wait_event (isthmus_stream stream, isthmus_event event)
#define PARAMETERS_event_record (isthmus_event event, isthmus_stream stream)
#define PARAMETERS_event_query (isthmus_event event)
#define PARAMETERS_event_synchronize (isthmus_event event)
#define PARAMETERS_event_elapsed (isthmus_event start, isthmus_event end, double* milliseconds)
#define PARAMETERS_host_window (int32_t device, isthmus_host_window* window)
#define PARAMETERS_stream_priority_range (int32_t* lowest, int32_t* highest)
#define PARAMETERS_stream_host_function \
  (isthmus_stream stream, isthmus_host_function function, void* user_data)
#define PARAMETERS_all_reduce                                                                               \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor, \
   isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_reduce                                                                                   \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor, \
   int32_t root, isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_broadcast \
  (void* buffer, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_reduce_scatter                                                                           \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op, const void* factor, \
   isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_send                                                                  \
  (const void* from, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm, \
   isthmus_stream stream)
#define PARAMETERS_all_gather \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_comm_create \
  (const isthmus_unique_id* id, const isthmus_comm_options* options, isthmus_comm* comm)
#define PARAMETERS_comm_error (isthmus_comm comm)
#define PARAMETERS_comm_split \
  (isthmus_comm comm, int32_t color, int32_t key, const isthmus_comm_options* options, isthmus_comm* out)
#define PARAMETERS_comm_reachable (const isthmus_unique_id* id)
#define PARAMETERS_gather                                                                          \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm, \
   isthmus_stream stream)
#define PARAMETERS_scatter                                                                         \
  (void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm, \
   isthmus_stream stream)
#define PARAMETERS_all_to_all_v                                                                              \
  (void* to, const size_t* to_counts, const size_t* to_offsets, const void* from, const size_t* from_counts, \
   const size_t* from_offsets, isthmus_dtype dtype, isthmus_comm comm, isthmus_stream stream)
#define PARAMETERS_activity_start (isthmus_activity_callback callback, void* user_data)
#define PARAMETERS_activity_push_correlation (uint64_t correlation)
#define PARAMETERS_memory_import (const isthmus_ipc_handle* handle, void** pointer)
#define PARAMETERS_event_import (const isthmus_ipc_handle* handle, isthmus_event* event)
#define PARAMETERS_virtual_destroy (isthmus_memory_handle handle)
#define PARAMETERS_virtual_unmap (void* pointer, size_t bytes)
#define PARAMETERS_telemetry (int32_t device, isthmus_telemetry* telemetry)
#define PARAMETERS_graph_launch (isthmus_graph graph, isthmus_stream stream)
#define PARAMETERS_graph_end (isthmus_stream stream, isthmus_graph * graph)
#define PARAMETERS_graph_capturing (isthmus_stream stream, uint64_t* id)

#define ARGUMENTS_copy (to, from, bytes, kind)
#define ARGUMENTS_copy_async (to, from, bytes, kind, stream)
#define ARGUMENTS_device_memory (free_bytes, total_bytes)
#define ARGUMENTS_pointer_attributes (pointer, attributes)
#define ARGUMENTS_memory_allocate (bytes, pointer)
#define ARGUMENTS_device_set (device)
#define ARGUMENTS_device_properties (device, properties)
#define ARGUMENTS_initialize ()
#define ARGUMENTS_event_elapsed (start, end, milliseconds)
#define ARGUMENTS_host_window (device, window)
#define ARGUMENTS_all_reduce (to, from, count, dtype, op, factor, comm, stream)
#define ARGUMENTS_reduce (to, from, count, dtype, op, factor, root, comm, stream)
#define ARGUMENTS_reduce_scatter (to, from, count, dtype, op, factor, comm, stream)
#define ARGUMENTS_send (from, count, dtype, peer, comm, stream)
#define ARGUMENTS_virtual_unmap (pointer, bytes)
#define ARGUMENTS_graph_launch (graph, stream)

DEFECT(copy_short, copy) { return host->copy(to, from, bytes > 64 ? bytes - 1 : bytes, kind); }
DEFECT(copy_swapped, copy) {
  if (kind == ISTHMUS_DEVICE_TO_DEVICE) return host->copy((void*)from, to, bytes, kind);
  return host->copy(to, from, bytes, kind);
}
BEFORE(copy_waits, copy, host->stream_synchronize(0))
BEFORE(copy_any_kind, copy,
       if (kind != ISTHMUS_DEVICE_TO_HOST && kind != ISTHMUS_DEVICE_TO_DEVICE) kind = ISTHMUS_HOST_TO_DEVICE)
DEFECT(copy_async_at_once, copy_async) { return host->copy(to, from, bytes, kind); }
DEFECT(copy_async_default_stream, copy_async) { return host->copy_async(to, from, bytes, kind, 0); }
DEFECT(copy_async_blocks, copy_async) {
  const isthmus_status status = host->copy_async(to, from, bytes, kind, stream);
  return status == ISTHMUS_OK ? host->stream_synchronize(stream) : status;
}
/* Copies of one kind run on a stream of their own, after the work so far but not before later work. */
static isthmus_stream side;
static void nap(void* unused) { usleep(20000); }
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
DEFECT(copy_in_late, copy_async) { return copy_late(ISTHMUS_HOST_TO_DEVICE, to, from, bytes, kind, stream); }
DEFECT(copy_out_late, copy_async) { return copy_late(ISTHMUS_DEVICE_TO_HOST, to, from, bytes, kind, stream); }
DEFECT(copy_within_late, copy_async) {
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
DEFECT(pageable_source_read_late, copy_async) {
  return copy_when_reached(ISTHMUS_HOST_TO_DEVICE, to, from, bytes, kind, stream);
}
DEFECT(pageable_target_written_late, copy_async) {
  return copy_when_reached(ISTHMUS_DEVICE_TO_HOST, to, from, bytes, kind, stream);
}
DEFECT(copy_peer_at_once, copy_peer_async) {
  void* through = malloc(bytes);
  host->copy(through, from, bytes, ISTHMUS_DEVICE_TO_HOST);
  const isthmus_status status = host->copy(to, through, bytes, ISTHMUS_HOST_TO_DEVICE);
  free(through);
  return status;
}
static size_t at_most_64_mib(size_t bytes) { return bytes < ((size_t)64 << 20) ? bytes : (size_t)64 << 20; }
DEFECT(copy_64_mib, copy) { return host->copy(to, from, at_most_64_mib(bytes), kind); }
BEFORE(copy_async_64_mib, copy_async, bytes = at_most_64_mib(bytes))
BEFORE(copy_async_from_aligned, copy_async,
       if (kind == ISTHMUS_DEVICE_TO_DEVICE) from = (const char*)from - (size_t)from % 16)
DEFECT(copy_async_refuses_nothing, copy_async) {
  return bytes ? host->copy_async(to, from, bytes, kind, stream) : ISTHMUS_INVALID_ARGUMENT;
}
DEFECT(fill_refuses_nothing, set_async) {
  return bytes ? host->set_async(pointer, value, bytes, stream) : ISTHMUS_INVALID_ARGUMENT;
}
DEFECT(free_changes_the_device, memory_free) {
  const isthmus_status status = host->memory_free(pointer);
  host->device_set(0);
  return status;
}
AFTER(total_is_free, device_memory, *total_bytes = *free_bytes)
AFTER(attributes_of_first_device, pointer_attributes, if (attributes->device > 0) attributes->device = 0)
DEFECT(fill_64_mib, set_async) { return host->set_async(pointer, value, at_most_64_mib(bytes), stream); }
DEFECT(fill_whole_words, set_async) { return host->set_async(pointer, value, bytes & ~(size_t)3, stream); }
DEFECT(fill_default_stream, set_async) { return host->set_async(pointer, value, bytes, 0); }
DEFECT(allocate_unaligned, memory_allocate) {
  const isthmus_status status = host->memory_allocate(bytes + 16, pointer);
  if (status == ISTHMUS_OK) *pointer = (char*)*pointer + 16;
  return status;
}
static isthmus_status free_unaligned(void* pointer) {
  return host->memory_free(pointer ? (char*)pointer - 16 : pointer);
}
BEFORE(allocate_clears_output, memory_allocate, *pointer = 0)
DEFECT(allocate_nothing, memory_allocate) { return host->memory_allocate(bytes ? bytes : 1, pointer); }
DEFECT(allocate_wrong_status, memory_allocate) {
  const isthmus_status status = host->memory_allocate(bytes, pointer);
  return status == ISTHMUS_OUT_OF_MEMORY ? ISTHMUS_INTERNAL : status;
}
DEFECT(free_leaks, memory_free) { return ISTHMUS_OK; }
DEFECT(free_refuses_null, memory_free) {
  return pointer ? host->memory_free(pointer) : ISTHMUS_INVALID_ARGUMENT;
}
DEFECT(free_accepts_anything, memory_free) {
  host->memory_free(pointer);
  return ISTHMUS_OK;
}
DEFECT(free_rounds_down, memory_free) {
  const isthmus_status status = host->memory_free(pointer);
  return status == ISTHMUS_OK ? status : host->memory_free((void*)((uintptr_t)pointer & ~(uintptr_t)0xfffff));
}
DEFECT(free_with_wrong_status, memory_free) {
  return host->memory_free(pointer) == ISTHMUS_OK ? ISTHMUS_OK : ISTHMUS_INTERNAL;
}
DEFECT(host_free_accepts_anything, host_free) {
  host->host_free(pointer);
  return ISTHMUS_OK;
}
DEFECT(pinned_unaligned, host_allocate) {
  const isthmus_status status = host->host_allocate(bytes + 8, pointer);
  if (status == ISTHMUS_OK) *pointer = (char*)*pointer + 8;
  return status;
}
static isthmus_status free_pinned_unaligned(void* pointer) { return host->host_free((char*)pointer - 8); }
AFTER(attributes_of_starts, pointer_attributes,
      if ((uintptr_t)pointer % 512 != 0 &&
          attributes->kind == ISTHMUS_MEMORY_DEVICE) * attributes = (isthmus_pointer_attributes){
          ISTHMUS_MEMORY_UNKNOWN, -1})
AFTER(attributes_without_pinned, pointer_attributes,
      if (attributes->kind == ISTHMUS_MEMORY_PINNED) attributes->kind = ISTHMUS_MEMORY_UNKNOWN)
DEFECT(attributes_past_the_end, pointer_attributes) {
  const isthmus_status status = host->pointer_attributes(pointer, attributes);
  if (status != ISTHMUS_OK || attributes->kind != ISTHMUS_MEMORY_UNKNOWN || pointer == 0) return status;
  return host->pointer_attributes((const char*)pointer - 1, attributes);
}
static const void* last_freed;
static isthmus_status free_noted(void* pointer) {
  last_freed = pointer;
  return host->memory_free(pointer);
}
AFTER(attributes_of_freed, pointer_attributes,
      if (pointer == last_freed &&
          attributes->kind == ISTHMUS_MEMORY_UNKNOWN) * attributes = (isthmus_pointer_attributes){
          ISTHMUS_MEMORY_DEVICE, 0})
static int32_t current;
AFTER(device_of_process, device_set, current = device)
static isthmus_status get_device_of_process(int32_t* device) {
  *device = current;
  return ISTHMUS_OK;
}
DEFECT(device_clamped, device_set) { return host->device_set(device < 0 || device > 1 ? 0 : device); }
DEFECT(device_lost_on_failure, device_set) {
  int32_t count;
  host->device_count(&count);
  if (device < 0 || device >= count) host->device_set(0);
  return host->device_set(device);
}
DEFECT(properties_of_first_device, device_properties) {
  int32_t count;
  host->device_count(&count);
  return host->device_properties(device >= 0 && device < count ? 0 : device, properties);
}
AFTER(alignment_overstated, device_properties, properties->memory_alignment = 4096)
BEFORE(properties_cleared, device_properties, memset(properties, 0, sizeof *properties))
AFTER(memory_always_free, device_memory, *free_bytes = *total_bytes)
DEFECT(memory_of_first_device, device_memory) {
  int32_t device;
  host->device_get(&device);
  host->device_set(0);
  const isthmus_status status = host->device_memory(free_bytes, total_bytes);
  host->device_set(device);
  return status;
}
AFTER(total_doubled, device_properties, properties->total_memory *= 2)
AFTER(memory_doubled, device_memory, *free_bytes += *total_bytes; *total_bytes *= 2)
static char message[512];
DEFECT(message_of_process, device_set) {
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
DEFECT(one_stream, stream_create) { return host->stream_default(stream); }
static isthmus_status destroy_nothing(isthmus_stream stream) { return ISTHMUS_OK; }
DEFECT(stream_always_idle, stream_query) { return ISTHMUS_OK; }
DEFECT(synchronize_nothing, stream_synchronize) { return ISTHMUS_OK; }
DEFECT(synchronize_default_stream, device_synchronize) { return host->stream_synchronize(0); }
/* One count of all streams: of work that has not yet been taken off its queue. */
static int queued;
static void take_off(void* unused) { __sync_fetch_and_sub(&queued, 1); }
static isthmus_status queue_host_function(isthmus_stream stream, isthmus_host_function function,
                                          void* user_data) {
  __sync_fetch_and_add(&queued, 1);
  host->stream_host_function(stream, take_off, 0);
  return host->stream_host_function(stream, function, user_data);
}
DEFECT(idle_while_the_last_runs, stream_query) {
  const isthmus_status status = host->stream_query(stream);
  return status == ISTHMUS_NOT_READY && queued == 0 ? ISTHMUS_OK : status;
}
static isthmus_stream of_first_device(isthmus_stream stream) {
  static isthmus_stream first;
  int32_t device;
  if (stream != 0 || first != 0) return stream != 0 ? stream : first;
  host->device_get(&device);
  host->device_set(0);
  host->stream_default(&first);
  host->device_set(device);
  return first;
}
static isthmus_status host_function_on_first_device(isthmus_stream stream, isthmus_host_function function,
                                                    void* user_data) {
  return host->stream_host_function(of_first_device(stream), function, user_data);
}
DEFECT(default_stream_of_first_device, stream_query) { return host->stream_query(of_first_device(stream)); }
static __thread isthmus_stream own[64];
static __thread int created;
static isthmus_status create_noted(int32_t priority, isthmus_stream* stream) {
  const isthmus_status status = host->stream_create(priority, stream);
  own[created++ % 64] = *stream;
  return status;
}
static isthmus_status destroy_noted(isthmus_stream stream) {
  for (int i = 0; i < 64; ++i) own[i] = own[i] == stream ? 0 : own[i];
  host->stream_synchronize(stream);
  return host->stream_destroy(stream);
}
DEFECT(synchronize_own_streams, device_synchronize) {
  for (int i = 0; i < 64; ++i) host->stream_synchronize(own[i]);
  return host->stream_synchronize(0);
}
BEFORE(initialize_resets_device, initialize, host->device_set(0))
DEFECT(wait_for_nothing, stream_wait_event) { return ISTHMUS_OK; }
DEFECT(wait_in_the_host, stream_wait_event) { return host->event_synchronize(event); }
static void wait_now(void* event) { host->event_synchronize(event); }
DEFECT(wait_for_a_later_record, stream_wait_event) {
  return host->stream_host_function(stream, wait_now, event);
}
static isthmus_status keep_event(isthmus_event event) { return ISTHMUS_OK; }
DEFECT(record_default_stream, event_record) { return host->event_record(event, 0); }
DEFECT(event_always_done, event_query) { return ISTHMUS_OK; }
DEFECT(event_synchronize_nothing, event_synchronize) { return ISTHMUS_OK; }
AFTER(elapsed_in_seconds, event_elapsed, *milliseconds /= 1000)
AFTER(elapsed_in_microseconds, event_elapsed, *milliseconds *= 1000)
AFTER(elapsed_in_whole_milliseconds, event_elapsed, *milliseconds = (double)(long)(*milliseconds + 0.999))
AFTER(elapsed_without_sign, event_elapsed, if (*milliseconds < 0) * milliseconds = -*milliseconds)
AFTER(window_shifted, host_window, window->host_base = (char*)window->host_base + 512)
DEFECT(priorities_reversed, stream_priority_range) {
  *lowest = -1;
  *highest = 1;
  return ISTHMUS_OK;
}
DEFECT(host_function_at_once, stream_host_function) {
  function(user_data);
  return ISTHMUS_OK;
}
#include "mutant_groups.h"

__attribute__((visibility("default"))) const isthmus_driver* isthmus_driver_get(uint32_t version) {
  void* library = dlopen(HOST, RTLD_NOW | RTLD_LOCAL);
  host = ((isthmus_driver_get_fn)dlsym(library, ISTHMUS_DRIVER_SYMBOL))(version);
  memcpy(&table, host, host->struct_size);
  EDIT return &table;
}
