#include "tessera/tensor/kernels/launch.h"

#include "tessera/tensor/check.h"

namespace tessera::detail {

LaunchWorkspace::LaunchWorkspace(std::size_t bytes, const DeviceStream& stream) {
  if (bytes > 0) block_ = MemoryBlock::take(bytes, stream, MemoryCategory::kWorkspace);
}

Workspace LaunchWorkspace::get() const { return {.data = block_.data(), .bytes = block_.bytes()}; }

KernelTracer::KernelTracer(const char* name, const DeviceStream& stream) {
  record_.name = name;
  record_.stream = stream.id();
}

void KernelTracer::operator()(const ConstView& view) {
  if (!view.defined()) return;
  record_.reads.push_back({view.storage, view.offset, view.shape, view.strides, view.dtype});
}

void KernelTracer::operator()(const View& view) {
  if (!view.defined()) return;
  record_.writes.push_back({view.storage, view.offset, view.shape, view.strides, view.dtype});
}

void KernelTracer::finish(ExecutionTrace& trace, const char* operation, std::int64_t flops) && {
  if (operation != nullptr) record_.operation = operation;
  record_.flops = flops;
  trace.add(std::move(record_));
}

void throw_no_cuda_kernel(const char* kernel, Device device) {
  throw_error<DeviceError>("launch", "kernel \"{}\" cannot run on {}: {}; move the tensors to cpu",
                           kernel, device.str(),
                           kBuiltWithCuda ? "it has no CUDA version" : "this build has no CUDA");
}

}  // namespace tessera::detail
