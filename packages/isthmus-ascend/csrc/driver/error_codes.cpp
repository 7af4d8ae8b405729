// Codes of the vendor's runtime, as statuses of the driver.
#include "runtime.h"

namespace isthmus::npu {
namespace {

struct Code {
  int value;  // code of aclError
  isthmus_status status;
  const char* remedy;
};

constexpr const char* kRestart =
    "; restart the job from a checkpoint, and on another device if the error comes back";
constexpr const char* kFindOperator =
    "; the vendor's log names the operator (ASCEND_PROCESS_LOG_PATH, ~/ascend/log if unset)";

constexpr Code kCodes[] = {
    {107001, ISTHMUS_NO_DEVICE, ""},
    {107019, ISTHMUS_TIMEOUT, ""},
    {107021, ISTHMUS_NO_DEVICE, ""},
    {107022, ISTHMUS_ABORTED, ""},
    {207000, ISTHMUS_UNSUPPORTED, ""},
    {207001, ISTHMUS_OUT_OF_MEMORY, "; lower the micro-batch, or end other processes on the device"},
    {507010, ISTHMUS_DEVICE_ERROR,
     "; check the device with `npu-smi info`, and restart the job from a checkpoint"},
    {507014, ISTHMUS_DEVICE_ERROR, kFindOperator},
    {507015, ISTHMUS_DEVICE_ERROR, kFindOperator},
    {507034, ISTHMUS_DEVICE_ERROR, kFindOperator},
    {507046, ISTHMUS_TIMEOUT, ""},
    {507053, ISTHMUS_DEVICE_ERROR, kRestart},
    {507054, ISTHMUS_DEVICE_ERROR, kRestart},
};

// Classifies codes that are not listed by their ranges.
Code classify(int value) {
  for (const Code& code : kCodes)
    if (code.value == value) return code;
  if (value >= 107000 && value < 108000) return {value, ISTHMUS_INVALID_ARGUMENT, ""};
  if (value >= 507000 && value < 508000) return {value, ISTHMUS_DEVICE_ERROR, ""};
  return {value, ISTHMUS_INTERNAL, ""};
}

}  // namespace

std::string recent_message() {
  const char* const said = acl().GetRecentErrMsg();
  return said == nullptr ? "" : std::string(": ") + said;
}

void check(int code, const char* function) {
  if (code == 0) return;
  const Code& found = classify(code);
  throw Failure{found.status, std::string(function) + " failed with " + std::to_string(code) +
                                  recent_message() + found.remedy};
}

}  // namespace isthmus::npu
