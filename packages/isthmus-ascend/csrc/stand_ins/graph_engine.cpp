// libge_runner.so: functions that torchair, a part of torch_npu, is linked with. There is no graph engine:
// each of its functions raises an error that names it. The string functions are those of the C library with a
// bound.
#include <cxxabi.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

[[noreturn]] void refuse(const char* mangled) {
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                    std::free);
  throw std::runtime_error(std::string(name ? name.get() : mangled) +
                           ": graphs are not supported by the reference runtime of AscendCL; use eager mode");
}

}  // namespace

#define REFUSED(name) \
  ISTHMUS_ASCEND_EXPORT void name() { refuse(#name); }

REFUSED(_ZN2ge10GEFinalizeEv)
REFUSED(_ZN2ge10TensorDesc11SetDataTypeENS_8DataTypeE)
REFUSED(_ZN2ge10TensorDesc12SetPlacementENS_9PlacementE)
REFUSED(_ZN2ge10TensorDesc14SetOriginShapeERKNS_5ShapeE)
REFUSED(_ZN2ge10TensorDesc15SetOriginFormatENS_6FormatE)
REFUSED(_ZN2ge10TensorDesc9SetFormatENS_6FormatE)
REFUSED(_ZN2ge10TensorDescC1Ev)
REFUSED(_ZN2ge12AscendStringC1EPKc)
REFUSED(_ZN2ge12GEInitializeERKSt3mapINS_12AscendStringES1_St4lessIS1_ESaISt4pairIKS1_S1_EEE)
REFUSED(_ZN2ge13GEGetErrorMsgEv)
REFUSED(_ZN2ge13GetFormatNameENS_6FormatE)
REFUSED(_ZN2ge15OperatorFactory14CreateOperatorEPKcS2_)
REFUSED(_ZN2ge15OperatorFactory9IsExistOpEPKc)
REFUSED(_ZN2ge17GEGetWarningMsgV2Ev)
REFUSED(_ZN2ge5Graph28LoadFromSerializedModelArrayEPKvm)
REFUSED(_ZN2ge5Graph8CopyFromERKS0_)
REFUSED(_ZN2ge5GraphC1EPKc)
REFUSED(_ZN2ge5ShapeC1ERKSt6vectorIlSaIlEE)
REFUSED(_ZN2ge6Tensor11SetDataTypeERKNS_8DataTypeE)
REFUSED(_ZN2ge6Tensor11SetShapeDimEml)
REFUSED(_ZN2ge6Tensor12SetPlacementERKNS_9PlacementE)
REFUSED(_ZN2ge6Tensor13SetTensorDescERKNS_10TensorDescE)
REFUSED(_ZN2ge6Tensor14SetShapeDimNumEm)
REFUSED(_ZN2ge6Tensor17SetOriginShapeDimEml)
REFUSED(_ZN2ge6Tensor20SetOriginShapeDimNumEm)
REFUSED(_ZN2ge6Tensor7GetDataEv)
REFUSED(_ZN2ge6Tensor7SetDataEPhmRKSt8functionIFvS1_EE)
REFUSED(_ZN2ge6Tensor9ResetDataEPhmRKSt8functionIFvS1_EE)
REFUSED(_ZN2ge6Tensor9ResetDataEv)
REFUSED(_ZN2ge6Tensor9SetFormatERKNS_6FormatE)
REFUSED(_ZN2ge6TensorC1Ev)
REFUSED(_ZN2ge7Session11RemoveGraphEj)
REFUSED(_ZN2ge7Session12CompileGraphEj)
REFUSED(_ZN2ge7Session23GetCompiledGraphSummaryEj)
REFUSED(_ZN2ge7Session23RunGraphWithStreamAsyncEjPvRKSt6vectorINS_6TensorESaIS3_EERS5_)
REFUSED(_ZN2ge7Session23SetGraphConstMemoryBaseEjPKvm)
REFUSED(_ZN2ge7Session28UpdateGraphFeatureMemoryBaseEjPKvm)
REFUSED(_ZN2ge7Session30SetGraphFixedFeatureMemoryBaseEjPKvm)
REFUSED(_ZN2ge7Session39UpdateGraphRefreshableFeatureMemoryBaseEjPKvm)
REFUSED(_ZN2ge7Session8AddGraphEjRKNS_5GraphERKSt3mapINS_12AscendStringES5_St4lessIS5_ESaISt4pairIKS5_S5_EEE)
REFUSED(_ZN2ge7Session8RunGraphEjRKSt6vectorINS_6TensorESaIS2_EERS4_)
REFUSED(_ZN2ge7SessionC1ERKSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE)
REFUSED(_ZN2ge7SessionD1Ev)
REFUSED(_ZN2ge8Operator15UpdateInputDescEPKcRKNS_10TensorDescE)
REFUSED(_ZNK2ge10TensorDesc11GetDataTypeEv)
REFUSED(_ZNK2ge10TensorDesc12GetPlacementEv)
REFUSED(_ZNK2ge10TensorDesc8GetShapeEv)
REFUSED(_ZNK2ge10TensorDesc9GetFormatEv)
REFUSED(_ZNK2ge12AscendString9GetStringEv)
REFUSED(_ZNK2ge12AscendStringeqERKS0_)
REFUSED(_ZNK2ge12AscendStringltERKS0_)
REFUSED(_ZNK2ge20CompiledGraphSummary15GetOutputDtypesERSt6vectorINS_8DataTypeESaIS2_EE)
REFUSED(_ZNK2ge20CompiledGraphSummary15GetOutputShapesERSt6vectorINS_5ShapeESaIS2_EE)
REFUSED(_ZNK2ge20CompiledGraphSummary18GetConstMemorySizeERm)
REFUSED(_ZNK2ge20CompiledGraphSummary20GetFeatureMemorySizeERm)
REFUSED(_ZNK2ge20CompiledGraphSummary25GetFixedFeatureMemorySizeERm)
REFUSED(_ZNK2ge20CompiledGraphSummary31GetFeatureMemoryBaseRefreshableERb)
REFUSED(_ZNK2ge20CompiledGraphSummary8IsStaticEv)
REFUSED(_ZNK2ge5GNode7GetTypeERNS_12AscendStringE)
REFUSED(_ZNK2ge5Graph10SaveToFileEPKc)
REFUSED(_ZNK2ge5Graph11GetAllNodesEv)
REFUSED(_ZNK2ge5Shape7GetDimsEv)
REFUSED(_ZNK2ge6Tensor11GetDataTypeEv)
REFUSED(_ZNK2ge6Tensor11GetShapeDimEm)
REFUSED(_ZNK2ge6Tensor12GetPlacementEv)
REFUSED(_ZNK2ge6Tensor13GetTensorDescEv)
REFUSED(_ZNK2ge6Tensor14GetShapeDimNumEv)
REFUSED(_ZNK2ge6Tensor20GetOriginShapeDimNumEv)
REFUSED(_ZNK2ge6Tensor7GetDataEv)
REFUSED(_ZNK2ge6Tensor9GetFormatEv)
REFUSED(_ZNK2ge7Session25RegisterExternalAllocatorEPKvSt10shared_ptrINS_9AllocatorEE)
REFUSED(
    _ZNK2ge8Operator25GetAllIrAttrNamesAndTypesERSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE)

ISTHMUS_ASCEND_EXPORT int vsnprintf_s(char* text, size_t room, size_t count, const char* format,
                                      va_list values) {
  if (text == nullptr || format == nullptr || room == 0) return -1;
  const size_t limit = count < room ? count + 1 : room;
  const int length = std::vsnprintf(text, limit, format, values);
  return length >= 0 && static_cast<size_t>(length) < limit ? length : -1;
}

ISTHMUS_ASCEND_EXPORT int snprintf_s(char* text, size_t room, size_t count, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int length = vsnprintf_s(text, room, count, format, values);
  va_end(values);
  return length;
}

ISTHMUS_ASCEND_EXPORT int strcpy_s(char* text, size_t room, const char* source) {
  if (text == nullptr || source == nullptr || std::strlen(source) >= room) return EINVAL;
  std::strcpy(text, source);
  return 0;
}
