// Graphs: work of streams that is captured once and launched any number of times.
#include "device.h"
#include "error.h"
#include "graph.h"
#include "parts.h"

namespace isthmus::host {
namespace {

using Handle = std::shared_ptr<const Graph>;

const Handle& graph_of(isthmus_graph handle, const char* function) {
  require_not_null(handle, function, "graph");
  return *reinterpret_cast<Handle*>(handle);
}

isthmus_status graph_begin(isthmus_stream handle) {
  return call([&] {
    Stream& stream = stream_of(handle);
    if (&stream == &device_at(stream.device()).default_stream()) {
      fail(ISTHMUS_INVALID_ARGUMENT, "graph_begin: the default stream cannot be captured; pass another");
    }
    std::make_shared<Capture>(stream)->join(stream);
    return ISTHMUS_OK;
  });
}

isthmus_status graph_end(isthmus_stream handle, isthmus_graph* graph) {
  return call([&] {
    require_not_null(graph, "graph_end", "graph");
    Stream& stream = stream_of(handle);
    const auto capture = stream.capture();
    if (capture == nullptr || !capture->began_on(stream)) {
      fail(ISTHMUS_INVALID_ARGUMENT, "graph_end: no capture began on this stream; call graph_begin() first");
    }
    *graph = reinterpret_cast<isthmus_graph>(new Handle(capture->end()));
    return ISTHMUS_OK;
  });
}

isthmus_status graph_capturing(isthmus_stream handle, uint64_t* id) {
  return call([&] {
    require_not_null(id, "graph_capturing", "id");
    Stream& stream = stream_of(handle);
    const auto capture = stream.capturing() ? stream.capture() : nullptr;
    *id = capture == nullptr ? 0 : capture->id();
    return ISTHMUS_OK;
  });
}

isthmus_status graph_launch(isthmus_graph handle, isthmus_stream stream) {
  return call([&] {
    stream_of(stream).submit([graph = graph_of(handle, "graph_launch")] { graph->run(); });
    return ISTHMUS_OK;
  });
}

isthmus_status graph_destroy(isthmus_graph handle) {
  return call([&] {
    delete &graph_of(handle, "graph_destroy");
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_graph_functions(isthmus_driver& table) {
  table.graph_begin = graph_begin;
  table.graph_end = graph_end;
  table.graph_capturing = graph_capturing;
  table.graph_launch = graph_launch;
  table.graph_destroy = graph_destroy;
}

}  // namespace isthmus::host
