#include "tessera/tools/bench/bench_gpu_kernels.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

namespace tessera {
namespace {

struct Span {
  std::uint64_t begin = 0, end = 0;  // nanoseconds
  std::string name;
  std::int64_t blocks = 0, threads = 0;
};

// CUPTI's callbacks take no data of ours.
std::vector<Span>& spans() {
  static auto* all = new std::vector<Span>;
  return *all;
}

// The library's functions.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
};
Cupti& cupti() {
  static Cupti functions;
  return functions;
}

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

void add(const CUpti_Activity& record) {
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
    spans().push_back({.begin = kernel.start,
                       .end = kernel.end,
                       .name = demangled(kernel.name),
                       .blocks = std::int64_t{1} * kernel.gridX * kernel.gridY * kernel.gridZ,
                       .threads = std::int64_t{1} * kernel.blockX * kernel.blockY * kernel.blockZ});
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
    spans().push_back({.begin = copy.start, .end = copy.end, .name = "(copy)"});
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
    spans().push_back({.begin = fill.start, .end = fill.end, .name = "(fill)"});
  }
}

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most_records = 0;  // as many as fit
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t used) {
  CUpti_Activity* record = nullptr;
  while (cupti().next_record(buffer, used, &record) == CUPTI_SUCCESS) add(*record);
  std::free(buffer);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::string load() {
  if (cupti().enable != nullptr) return {};
  const std::string file = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
  void* library = dlopen(file.c_str(), RTLD_NOW);
  if (library == nullptr) return dlerror();
  Cupti found;
  const bool all = find(library, "cuptiActivityRegisterCallbacks", found.register_callbacks) &&
                   find(library, "cuptiActivityEnable", found.enable) &&
                   find(library, "cuptiActivityDisable", found.disable) &&
                   find(library, "cuptiActivityFlushAll", found.flush) &&
                   find(library, "cuptiActivityGetNextRecord", found.next_record);
  if (!all) return file + " lacks a function";
  cupti() = found;
  const CUptiResult status = found.register_callbacks(give_buffer, take_buffer);
  return status == CUPTI_SUCCESS ? "" : fmt::format("CUPTI: error {}", static_cast<int>(status));
}

// Fills busy_us and span_us, from spans in the order of their begins.
void add_totals(KernelTimes& times, const std::vector<Span>& all) {
  std::uint64_t busy = 0, end = 0;
  for (const Span& span : all) {
    if (span.end <= end) continue;
    busy += span.end - std::max(span.begin, end);
    end = span.end;
  }
  times.busy_us = static_cast<double>(busy) / 1e3;
  times.span_us = all.empty() ? 0 : static_cast<double>(end - all.front().begin) / 1e3;
}

}  // namespace

std::string record_kernels() {
  if (std::string reason = load(); !reason.empty()) return reason;
  spans().clear();
  for (const CUpti_ActivityKind kind : kKinds) {
    if (const CUptiResult status = cupti().enable(kind); status != CUPTI_SUCCESS)
      return fmt::format("CUPTI: error {}", static_cast<int>(status));
  }
  return {};
}

KernelTimes recorded_kernels() {
  cupti().flush(0);
  for (const CUpti_ActivityKind kind : kKinds) cupti().disable(kind);
  std::vector<Span> all = std::move(spans());
  spans().clear();
  std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, KernelTime> found;
  for (const Span& span : all) {
    KernelTime& time = found[{span.name, span.blocks, span.threads}];
    time.name = span.name;
    time.blocks = span.blocks;
    time.threads = span.threads;
    ++time.launches;
    time.us += static_cast<double>(span.end - span.begin) / 1e3;
  }
  KernelTimes times;
  times.launches = static_cast<std::int64_t>(all.size());
  add_totals(times, all);
  for (auto& [key, time] : found) times.kernels.push_back(std::move(time));
  std::sort(times.kernels.begin(), times.kernels.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.us > b.us; });
  return times;
}

}  // namespace tessera

#else

namespace tessera {

std::string record_kernels() { return "built without CUPTI's header, cupti.h"; }
KernelTimes recorded_kernels() { return {}; }

}  // namespace tessera

#endif
