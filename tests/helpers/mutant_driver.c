/* The host chip with one function broken: MUTANT is the number of the defect, NAMES lists them. */
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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
