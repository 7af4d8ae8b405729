/* Defects of the optional groups of functions; included by mutant_driver.c. */

/* Collectives. */
BEFORE(all_reduce_always_sums, all_reduce, if (op != ISTHMUS_PREMUL_SUM) op = ISTHMUS_SUM)
BEFORE(all_reduce_without_factor, all_reduce, if (op == ISTHMUS_PREMUL_SUM) op = ISTHMUS_SUM; factor = 0)
BEFORE(all_reduce_waits, all_reduce, host->stream_synchronize(stream))
BEFORE(all_reduce_in_thousands, all_reduce, if (count > 1000) count -= count % 1000)
DEFECT(reduce_on_every_rank, reduce) {
  return host->all_reduce(to, from, count, dtype, op, factor, comm, stream);
}
DEFECT(broadcast_from_zero, broadcast) { return host->broadcast(buffer, count, dtype, 0, comm, stream); }
DEFECT(reduce_scatter_sums, reduce_scatter) {
  return host->all_reduce(to, from, count, dtype, op, factor, comm, stream);
}
BEFORE(send_without_last, send, host->set_async((char*)from + 4 * (count - 1), 0, 4, stream))
BEFORE(all_reduce_of_signed_bytes, all_reduce, if (dtype == ISTHMUS_UINT8) dtype = ISTHMUS_INT8)
BEFORE(all_reduce_of_one_half, all_reduce, if (dtype == ISTHMUS_BFLOAT16) dtype = ISTHMUS_FLOAT16)
BEFORE(average_is_a_sum, all_reduce, if (op == ISTHMUS_AVG) op = ISTHMUS_SUM)
BEFORE(reduce_always_sums, reduce, op = ISTHMUS_SUM)
BEFORE(reduce_scatter_always_sums, reduce_scatter, op = ISTHMUS_SUM)
/* In place, the rank's own part is cleared with the rest of the output. */
DEFECT(all_gather_clears_its_input, all_gather) {
  const char *first = to, *own = from;
  if (own >= first && own < first + 8 * count) host->set_async((void*)from, 0, 4 * count, stream);
  return host->all_gather(to, from, count, dtype, comm, stream);
}
DEFECT(timeout_ignored, comm_create) {
  isthmus_comm_options other = *options;
  other.timeout_ms = 0;
  return host->comm_create(id, &other, comm);
}
DEFECT(comm_error_always_ok, comm_error) { return ISTHMUS_OK; }
DEFECT(split_without_key, comm_split) { return host->comm_split(comm, color, 0, options, out); }
DEFECT(split_without_color, comm_split) {
  return host->comm_split(comm, color < 0 ? color : 0, key, options, out);
}
DEFECT(never_reachable, comm_reachable) { return ISTHMUS_UNSUPPORTED; }
DEFECT(gather_to_zero, gather) { return host->gather(to, from, count, dtype, 0, comm, stream); }
DEFECT(scatter_from_zero, scatter) { return host->scatter(to, from, count, dtype, 0, comm, stream); }
DEFECT(exchange_without_offsets, all_to_all_v) {
  const size_t packed_to[2] = {0, to_counts[0]}, packed_from[2] = {0, from_counts[0]};
  return host->all_to_all_v(to, to_counts, packed_to, from, from_counts, packed_from, dtype, comm, stream);
}
/* Activity records. */
static isthmus_activity_callback deliver;
#define RECORDS(name, function, change)                                                        \
  static void deliver_##name(const isthmus_activity* records, size_t count, void* user_data) { \
    for (size_t i = 0; i < count; ++i) {                                                       \
      isthmus_activity record = records[i];                                                    \
      change;                                                                                  \
      deliver(&record, 1, user_data);                                                          \
    }                                                                                          \
  }                                                                                            \
  DEFECT(name, function) {                                                                     \
    deliver = callback;                                                                        \
    return host->activity_start(deliver_##name, user_data);                                    \
  }
RECORDS(records_without_bytes, activity_start, record.bytes = 0)
RECORDS(records_end_early, activity_start, record.end_ns = record.start_ns - 1)
DEFECT(no_records, activity_start) { return ISTHMUS_OK; }
RECORDS(records_of_first_device, activity_start, record.device = 0)
static void deliver_all_but_one(const isthmus_activity* records, size_t count, void* user_data) {
  if (count > 1) deliver(records, count - 1, user_data);
}
DEFECT(last_record_lost, activity_start) {
  deliver = callback;
  return host->activity_start(deliver_all_but_one, user_data);
}
static isthmus_status stop_nothing(void) { return ISTHMUS_OK; }
DEFECT(correlation_ignored, activity_push_correlation) { return ISTHMUS_OK; }
/* Export and import. */
DEFECT(import_of_a_copy, memory_import) {
  void *shared, *own;
  isthmus_status status = host->memory_import(handle, &shared);
  if (status != ISTHMUS_OK) return status;
  host->memory_allocate((3 << 20) + 5, &own);
  host->copy(own, shared, (3 << 20) + 5, ISTHMUS_DEVICE_TO_DEVICE);
  *pointer = own;
  return ISTHMUS_OK;
}
DEFECT(import_of_a_new_event, event_import) { return host->event_create(0, event); }
/* Virtual memory. */
DEFECT(destroy_leaks, virtual_destroy) { return ISTHMUS_OK; }
BEFORE(unmap_forgets, virtual_unmap, host->set_async(pointer, 0, bytes, 0); host->stream_synchronize(0))
/* Telemetry. */
DEFECT(telemetry_of_full_size, telemetry) {
  isthmus_telemetry full;
  full.struct_size = sizeof full;
  const isthmus_status status = host->telemetry(device, &full);
  if (status == ISTHMUS_OK) memcpy(telemetry, &full, sizeof full);
  return status;
}
#define TELEMETRY(name, change)                                                      \
  static isthmus_status name(int32_t device, isthmus_telemetry* telemetry) {         \
    const isthmus_status status = host->telemetry(device, telemetry);                \
    if (status == ISTHMUS_OK && telemetry->struct_size == sizeof *telemetry) change; \
    return status;                                                                   \
  }
TELEMETRY(temperature_in_millidegrees, telemetry->temperature_c = 45000)
TELEMETRY(power_in_milliwatts, telemetry->power_w = 310000)
TELEMETRY(clock_in_hertz, telemetry->clock_mhz = 1.4e9)
TELEMETRY(clock_in_gigahertz, telemetry->clock_mhz = 1.4)
TELEMETRY(counts_are_rates, telemetry->ecc_corrected = 0.5)
TELEMETRY(health_is_failed, telemetry->health = 2)
TELEMETRY(compute_stays_zero, telemetry->compute_utilization = 0)
TELEMETRY(memory_in_percent, telemetry->memory_utilization *= 100)
static double link_errors = 1000;
TELEMETRY(counts_fall, telemetry->link_errors = link_errors--)
TELEMETRY(telemetry_is_slow, usleep(200000))
static isthmus_status telemetry_waits(int32_t device, isthmus_telemetry* telemetry) {
  host->device_synchronize();
  return host->telemetry(device, telemetry);
}
static isthmus_status telemetry_of_first_device(int32_t device, isthmus_telemetry* telemetry) {
  return host->telemetry(device == 1 ? 0 : device, telemetry);
}
static isthmus_status telemetry_of_any_device(int32_t device, isthmus_telemetry* telemetry) {
  return host->telemetry(device == 2 ? 1 : device, telemetry);
}

/* Graphs. */
BEFORE(launched_twice, graph_launch, host->graph_launch(graph, stream))
DEFECT(launch_waits, graph_launch) {
  const isthmus_status status = host->graph_launch(graph, stream);
  host->stream_synchronize(stream);
  return status;
}
DEFECT(launched_beside, graph_launch) {
  static isthmus_stream side;
  if (side == 0) host->stream_create(0, &side);
  return host->graph_launch(graph, side);
}
DEFECT(run_when_captured, graph_end) {
  const isthmus_status status = host->graph_end(stream, graph);
  if (status == ISTHMUS_OK) host->graph_launch(*graph, stream);
  return status;
}
DEFECT(never_capturing, graph_capturing) {
  *id = 0;
  return ISTHMUS_OK;
}
