/* Isthmus driver interface, version 1.3.
 *
 * What a chip's maker implements so that PyTorch runs on the chip. A driver is a shared library that
 * exports one symbol, isthmus_driver_get(), which returns one table of function pointers. Nothing here
 * names PyTorch, C++ or a particular chip; every function maps onto one or two calls of the maker's
 * runtime, and the comment beside it names the AscendCL (acl*, Hccl*) and CUDA (cuda*, nccl*) ones.
 *
 * Rules that hold for every function unless its comment says otherwise:
 *   - It returns ISTHMUS_OK, or a status with a message for isthmus_driver.last_error().
 *   - It may be called from any thread at any time after initialize(), with no lock held by the caller.
 *   - "Current device" is per thread and is what device_set() last set on that thread; a function that
 *     takes neither a device nor a stream acts on it. The core calls device_set() only when it changes.
 *   - A null stream is the current device's default stream. A function that takes a stream only enqueues:
 *     it returns before the work is done, and memory must stay valid until the work is done. Structs, text
 *     and arrays of arguments are valid during the call only.
 *   - Work on one stream runs in the order in which it was enqueued. Only events order streams among
 *     themselves; this includes the default stream.
 *   - Sizes are bytes, times are as named, and pointers to outputs are never null.
 *   - Output parameters are unchanged when the status is not ISTHMUS_OK.
 *
 * [M] marks mandatory functions: a driver with a null one is refused when it is opened, by name.
 * [O] marks optional ones, null where absent. The comment states what the core does without it.
 *
 * The table grows at its end only. A reader uses a member only if it lies inside struct_size, so an older
 * driver works under a newer core and a newer driver under an older core of the same major version.
 */
#ifndef ISTHMUS_DRIVER_H_
#define ISTHMUS_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ISTHMUS_DRIVER_VERSION_MAJOR 1u
#define ISTHMUS_DRIVER_VERSION_MINOR 3u
#define ISTHMUS_DRIVER_VERSION ((ISTHMUS_DRIVER_VERSION_MAJOR << 16) | ISTHMUS_DRIVER_VERSION_MINOR)

/* ---- Types ------------------------------------------------------------------------------------------ */

typedef enum isthmus_status {
  ISTHMUS_OK = 0,
  ISTHMUS_NOT_READY = 1,        /* query: the work is not done yet; not an error */
  ISTHMUS_INVALID_ARGUMENT = 2, /* the caller's mistake; last_error() names the argument */
  ISTHMUS_OUT_OF_MEMORY = 3,    /* the device, or pinned host memory, is full */
  ISTHMUS_NO_DEVICE = 4,        /* no usable device, or the index is out of range */
  ISTHMUS_UNSUPPORTED = 5,      /* present in the table, but not for these arguments */
  ISTHMUS_TIMEOUT = 6,          /* a collective or a synchronisation passed its limit */
  ISTHMUS_ABORTED = 7,          /* the communicator was aborted, here or by a peer */
  ISTHMUS_PEER_LOST = 8,        /* a rank of the communicator is gone */
  ISTHMUS_DEVICE_ERROR = 9,     /* the device failed; a reset or a restart is needed */
  ISTHMUS_INTERNAL = 10         /* a defect of the driver */
} isthmus_status;

typedef struct isthmus_stream_t* isthmus_stream;
typedef struct isthmus_event_t* isthmus_event;
typedef struct isthmus_comm_t* isthmus_comm;
typedef struct isthmus_memory_handle_t* isthmus_memory_handle;
typedef struct isthmus_graph_t* isthmus_graph;

typedef enum isthmus_copy_kind {
  ISTHMUS_HOST_TO_DEVICE = 1,
  ISTHMUS_DEVICE_TO_HOST = 2,
  ISTHMUS_DEVICE_TO_DEVICE = 3 /* within one device */
} isthmus_copy_kind;

typedef enum isthmus_memory_kind {
  ISTHMUS_MEMORY_UNKNOWN = 0, /* ordinary host memory, or an address unknown to the driver */
  ISTHMUS_MEMORY_DEVICE = 1,
  ISTHMUS_MEMORY_PINNED = 2
} isthmus_memory_kind;

typedef struct isthmus_device_properties {
  char name[128];                 /* product name, UTF-8, null-terminated */
  char uuid[64];                  /* stable over reboots; empty if unknown */
  uint64_t total_memory;          /* bytes; device_memory() reports at most this, and at least 3/4 of it, as total */
  int32_t capability_major;       /* the maker's architecture number */
  int32_t capability_minor;
  int32_t multi_processor_count;  /* compute units; the host chip: CPU threads */
  int32_t pci_domain, pci_bus, pci_device; /* -1 if none */
  int32_t numa_node;              /* -1 if unknown */
  uint32_t memory_alignment;      /* bytes; alignment of every device allocation, a power of two */
  uint32_t flags;                 /* ISTHMUS_PROPERTY_* */
} isthmus_device_properties;

#define ISTHMUS_PROPERTY_BFLOAT16 1u /* computes in bfloat16 at full rate */
#define ISTHMUS_PROPERTY_INTEGRATED 2u /* shares physical memory with the host */

typedef struct isthmus_pointer_attributes {
  isthmus_memory_kind kind;
  int32_t device; /* -1 unless kind is ISTHMUS_MEMORY_DEVICE */
} isthmus_pointer_attributes;

/* PyTorch backends whose kernels may run in place on the driver's memory. */
typedef enum isthmus_delegate {
  ISTHMUS_DELEGATE_NONE = 0,
  ISTHMUS_DELEGATE_CPU = 1
} isthmus_delegate;

/* Device addresses [device_base, device_base + bytes) are the host addresses that start at host_base.
 * Every allocation of the device lies in the window. The bases may be equal. */
typedef struct isthmus_host_window {
  void* device_base;
  void* host_base;
  size_t bytes;
} isthmus_host_window;

/* ---- Collectives ------------------------------------------------------------------------------------ */

typedef enum isthmus_dtype {
  ISTHMUS_INT8 = 0, ISTHMUS_UINT8 = 1, ISTHMUS_INT16 = 2, ISTHMUS_INT32 = 3, ISTHMUS_INT64 = 4,
  ISTHMUS_FLOAT16 = 5, ISTHMUS_BFLOAT16 = 6, ISTHMUS_FLOAT32 = 7, ISTHMUS_FLOAT64 = 8,
  ISTHMUS_BOOL = 9, ISTHMUS_UINT16 = 10, ISTHMUS_UINT32 = 11, ISTHMUS_UINT64 = 12,
  ISTHMUS_COMPLEX64 = 13, ISTHMUS_COMPLEX128 = 14, ISTHMUS_FLOAT8_E4M3 = 15, ISTHMUS_FLOAT8_E5M2 = 16
} isthmus_dtype;

typedef enum isthmus_reduce_op {
  ISTHMUS_SUM = 0, ISTHMUS_PRODUCT = 1, ISTHMUS_MIN = 2, ISTHMUS_MAX = 3, ISTHMUS_AVG = 4,
  ISTHMUS_BAND = 5, ISTHMUS_BOR = 6, ISTHMUS_BXOR = 7,
  ISTHMUS_PREMUL_SUM = 8 /* each rank multiplies its input by its own factor first */
} isthmus_reduce_op;

#define ISTHMUS_UNIQUE_ID_BYTES 4096
typedef struct isthmus_unique_id { char bytes[ISTHMUS_UNIQUE_ID_BYTES]; } isthmus_unique_id;

typedef struct isthmus_comm_options {
  uint32_t struct_size; /* sizeof(isthmus_comm_options) of the caller */
  int32_t rank;
  int32_t world_size;
  int64_t timeout_ms;   /* of every operation; 0 means none */
  const char* name;     /* for messages and traces; may be null */
} isthmus_comm_options;

typedef struct isthmus_comm_failure {
  uint32_t struct_size; /* sizeof(isthmus_comm_failure) of the caller */
  int32_t rank;         /* of the communicator, that is lost; -1 if none is or if that is unknown */
  int64_t process;      /* its process id; 0 if unknown */
  uint64_t operation;   /* number of the collective that failed, counted from 1 on each communicator; 0 if unknown */
} isthmus_comm_failure;

/* ---- Optional groups: types ------------------------------------------------------------------------- */

#define ISTHMUS_IPC_HANDLE_BYTES 128
typedef struct isthmus_ipc_handle { char bytes[ISTHMUS_IPC_HANDLE_BYTES]; } isthmus_ipc_handle;

typedef void (*isthmus_host_function)(void* user_data);

typedef enum isthmus_activity_kind {
  ISTHMUS_ACTIVITY_KERNEL = 1, ISTHMUS_ACTIVITY_COPY = 2, ISTHMUS_ACTIVITY_SET = 3,
  ISTHMUS_ACTIVITY_COLLECTIVE = 4, ISTHMUS_ACTIVITY_SYNCHRONIZE = 5, ISTHMUS_ACTIVITY_RUNTIME = 6
} isthmus_activity_kind;

typedef struct isthmus_activity {
  uint32_t struct_size;
  isthmus_activity_kind kind;
  int32_t device;
  isthmus_stream stream;
  uint64_t start_ns, end_ns; /* CLOCK_REALTIME */
  uint64_t correlation;      /* last set by activity_push_correlation() on the enqueueing thread; 0 if none */
  uint64_t bytes;            /* copies, sets, collectives */
  const char* name;          /* valid during the callback only */
} isthmus_activity;

typedef void (*isthmus_activity_callback)(const isthmus_activity* records, size_t count, void* user_data);

#define ISTHMUS_TELEMETRY_UNKNOWN (-1.0)
typedef struct isthmus_telemetry {
  uint32_t struct_size;
  double temperature_c, power_w, clock_mhz;       /* ISTHMUS_TELEMETRY_UNKNOWN where not measured */
  double compute_utilization, memory_utilization; /* 0 to 1 over the driver's last sampling period */
  double link_errors, ecc_corrected, ecc_uncorrected; /* counts since the driver was loaded */
  int32_t health;                                 /* 0 good, 1 degraded, 2 failed */
} isthmus_telemetry;

/* ---- The table -------------------------------------------------------------------------------------- */

#define ISTHMUS_STREAM_PRIORITY_DEFAULT 0
#define ISTHMUS_EVENT_TIMING 1u /* event_elapsed() may be called; without it an event may be cheaper */
#define ISTHMUS_EVENT_SHARED 2u /* event_export() may be called; only passed to a driver that has it */
#define ISTHMUS_VIRTUAL_READ_WRITE 3u

typedef struct isthmus_driver {
  /* Size of the table that the driver was compiled with, and ISTHMUS_DRIVER_VERSION. */
  uint32_t struct_size;
  uint32_t version;
  const char* name;          /* [M] short, lower case, unique: "host", "ascend" */
  const char* description;   /* [M] one line shown to users, with the runtime's version */
  isthmus_delegate delegate; /* PyTorch backend that may run on this memory in place; needs host_window */
  int32_t dlpack_device;     /* DLDeviceType under which operator libraries receive tensors; kDLExtDev is 12 */

  /* ---- Life and errors ---- */
  /* [M] Once per process, before anything else but last_error(). May be called again; does nothing then.
   * A process forked afterwards must not call the driver. acl: aclInit. cuda: cuInit. */
  isthmus_status (*initialize)(void);
  /* [M] Called at exit, with no work outstanding. No function may be called after it. acl: aclFinalize. */
  isthmus_status (*finalize)(void);
  /* [M] Message of the last failure on this thread: what, the value, the remedy. Never null, valid until the
   * next call on this thread. acl: aclGetRecentErrMsg. cuda: cudaGetErrorString. */
  const char* (*last_error)(void);

  /* ---- Device ---- */
  /* [M] Number of devices visible to this process; 0 is not an error. May be called before initialize(). A driver
   * that can count without being initialised does so, and the process may still fork; otherwise it returns
   * ISTHMUS_NOT_READY. acl: aclrtGetDeviceCount. cuda: cudaGetDeviceCount, nvmlDeviceGetCount. */
  isthmus_status (*device_count)(int32_t* count);
  /* [M] acl: aclrtGetSocName, aclrtGetMemInfo. cuda: cudaGetDeviceProperties. */
  isthmus_status (*device_properties)(int32_t device, isthmus_device_properties* properties);
  /* [M] Makes device current on this thread. acl: aclrtSetDevice. cuda: cudaSetDevice. */
  isthmus_status (*device_set)(int32_t device);
  /* [M] The thread's current device; 0 before the first device_set(). acl: aclrtGetDevice. cuda: cudaGetDevice. */
  isthmus_status (*device_get)(int32_t* device);
  /* [M] Waits for all work of all streams of the current device and returns the first failure among it.
   * acl: aclrtSynchronizeDevice. cuda: cudaDeviceSynchronize. */
  isthmus_status (*device_synchronize)(void);
  /* [M] Free and total bytes of the current device, for all processes together; for this one alone if the
   * runtime does not know of others. Counts memory_allocate() and virtual_create(), rounded up to the
   * driver's unit; neither reserved addresses nor, unless ISTHMUS_PROPERTY_INTEGRATED is set, pinned memory.
   * acl: aclrtGetMemInfo. cuda: cudaMemGetInfo. */
  isthmus_status (*device_memory)(uint64_t* free_bytes, uint64_t* total_bytes);
  /* [O] Drops everything this process holds on the current device. Without it: unsupported.
   * acl: aclrtResetDevice. cuda: cudaDeviceReset. */
  isthmus_status (*device_reset)(void);

  /* ---- Memory ---- */
  /* [M] bytes > 0 of the current device's memory, aligned to memory_alignment. Contents are undefined.
   * ISTHMUS_INVALID_ARGUMENT for 0 bytes, ISTHMUS_OUT_OF_MEMORY if it is not available. One allocation may be
   * limited to less than the free memory, but to no less than a quarter of the total; in several, all free
   * memory but 1/64 of the total can be allocated and used. acl: aclrtMalloc. cuda: cudaMalloc. */
  isthmus_status (*memory_allocate)(size_t bytes, void** pointer);
  /* [M] Frees memory allocated by memory_allocate(), on any thread and under any current device. The caller
   * ensures that no work uses it. Work on other memory is not disturbed; the call may wait for it. Null is
   * allowed. Any other address, one already freed included, returns ISTHMUS_INVALID_ARGUMENT and changes
   * nothing. acl: aclrtFree. cuda: cudaFree. */
  isthmus_status (*memory_free)(void* pointer);
  /* [M] Page-locked host memory that asynchronous copies of every device read and write directly, from and to
   * any offset; readable and writable by the CPU at the same address, aligned to 64. acl: aclrtMallocHost.
   * cuda: cudaMallocHost. */
  isthmus_status (*host_allocate)(size_t bytes, void** pointer);
  /* [M] Frees memory allocated by host_allocate(); addresses as for memory_free(). acl: aclrtFreeHost.
   * cuda: cudaFreeHost. */
  isthmus_status (*host_free)(void* pointer);
  /* [M] Kind and device of an address. Any address is allowed, including one inside an allocation. One outside all
   * allocations, freed ones included, is ISTHMUS_MEMORY_UNKNOWN. acl: aclrtPointerGetAttributes.
   * cuda: cudaPointerGetAttributes. */
  isthmus_status (*pointer_attributes)(const void* pointer, isthmus_pointer_attributes* attributes);

  /* ---- Copy ---- */
  /* [M] Copies and returns when done. Does not wait for any stream. ISTHMUS_INVALID_ARGUMENT for an unknown
   * kind. A copy within the device whose ranges overlap has the result of memmove(), or is refused: the call
   * fails and copies nothing. A copy onto itself changes nothing. Both hold for copy_async() too. acl:
   * aclrtMemcpy. cuda: cudaMemcpy. */
  isthmus_status (*copy)(void* to, const void* from, size_t bytes, isthmus_copy_kind kind);
  /* [M] Pinned memory must stay valid until the work is done; the call does not wait. Pageable memory may be
   * freed or overwritten when the call returns: the driver takes a copy, or waits, for earlier work of the
   * stream too, until it has read the source or written the destination. All host memory that is not inside
   * one pinned allocation is pageable, mapped files included; a source may be read-only. acl:
   * aclrtMemcpyAsync. cuda: cudaMemcpyAsync. */
  isthmus_status (*copy_async)(void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                               isthmus_stream stream);
  /* [O] Between two devices, on a stream of either. Without it: through pinned host memory.
   * acl: aclrtMemcpyAsync. cuda: cudaMemcpyPeerAsync. */
  isthmus_status (*copy_peer_async)(void* to, int32_t to_device, const void* from, int32_t from_device,
                                    size_t bytes, isthmus_stream stream);
  /* [M] Sets each byte to value. acl: aclrtMemsetAsync. cuda: cudaMemsetAsync. */
  isthmus_status (*set_async)(void* pointer, uint8_t value, size_t bytes, isthmus_stream stream);

  /* ---- Stream ---- */
  /* [M] On the current device. Lower priority numbers run first; a driver without priorities ignores them.
   * acl: aclrtCreateStreamWithConfig. cuda: cudaStreamCreateWithPriority (non-blocking). */
  isthmus_status (*stream_create)(int32_t priority, isthmus_stream* stream);
  /* [M] Outstanding work still runs; device_synchronize() and events recorded on the stream wait for it, and
   * the call may. The default stream is never destroyed. acl: aclrtDestroyStream. cuda: cudaStreamDestroy. */
  isthmus_status (*stream_destroy)(isthmus_stream stream);
  /* [M] Waits until all work enqueued so far is done; returns its first failure.
   * acl: aclrtSynchronizeStream. cuda: cudaStreamSynchronize. */
  isthmus_status (*stream_synchronize)(isthmus_stream stream);
  /* [M] ISTHMUS_OK when idle, ISTHMUS_NOT_READY when not. When idle it may return, in place of a synchronization,
   * the first failure; whether that is then returned again is open. acl: aclrtStreamQuery. cuda: cudaStreamQuery. */
  isthmus_status (*stream_query)(isthmus_stream stream);
  /* [M] Later work of the stream waits for the work captured by the event's last record. An event that was
   * never recorded does not delay it. The event may be of another device. The calling thread does not wait.
   * acl: aclrtStreamWaitEvent. cuda: cudaStreamWaitEvent. */
  isthmus_status (*stream_wait_event)(isthmus_stream stream, isthmus_event event);
  /* [O] The handle of the current device's default stream, for code that needs a non-null one. Without it:
   * null. acl: aclrtCtxGetCurrentDefaultStream. cuda: cudaStreamLegacy. */
  isthmus_status (*stream_default)(isthmus_stream* stream);

  /* ---- Event ---- */
  /* [M] On the current device; flags are ISTHMUS_EVENT_*. acl: aclrtCreateEventExWithFlag.
   * cuda: cudaEventCreateWithFlags. */
  isthmus_status (*event_create)(uint32_t flags, isthmus_event* event);
  /* [M] May be called while a stream waits for the event, or before its captured work is done; the wait and
   * the work are unaffected, and so is any event created later. acl: aclrtDestroyEvent. cuda:
   * cudaEventDestroy. */
  isthmus_status (*event_destroy)(isthmus_event event);
  /* [M] Captures the work enqueued on stream so far; replaces an earlier record. acl: aclrtRecordEvent.
   * cuda: cudaEventRecord. */
  isthmus_status (*event_record)(isthmus_event event, isthmus_stream stream);
  /* [M] ISTHMUS_OK when the captured work is done or nothing was recorded, else ISTHMUS_NOT_READY.
   * When it is done, may return its first failure as stream_query() may, and need not: the stream's and the device's
   * synchronization report it. acl: aclrtQueryEventStatus. cuda: cudaEventQuery. */
  isthmus_status (*event_query)(isthmus_event event);
  /* [M] Waits on the calling thread. May return the first failure of the captured work, as event_query() may.
   * acl: aclrtSynchronizeEvent. cuda: cudaEventSynchronize. */
  isthmus_status (*event_synchronize)(isthmus_event event);
  /* [M] Milliseconds from start to end, both with ISTHMUS_EVENT_TIMING and recorded (else
   * ISTHMUS_INVALID_ARGUMENT), both done (else ISTHMUS_NOT_READY). Resolution better than 10 us. acl:
   * aclrtEventElapsedTime. cuda: cudaEventElapsedTime. */
  isthmus_status (*event_elapsed)(isthmus_event start, isthmus_event end, double* milliseconds);

  /* ---- Collectives [O, as one group: all of them, or none] ----
   * Without the group: the core uses gloo on host memory. All enqueue on stream. count is in elements and
   * per rank where the comment says so. An unsupported (dtype, op) pair returns ISTHMUS_UNSUPPORTED before
   * anything is enqueued. to and from may be equal (in place) where the CUDA counterpart allows it. */
  /* Called on one rank; the core sends the result to the others. Hccl: HcclGetRootInfo. nccl: ncclGetUniqueId. */
  isthmus_status (*comm_unique_id)(isthmus_unique_id* id);
  /* Collective over all ranks; on the current device. Ranks may be threads of one process, each with a device. Hccl: HcclCommInitRootInfo. nccl: ncclCommInitRank. */
  isthmus_status (*comm_create)(const isthmus_unique_id* id, const isthmus_comm_options* options,
                                isthmus_comm* comm);
  /* [O] Collective over comm. color < 0: this rank is in no group and gets null. Without it: comm_create().
   * Hccl: HcclCreateSubCommConfig. nccl: ncclCommSplit. */
  isthmus_status (*comm_split)(isthmus_comm comm, int32_t color, int32_t key,
                               const isthmus_comm_options* options, isthmus_comm* out);
  /* Called after all work is done. Hccl: HcclCommDestroy. nccl: ncclCommDestroy. */
  isthmus_status (*comm_destroy)(isthmus_comm comm);
  /* Ends outstanding work with ISTHMUS_ABORTED, from any thread; comm may then only be passed to comm_destroy().
   * nccl: ncclCommAbort. */
  isthmus_status (*comm_abort)(isthmus_comm comm);
  /* ISTHMUS_OK, or the status of outstanding work that failed. Hccl: HcclGetCommAsyncError. nccl: ncclCommGetAsyncError. */
  isthmus_status (*comm_error)(isthmus_comm comm);
  /* factor: one element of dtype in host memory for ISTHMUS_PREMUL_SUM, else null.
   * Hccl: HcclAllReduce. nccl: ncclAllReduce. */
  isthmus_status (*all_reduce)(void* to, const void* from, size_t count, isthmus_dtype dtype,
                               isthmus_reduce_op op, const void* factor, isthmus_comm comm,
                               isthmus_stream stream);
  /* to is written on root only. Hccl: HcclReduce. nccl: ncclReduce. */
  isthmus_status (*reduce)(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op,
                           const void* factor, int32_t root, isthmus_comm comm, isthmus_stream stream);
  /* Hccl: HcclBroadcast. nccl: ncclBroadcast. */
  isthmus_status (*broadcast)(void* buffer, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm,
                              isthmus_stream stream);
  /* count elements of each rank; to holds world_size * count. Hccl: HcclAllGather. nccl: ncclAllGather. */
  isthmus_status (*all_gather)(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                               isthmus_stream stream);
  /* count elements for each rank; from holds world_size * count. Hccl: HcclReduceScatter.
   * nccl: ncclReduceScatter. */
  isthmus_status (*reduce_scatter)(void* to, const void* from, size_t count, isthmus_dtype dtype,
                                   isthmus_reduce_op op, const void* factor, isthmus_comm comm,
                                   isthmus_stream stream);
  /* [O] count elements to and from each rank. Without it: send and receive. Hccl: HcclAlltoAll.
   * nccl: ncclAllToAll. */
  isthmus_status (*all_to_all)(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                               isthmus_stream stream);
  /* [O] Element counts and offsets per rank, in host memory. Without it: send and receive.
   * Hccl: HcclAlltoAllV. nccl: ncclAllToAllv. */
  isthmus_status (*all_to_all_v)(void* to, const size_t* to_counts, const size_t* to_offsets, const void* from,
                                 const size_t* from_counts, const size_t* from_offsets, isthmus_dtype dtype,
                                 isthmus_comm comm, isthmus_stream stream);
  /* [O] Equal counts per rank, to is used on root only. Without it: send and receive. nccl: ncclGather. */
  isthmus_status (*gather)(void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root,
                           isthmus_comm comm, isthmus_stream stream);
  /* [O] Equal counts per rank, from is used on root only. Without it: send and receive. Hccl: HcclScatter.
   * nccl: ncclScatter. */
  isthmus_status (*scatter)(void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root,
                            isthmus_comm comm, isthmus_stream stream);
  /* Hccl: HcclSend. nccl: ncclSend. */
  isthmus_status (*send)(const void* from, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                         isthmus_stream stream);
  /* Hccl: HcclRecv. nccl: ncclRecv. */
  isthmus_status (*receive)(void* to, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                            isthmus_stream stream);
  /* Between these two, operations of this thread are collected and start together, so that sends and receives
   * cannot wait for each other. Hccl: HcclBatchSendRecv. nccl: ncclGroupStart, ncclGroupEnd. */
  isthmus_status (*group_start)(void);
  isthmus_status (*group_end)(void);

  /* ---- Host-addressable memory [O; mandatory with a delegate] ----
   * Where the CPU reaches the device's memory. The mapping holds from initialize() to the end of the process.
   * Without it: every access goes through copy(). */
  isthmus_status (*host_window)(int32_t device, isthmus_host_window* window);

  /* ---- Virtual memory [O, as one group] ---- Without it: no expandable segments. */
  /* Smallest unit of the functions below, a power of two. acl: aclrtMemGetAllocationGranularity.
   * cuda: cuMemGetAllocationGranularity. */
  isthmus_status (*virtual_granularity)(size_t* bytes);
  /* Address space of the current device, without memory. acl: aclrtReserveMemAddress.
   * cuda: cuMemAddressReserve. */
  isthmus_status (*virtual_reserve)(size_t bytes, void** pointer);
  /* acl: aclrtReleaseMemAddress. cuda: cuMemAddressFree. */
  isthmus_status (*virtual_release)(void* pointer, size_t bytes);
  /* Physical memory of the current device. acl: aclrtMallocPhysical. cuda: cuMemCreate. */
  isthmus_status (*virtual_create)(size_t bytes, isthmus_memory_handle* handle);
  /* acl: aclrtFreePhysical. cuda: cuMemRelease. */
  isthmus_status (*virtual_destroy)(isthmus_memory_handle handle);
  /* flags: ISTHMUS_VIRTUAL_READ_WRITE. acl: aclrtMapMem. cuda: cuMemMap, cuMemSetAccess. */
  isthmus_status (*virtual_map)(void* pointer, size_t bytes, isthmus_memory_handle handle, uint32_t flags);
  /* acl: aclrtUnmapMem. cuda: cuMemUnmap. */
  isthmus_status (*virtual_unmap)(void* pointer, size_t bytes);

  /* ---- Export and import between processes [O, as one group] ---- Without it: tensors are shared by copy. */
  /* pointer was returned by memory_allocate(). acl: aclrtIpcMemGetExportKey. cuda: cudaIpcGetMemHandle. */
  isthmus_status (*memory_export)(void* pointer, isthmus_ipc_handle* handle);
  /* acl: aclrtIpcMemImportByKey. cuda: cudaIpcOpenMemHandle. */
  isthmus_status (*memory_import)(const isthmus_ipc_handle* handle, void** pointer);
  /* acl: aclrtIpcMemClose. cuda: cudaIpcCloseMemHandle. */
  isthmus_status (*memory_close)(void* pointer);
  /* event has ISTHMUS_EVENT_SHARED. acl: aclrtIpcGetEventHandle. cuda: cudaIpcGetEventHandle. */
  isthmus_status (*event_export)(isthmus_event event, isthmus_ipc_handle* handle);
  /* acl: aclrtIpcOpenEventHandle. cuda: cudaIpcOpenEventHandle. */
  isthmus_status (*event_import)(const isthmus_ipc_handle* handle, isthmus_event* event);

  /* ---- Priorities and external streams [O] ---- */
  /* Lowest and highest priority number; highest <= lowest. Without it: 0 and 0.
   * acl: aclrtDeviceGetStreamPriorityRange. cuda: cudaDeviceGetStreamPriorityRange. */
  isthmus_status (*stream_priority_range)(int32_t* lowest, int32_t* highest);
  /* Wraps a native stream created elsewhere, which its creator destroys. Without it: the handle is used
   * unchanged. */
  isthmus_status (*stream_wrap)(void* native, isthmus_stream* stream);

  /* ---- Host callbacks [O] ---- */
  /* Calls function(user_data) on a thread of the driver after the work so far; later work waits for it, other
   * streams do not. The function must not call the driver. Without it: the core waits for the stream and
   * calls it itself. acl: aclrtLaunchHostFunc. cuda: cudaLaunchHostFunc. */
  isthmus_status (*stream_host_function)(isthmus_stream stream, isthmus_host_function function, void* user_data);

  /* ---- Activity records for the profiler [O, as one group] ---- Without it: the core times with events. */
  /* Records of every device go to callback, in batches, on a thread of the driver. acl: aclprofStart.
   * cuda: cuptiActivityEnable. */
  isthmus_status (*activity_start)(isthmus_activity_callback callback, void* user_data);
  /* Delivers outstanding records, then stops. acl: aclprofStop. cuda: cuptiActivityFlushAll. */
  isthmus_status (*activity_stop)(void);
  /* Work enqueued by this thread carries the correlation until the next call. cuda:
   * cuptiActivityPushExternalCorrelationId. */
  isthmus_status (*activity_push_correlation)(uint64_t correlation);

  /* ---- Telemetry [O] ---- */
  /* Cheap enough for once a second; works while the device is hung. Without it: unknown.
   * dcmi: dcmi_get_device_*. nvml: nvmlDeviceGet*. */
  isthmus_status (*telemetry)(int32_t device, isthmus_telemetry* telemetry);

  /* ---- Since version 1.1 ---- */
  /* [O] Whether this process, with its current device, can be a rank of the communicator of id;
   * ISTHMUS_UNSUPPORTED, with the reason, if it cannot. Does not wait for other ranks. The core calls it on every
   * rank before comm_create(), so that no rank waits there for one that cannot join. Without it: comm_create()
   * fails. Hccl and nccl: no counterpart; they connect over any network. */
  isthmus_status (*comm_reachable)(const isthmus_unique_id* id);
  /* [O] Details of the failure that comm_error() returns. Without it: the core reports comm_error()'s message only,
   * and cannot tell which rank is lost. Hccl and nccl: none. */
  isthmus_status (*comm_failure)(isthmus_comm comm, isthmus_comm_failure* failure);

  /* ---- Since version 1.2 ---- */
  /* ---- Graphs [O, as one group] ---- Without it: work is not captured.
   * Work of a captured stream is kept instead of run, and runs at each graph_launch() with the same addresses. What a
   * host function is given must stay valid until graph_destroy(). */
  /* Captures the stream, which must not be the default one. A stream that waits for an event recorded in a capture
   * joins it. The driver refuses to synchronize or query a captured stream or event, to let captured work wait for
   * events recorded outside, and to copy from or to pageable memory. acl: aclmdlRICaptureBegin.
   * cuda: cudaStreamBeginCapture (relaxed). */
  isthmus_status (*graph_begin)(isthmus_stream stream);
  /* Called on the stream of graph_begin(). The capture ends for all its streams even if the call fails, as it does
   * when a stream that joined has work for which this one has not waited, also through others.
   * acl: aclmdlRICaptureEnd. cuda: cudaStreamEndCapture, cudaGraphInstantiate. */
  isthmus_status (*graph_end)(isthmus_stream stream, isthmus_graph* graph);
  /* Number of the capture that the stream takes part in, never used twice; 0 if none. acl: aclmdlRICaptureGetInfo.
   * cuda: cudaStreamGetCaptureInfo. */
  isthmus_status (*graph_capturing)(isthmus_stream stream, uint64_t* id);
  /* Launches of one graph must not overlap. acl: aclmdlRIExecuteAsync. cuda: cudaGraphLaunch. */
  isthmus_status (*graph_launch)(isthmus_graph graph, isthmus_stream stream);
  /* Outstanding launches still run. acl: aclmdlRIDestroy. cuda: cudaGraphExecDestroy. */
  isthmus_status (*graph_destroy)(isthmus_graph graph);

  /* ---- Since version 1.3 ---- */
  /* [O] Size of this driver's ids: what comm_unique_id() writes and comm_create() and comm_reachable() read, more than
   * an isthmus_unique_id. A driver that has it leaves out the collectives where the core is older (core_version of
   * isthmus_driver_get()). Without it: sizeof(isthmus_unique_id). Hccl: sizeof(HcclRootInfo). */
  isthmus_status (*comm_id_bytes)(size_t* bytes);
  /* [O] ISTHMUS_OK if all_reduce(), reduce() and reduce_scatter() support the pair, else ISTHMUS_UNSUPPORTED. The core
   * composes others of sums, or of all_gather() and operators. Without it: every pair is given to the driver. */
  isthmus_status (*comm_reduces)(isthmus_dtype dtype, isthmus_reduce_op op);
} isthmus_driver;

/* The one exported symbol. core_version is the ISTHMUS_DRIVER_VERSION of the caller; a driver that does not
 * support that major version returns null. The driver owns the table, which lives as long as the library. The
 * function only returns it: threads, allocations and device access wait for initialize(). The table, and that
 * of isthmus_operators_get(), are read before initialize() and do not change: dtypes of kernels cannot depend
 * on the device found (a kernel returns ISTHMUS_UNSUPPORTED there). Properties and comm_reduces() are asked
 * after initialize(). */
typedef const isthmus_driver* (*isthmus_driver_get_fn)(uint32_t core_version);
#define ISTHMUS_DRIVER_SYMBOL "isthmus_driver_get"

#if defined(ISTHMUS_DRIVER_IMPLEMENTATION)
__attribute__((visibility("default"))) const isthmus_driver* isthmus_driver_get(uint32_t core_version);
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_DRIVER_H_ */
