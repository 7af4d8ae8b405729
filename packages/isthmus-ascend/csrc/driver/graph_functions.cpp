// Captured work: the vendor's runtime instances of models. The core refuses random operators in them: the
// seed of isthmus_context is a number of one call, which each launch would repeat. To serve them, the context
// would need the address of a seed in device memory, as aclnnInplaceNormalTensor and its like read.
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr int kRelaxed = 2;  // aclmdlRICaptureMode
constexpr int kActive = 1;   // aclmdlRICaptureStatus

isthmus_status graph_begin(isthmus_stream stream) {
  return call_on_device([&] {
    require(stream != nullptr, "graph_begin: the default stream cannot be captured");
    ISTHMUS_ACL_NEWER(mdlRICaptureBegin, stream, kRelaxed);
    return ISTHMUS_OK;
  });
}

isthmus_status graph_end(isthmus_stream stream, isthmus_graph* graph) {
  return call_on_device([&] {
    void* model = nullptr;
    ISTHMUS_ACL_NEWER(mdlRICaptureEnd, stream, &model);
    *graph = static_cast<isthmus_graph>(model);
    return ISTHMUS_OK;
  });
}

isthmus_status graph_capturing(isthmus_stream stream, uint64_t* id) {
  return call_on_device([&] {
    int status = 0;
    void* model = nullptr;
    ISTHMUS_ACL_NEWER(mdlRICaptureGetInfo, stream, &status, &model);
    uint32_t number = 0;
    if (status == kActive) ISTHMUS_ACL_NEWER(mdlRIGetId, model, &number);
    *id = status == kActive ? uint64_t{number} + 1 : 0;
    return ISTHMUS_OK;
  });
}

isthmus_status graph_launch(isthmus_graph graph, isthmus_stream stream) {
  return call_on_device([&] { return ISTHMUS_ACL_NEWER(mdlRIExecuteAsync, graph, stream), ISTHMUS_OK; });
}

isthmus_status graph_destroy(isthmus_graph graph) {
  return call_on_device([&] { return ISTHMUS_ACL_NEWER(mdlRIDestroy, graph), ISTHMUS_OK; });
}

}  // namespace

void add_graph_functions(isthmus_driver& table) {
  table.graph_begin = graph_begin;
  table.graph_end = graph_end;
  table.graph_capturing = graph_capturing;
  table.graph_launch = graph_launch;
  table.graph_destroy = graph_destroy;
}

}  // namespace isthmus::npu
