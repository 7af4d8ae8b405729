// Properties of the emulated product: cores, capabilities, utilization, peers, version.
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "ascend_options.h"
#include "ascend_products.h"
#include "context.h"
#include "stream.h"

namespace isthmus::ascend {
namespace {

struct Figures {
  std::string_view soc;
  int64_t cube_cores, vector_cores, l2_bytes;
};

// Public figures of the products. The first is that of an unknown name.
constexpr Figures kFigures[] = {
    {"Ascend910B2", 24, 48, 192 << 20},    {"Ascend910B1", 24, 48, 192 << 20},
    {"Ascend910B3", 20, 40, 192 << 20},    {"Ascend910B4", 20, 40, 96 << 20},
    {"Ascend910_9391", 24, 48, 192 << 20}, {"Ascend910A", 32, 32, 32 << 20},
    {"Ascend310P3", 8, 8, 16 << 20},
};

const Figures& product() {
  for (const Figures& known : kFigures)
    if (known.soc == soc_name()) return known;
  return kFigures[0];
}

// aclDeviceInfo and aclCannAttr.
enum Capability { kAiCores = 0, kVectorCores = 1, kL2Bytes = 2 };
constexpr int kRuntimeCompilation = 2;
constexpr std::array<int, 3> kFeatures{0, 1, kRuntimeCompilation};  // infinities and NaN, bfloat16

// Number of cores. kind: 0 cube, 1 vector.
int64_t cores(int kind) {
  if (kind != 0 && kind != 1) fail(kInvalidParameter, "kind %d of cores; pass 0 (cube) or 1 (vector)", kind);
  return kind == 0 ? product().cube_cores : product().vector_cores;
}

}  // namespace

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT const char* aclrtGetSocName() { return soc_name().c_str(); }

ISTHMUS_ASCEND_EXPORT int aclGetDeviceCapability(uint32_t device, int kind, int64_t* value) {
  return call("aclGetDeviceCapability", [&] {
    require_not_null(value, "value");
    require_device(static_cast<int32_t>(device));
    switch (kind) {
      case kAiCores:
      case kVectorCores:
        *value = cores(kind);
        return;
      case kL2Bytes:
        *value = product().l2_bytes;
        return;
      default:
        fail(kUnsupported, "device information %d is unknown", kind);
    }
  });
}

// Operators of a device and of its streams may use all cores. torchair asks before each replay of a graph.
ISTHMUS_ASCEND_EXPORT int aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t* count) {
  return call("aclrtGetDeviceResLimit", [&] {
    require_not_null(count, "count");
    require_device(device);
    *count = static_cast<uint32_t>(cores(kind));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetStreamResLimit(void* stream, int kind, uint32_t* count) {
  return call("aclrtGetStreamResLimit", [&] {
    require_not_null(count, "count");
    stream_of(stream);
    *count = static_cast<uint32_t>(cores(kind));
  });
}

ISTHMUS_ASCEND_EXPORT int aclGetCannAttributeList(const int** attributes, size_t* count) {
  return call("aclGetCannAttributeList", [&] {
    require_not_null(attributes, "attributes");
    require_not_null(count, "count");
    *attributes = kFeatures.data();
    *count = kFeatures.size();
  });
}

ISTHMUS_ASCEND_EXPORT int aclGetCannAttribute(int attribute, int32_t* value) {
  return call("aclGetCannAttribute", [&] {
    require_not_null(value, "value");
    if (attribute < 0 || attribute >= static_cast<int>(kFeatures.size()))
      fail(kInvalidParameter, "attribute %d is unknown", attribute);
    *value = attribute == kRuntimeCompilation || kSeriesWithBfloat16[soc_series()] ? 1 : 0;
  });
}

// aclrtUtilizationInfo, in its layout; percent.
struct aclrtUtilizationInfo {
  int32_t cube, vector, ai_cpu, memory;
  void* extension;
};

ISTHMUS_ASCEND_EXPORT int aclrtGetDeviceUtilizationRate(int32_t device, aclrtUtilizationInfo* utilization) {
  return call("aclrtGetDeviceUtilizationRate", [&] {
    require_not_null(utilization, "utilization");
    require_device(device);
    isthmus_telemetry telemetry{};
    telemetry.struct_size = sizeof(telemetry);
    check(chip().telemetry(device, &telemetry));
    const auto percent = [](double share) { return share < 0 ? 0 : static_cast<int32_t>(share * 100); };
    utilization->cube = utilization->vector = percent(telemetry.compute_utilization);
    utilization->ai_cpu = 0;
    utilization->memory = percent(telemetry.memory_utilization);
  });
}

// Every device reaches every other.
ISTHMUS_ASCEND_EXPORT int aclrtDeviceCanAccessPeer(int32_t* possible, int32_t device, int32_t peer) {
  return call("aclrtDeviceCanAccessPeer", [&] {
    require_not_null(possible, "possible");
    require_device(device);
    require_device(peer);
    *possible = device == peer ? 0 : 1;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) {
  return call("aclrtDeviceEnablePeerAccess", [&] { require_device(peer); });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logic) {
  return call("aclrtGetLogicDevIdByUserDevId", [&] {
    require_not_null(logic, "logic");
    require_device(user);
    *logic = user;
  });
}

// uuid: 16 bytes, the same in every process of the machine.
ISTHMUS_ASCEND_EXPORT int aclrtDeviceGetUuid(int32_t device, char* uuid) {
  return call("aclrtDeviceGetUuid", [&] {
    require_not_null(uuid, "uuid");
    require_device(device);
    isthmus_device_properties properties{};
    check(chip().device_properties(device, &properties));
    const std::string text = properties.uuid;
    const size_t halves[] = {std::hash<std::string>()(text), std::hash<std::string>()(text + "/2")};
    static_assert(sizeof halves == 16);
    std::memcpy(uuid, halves, sizeof halves);
  });
}

// version: a text at the beginning of the caller's object. The default is the release from which on torch_npu
// gives clamp() of integers with a real bound the dtype that PyTorch gives it.
ISTHMUS_ASCEND_EXPORT int aclsysGetCANNVersion(int, char* version) {
  return call("aclsysGetCANNVersion", [&] {
    require_not_null(version, "version");
    constexpr size_t kMostCharacters = 31;
    const std::string release = isthmus::options::read(isthmus::options::kAscendCannVersion);
    if (release.size() > kMostCharacters)
      fail(kInvalidParameter, "%s=%s is longer than %zu characters",
           isthmus::options::kAscendCannVersion.variable, release.c_str(), kMostCharacters);
    std::memcpy(version, release.c_str(), release.size() + 1);
  });
}

// The application runs on the host (1), as with a card in a slot, and not on the device (0).
ISTHMUS_ASCEND_EXPORT int aclrtGetRunMode(int* mode) {
  return call("aclrtGetRunMode", [&] {
    require_not_null(mode, "mode");
    *mode = 1;
  });
}
