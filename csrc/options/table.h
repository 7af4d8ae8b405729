// Names, defaults and limits of the options. Generated from isthmus/options.py by
// `make docs`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

// clang-format off
namespace isthmus::options {

struct Switch { const char* variable; bool initial; };
struct Integer { const char* variable; int64_t initial, least, most; };
struct Size { const char* variable; uint64_t initial, least, most; };  // bytes
struct Text { const char* variable; const char* initial; };
struct Choice { const char* variable; const char* initial; size_t count; const char* values[4]; };

constexpr Text kDriver{"ISTHMUS_DRIVER", ""};
constexpr Switch kStrict{"ISTHMUS_STRICT", false};
constexpr Text kRoute{"ISTHMUS_ROUTE", ""};
constexpr Switch kTrace{"ISTHMUS_TRACE", false};
constexpr Text kLibraries{"ISTHMUS_LIBRARIES", ""};
constexpr Text kDevice{"ISTHMUS_DEVICE", ""};
constexpr Switch kCompileFuse{"ISTHMUS_COMPILE_FUSE", true};
constexpr Switch kCompileCapture{"ISTHMUS_COMPILE_CAPTURE", true};
constexpr Text kPatch{"ISTHMUS_PATCH", ""};
constexpr Switch kMegatron{"ISTHMUS_MEGATRON", false};
constexpr Switch kQuiet{"ISTHMUS_QUIET", false};
constexpr Switch kShim{"ISTHMUS_SHIM", false};
constexpr Switch kAnnounced{"ISTHMUS_ANNOUNCED", false};
constexpr Text kCounts{"ISTHMUS_COUNTS", ""};
constexpr Integer kHostDevices{"ISTHMUS_HOST_DEVICES", 0, 0, 64};
constexpr Size kHostMemory{"ISTHMUS_HOST_MEMORY", 8589934592u, 2097152u, 70368744177664u};
constexpr Switch kHostStrict{"ISTHMUS_HOST_STRICT", false};
constexpr Switch kHostDelegate{"ISTHMUS_HOST_DELEGATE", true};
constexpr Choice kHostRng{"ISTHMUS_HOST_RNG", "mt19937", 2, {"mt19937", "philox"}};
constexpr Choice kHostCollective{"ISTHMUS_HOST_COLLECTIVE", "", 3, {"mesh", "ring", "halving-doubling"}};
constexpr Integer kAscendDevices{"ISTHMUS_ASCEND_DEVICES", 0, 0, 64};
constexpr Size kAscendMemory{"ISTHMUS_ASCEND_MEMORY", 68719476736u, 2097152u, 70368744177664u};
constexpr Text kAscendSoc{"ISTHMUS_ASCEND_SOC", "Ascend910B2"};
constexpr Text kAscendFault{"ISTHMUS_ASCEND_FAULT", ""};
constexpr Text kAllocator{"ISTHMUS_ALLOCATOR", "planned"};
constexpr Text kAllocConf{"ISTHMUS_ALLOC_CONF", ""};
constexpr Switch kLeakReport{"ISTHMUS_LEAK_REPORT", false};
constexpr Choice kKernels{"ISTHMUS_KERNELS", "", 3, {"AVX512", "AVX2", "DEFAULT"}};
constexpr Choice kCollectives{"ISTHMUS_COLLECTIVES", "driver", 2, {"driver", "gloo"}};
constexpr Switch kBlockingWait{"ISTHMUS_BLOCKING_WAIT", false};
constexpr Integer kFlightRecorder{"ISTHMUS_FLIGHT_RECORDER", 2000, 0, INT64_MAX};
constexpr Text kFlightRecorderFolder{"ISTHMUS_FLIGHT_RECORDER_FOLDER", ""};
constexpr Text kFailureFile{"ISTHMUS_FAILURE_FILE", ""};
constexpr Switch kFlightRecorderStacks{"ISTHMUS_FLIGHT_RECORDER_STACKS", false};
constexpr Switch kBuildDebug{"ISTHMUS_BUILD_DEBUG", false};

}  // namespace isthmus::options
// clang-format on
