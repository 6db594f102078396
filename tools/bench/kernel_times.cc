// The kernels of a program between cudaProfilerStart and cudaProfilerStop, as the device ran them:
// a library that the CUDA driver loads into the program (CUDA_INJECTION64_PATH) and that records
// them with CUPTI. kernel_times.py runs a program with it and prints a table of what it writes.
//
// One line for each kernel, copy and fill, in the order of their starts, to the file named by
// TESSERA_KERNEL_TIMES: start and end in nanoseconds, stream, blocks, threads of a block, bytes (of
// copies and fills, else 0) and the name, with tabs between them.
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBufferBytes = 8 << 20;

struct Span {
  std::uint64_t start = 0, end = 0;
  std::uint32_t stream = 0;
  std::uint64_t blocks = 0, threads = 0, bytes = 0;
  std::string name;
};

std::vector<Span>& spans() {
  static std::vector<Span> all;
  return all;
}

void check(CUptiResult status, const char* what) {
  if (status == CUPTI_SUCCESS) return;
  const char* meaning = "";
  cuptiGetResultString(status, &meaning);
  std::fprintf(stderr, "kernel_times: %s failed: %s\n", what, meaning);
}

void request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most_records = 0;
}

void add(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    spans().push_back(
        {.start = kernel.start,
         .end = kernel.end,
         .stream = kernel.streamId,
         .blocks = std::uint64_t{1} * kernel.gridX * kernel.gridY * kernel.gridZ,
         .threads = std::uint64_t{1} * kernel.blockX * kernel.blockY * kernel.blockZ,
         .name = kernel.name});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    spans().push_back({.start = copy.start,
                       .end = copy.end,
                       .stream = copy.streamId,
                       .bytes = copy.bytes,
                       .name = "(copy)"});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    spans().push_back({.start = fill.start,
                       .end = fill.end,
                       .stream = fill.streamId,
                       .bytes = fill.bytes,
                       .name = "(fill)"});
  }
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t used) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) add(record);
  std::free(buffer);
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

void write_spans() {
  const char* path = std::getenv("TESSERA_KERNEL_TIMES");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) {
    std::fprintf(stderr, "kernel_times: TESSERA_KERNEL_TIMES names no file that can be written\n");
    return;
  }
  std::sort(spans().begin(), spans().end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  for (const Span& span : spans())
    std::fprintf(file, "%llu\t%llu\t%u\t%llu\t%llu\t%llu\t%s\n",
                 static_cast<unsigned long long>(span.start),
                 static_cast<unsigned long long>(span.end), span.stream,
                 static_cast<unsigned long long>(span.blocks),
                 static_cast<unsigned long long>(span.threads),
                 static_cast<unsigned long long>(span.bytes), span.name.c_str());
  std::fclose(file);
}

void on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (id == CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000 &&
      call.callbackSite == CUPTI_API_ENTER) {
    for (const CUpti_ActivityKind kind : kKinds) check(cuptiActivityEnable(kind), "enabling");
  } else if (id == CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000 &&
             call.callbackSite == CUPTI_API_EXIT) {
    for (const CUpti_ActivityKind kind : kKinds) check(cuptiActivityDisable(kind), "disabling");
    check(cuptiActivityFlushAll(0), "cuptiActivityFlushAll");
    write_spans();
  }
}

}  // namespace

// Called by the driver.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  check(cuptiActivityRegisterCallbacks(request_buffer, take_buffer), "registering");
  CUpti_SubscriberHandle subscriber = nullptr;
  check(cuptiSubscribe(&subscriber, on_call, nullptr), "cuptiSubscribe");
  for (const CUpti_CallbackId id : {CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000,
                                    CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000})
    check(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, id), "cuptiEnableCallback");
  return 1;
}
