#pragma once

/// The dispatcher: from an operation to the kernel of the device.
///
/// A kernel is a struct:
///
///     struct UnaryKernel {
///       static constexpr const char* kName = "unary";
///       struct Args { ConstView x; View y; UnaryOp op; };             // copyable; lists its views
///       template <class F> static void visit(const Args& a, F&& f) { f(a.x); f(a.y); }
///       static std::size_t workspace(const Args&);       // bytes of scratch on the CPU
///       static std::size_t cuda_workspace(const Args&);  // on a GPU; left out if none is needed
///       static void cpu(const Args&, Workspace);         // in kernels/cpu/unary.cc
///       static void cuda(CudaStream, const Args&, Workspace);  // in kernels/cuda/unary.cu
///     };
///
/// and is listed in kernels/all.h. CPU kernels are compiled once per instruction set, into separate
/// shared objects; cpu_table() is the table of entry points for this machine. Kernels must accept
/// extents of zero.

#include <tuple>
#include <utility>

#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/determinism.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/kernels/launch_facts.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/kernels/view.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera {

/// True for kernels that declare a CUDA entry point.
template <class K>
concept HasCuda = requires {
  &K::cuda;
};

/// Bytes of scratch that one launch on a device of this type needs. The null device is treated as
/// the CPU.
template <class K>
std::size_t workspace_bytes(DeviceType type, const typename K::Args& args) {
  if (type != DeviceType::kCuda) return K::workspace(args);
  if constexpr (kBuiltWithCuda && requires { K::cuda_workspace(args); })
    return K::cuda_workspace(args);
  return 0;
}

namespace detail {

/// Scratch of the current stream for one launch: stream order makes its reuse after the launch
/// safe.
class LaunchWorkspace {
 public:
  LaunchWorkspace(std::size_t bytes, const DeviceStream& stream);
  Workspace get() const;

 private:
  MemoryBlock block_;
};

/// Collects the views of a launch into a KernelRecord.
class KernelTracer {
 public:
  KernelTracer(const char* name, const DeviceStream& stream);
  void operator()(const ConstView& view);
  void operator()(const View& view);
  /// `operation` may be null.
  void finish(ExecutionTrace& trace, const char* operation, std::int64_t flops) &&;

 private:
  KernelRecord record_;
};

[[noreturn]] void throw_no_cuda_kernel(const char* kernel, Device device);

}  // namespace detail

/// Issues kernel K on the thread's current stream of `device`.
template <class K>
void launch(Device device, const typename K::Args& args) {
  const DeviceStream& stream = current_stream(device);
  ExecutionTrace* const trace = active_trace();
  if (trace != nullptr) {
    detail::KernelTracer tracer(K::kName, stream);
    K::visit(args, tracer);
    std::move(tracer).finish(*trace, detail::operation_of(args), detail::flops_of(args));
  }
  const auto make_workspace = [&] {
    return detail::LaunchWorkspace(workspace_bytes<K>(device.type, args), stream);
  };
  switch (device.type) {
    case DeviceType::kCpu: {
      const detail::LaunchWorkspace workspace = make_workspace();
      CpuEntry<K> entry = std::get<CpuEntry<K>>(cpu_table());
      // For a trace the stream must time the closure.
      if (stream.kind() == StreamKind::kInline && trace == nullptr)
        return entry.run(args, workspace.get());
      stream.enqueue(K::kName,
                     [entry, args, scratch = workspace.get()] { entry.run(args, scratch); });
      return;
    }
    case DeviceType::kCuda:
      if constexpr (kBuiltWithCuda && HasCuda<K>) {
        require_fixed_order(K::kName, device);
        // Scratch may depend on the GPU, as the plans of libraries do.
        const cuda::DeviceGuard guard(device.index);
        const detail::LaunchWorkspace workspace = make_workspace();
        return K::cuda(stream.cuda_handle(), args, workspace.get());
      } else {
        detail::throw_no_cuda_kernel(K::kName, device);
      }
    case DeviceType::kNull:
      make_workspace();
      return;
  }
}

}  // namespace tessera
