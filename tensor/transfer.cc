#include "tessera/tensor/transfer.h"

#include <cstddef>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

TraceBox trace_box(const Tensor& tensor) {
  return {tensor.storage().id(), tensor.offset(), tensor.shape(), tensor.strides(), tensor.dtype()};
}

// Both contiguous; at least one on a GPU. Issued on the GPU's current stream, the receiver's where
// both are on one.
void copy_elements(const Tensor& out, const Tensor& x) {
  const Stream& to = current_stream(out.device());
  const Stream& from = current_stream(x.device());
  if (Trace* trace = active_trace()) {
    trace->add(KernelRecord{
        "to_device", (out.device().is_cuda() ? to : from).id(), {trace_box(x)}, {trace_box(out)}});
  }
  const void* source = read(x).data;
  void* target = write(out).data;
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * dtype_size(x.dtype());
  if (bytes == 0) return;
  if (x.device().is_cpu()) {
    from.synchronize();
    to.cuda_queue().copy_from_host(target, source, bytes);
  } else if (out.device().is_cpu()) {
    to.synchronize();  // the new block may still be in use by earlier work of the stream
    from.cuda_queue().copy_to_host(target, source, bytes);
  } else {
    to.wait(from.record("to_device"));
    to.cuda_queue().copy(target, source, bytes);
    from.wait(to.record("to_device"));  // what it does next may overwrite or free x
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
  if (!device.is_null()) copy_elements(out, contiguous(x));
  return out;
}

}  // namespace tessera
