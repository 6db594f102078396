#include "tessera/tensor/memory/transfer.h"

#include <cstddef>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

TraceBox trace_box(const Tensor& tensor) {
  return {tensor.storage().id(), tensor.offset(), tensor.shape(), tensor.strides(), tensor.dtype()};
}

// Both contiguous; at least one on a GPU. Issued on the GPU's current stream, on the receiver's if
// both are on GPUs.
void copy_elements(const Tensor& out, const Tensor& x, const char* op) {
  const DeviceStream& to = current_stream(out.device());
  const DeviceStream& from = current_stream(x.device());
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(KernelRecord{
        op, (out.device().is_cuda() ? to : from).id(), {trace_box(x)}, {trace_box(out)}});
  }
  const void* source = read(x).data;
  void* target = overwrite(out, op).data;
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * dtype_size(x.dtype());
  if (bytes == 0) return;
  if (x.device().is_cpu() && x.storage().is_pinned()) {
    from.synchronize();
    to.cuda_queue().copy(target, source, bytes);
    TensorStorage(x.storage()).note_transfer(to.record("to_device"));
  } else if (out.device().is_cpu() && out.storage().is_pinned()) {
    to.synchronize();
    from.cuda_queue().copy(target, source, bytes);
    TensorStorage(out.storage()).note_transfer(from.record("to_device"));
  } else if (x.device().is_cpu()) {
    from.synchronize();
    to.cuda_queue().copy_from_host(target, source, bytes);
  } else if (out.device().is_cpu()) {
    to.synchronize();  // earlier work of the stream may still be using the new block
    from.cuda_queue().copy_to_host(target, source, bytes);
  } else {
    to.wait(from.record("to_device"));
    to.cuda_queue().copy(target, source, bytes);
    from.wait(to.record("to_device"));  // x's stream may overwrite or free x next
  }
}

}  // namespace

Tensor to_device(const Tensor& x, Device device) {
  TESSERA_CHECK(x.defined(), "to_device", "the tensor is undefined");
  if (x.device() == device) return x;
  TESSERA_CHECK_AS(StateError, !x.device().is_null(), "to_device",
                   "a tensor of shape {} on the null device has no elements to move to {}",
                   x.shape().str(), device.str());
  const Tensor out = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device});
  if (!device.is_null()) copy_elements(out, contiguous(x), "to_device");
  return out;
}

void transfer_(const Tensor& out, const Tensor& x) {
  constexpr const char* kWhere = "transfer_";
  TESSERA_CHECK(out.defined() && x.defined(), kWhere, "a tensor is undefined");
  TESSERA_CHECK(out.shape() == x.shape() && out.dtype() == x.dtype(), kWhere,
                "{} {} cannot be copied into {} {}", dtype_name(x.dtype()), x.shape().str(),
                dtype_name(out.dtype()), out.shape().str());
  TESSERA_CHECK(out.is_contiguous() && x.is_contiguous(), kWhere,
                "tensors of shape {} must be contiguous", x.shape().str());
  TESSERA_CHECK(out.device() != x.device() && !out.device().is_null() && !x.device().is_null(),
                kWhere, "copies between two devices, got {} and {}", x.device().str(),
                out.device().str());
  copy_elements(out, x, kWhere);
}

}  // namespace tessera
