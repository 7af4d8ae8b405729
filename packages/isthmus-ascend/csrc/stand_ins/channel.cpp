// libacl_tdt_channel.so: the channel by which a graph sends data to the host; torchair is linked with it.
// There is no graph engine, so that no channel is created.
#include <cstddef>

#include "acl/enqueue.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int refuse(const char* function) {
  return isthmus_ascend_report(207000, function,
                               "channels of graphs are not supported by the reference runtime of AscendCL");
}

}  // namespace

#define REFUSED(name) \
  ISTHMUS_ASCEND_EXPORT int name() { return refuse(#name); }

#define NOT_CREATED(name)              \
  ISTHMUS_ASCEND_EXPORT void* name() { \
    refuse(#name);                     \
    return nullptr;                    \
  }

// Returns an empty answer: there is no data set.
#define EMPTY(name) \
  ISTHMUS_ASCEND_EXPORT size_t name() { return 0; }

NOT_CREATED(acltdtCreateChannelWithCapacity)
NOT_CREATED(acltdtCreateDataset)
REFUSED(acltdtDestroyChannel)
REFUSED(acltdtDestroyDataset)
REFUSED(acltdtReceiveTensor)
REFUSED(acltdtGetDimsFromItem)
EMPTY(acltdtGetDataAddrFromItem)
EMPTY(acltdtGetDataItem)
EMPTY(acltdtGetDataSizeFromItem)
EMPTY(acltdtGetDataTypeFromItem)
EMPTY(acltdtGetDatasetSize)
EMPTY(acltdtGetDimNumFromItem)
