/// Copies of elements between the host and tensors.

#include <cstddef>
#include <cstring>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/host_elements.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/tensor_impl.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

TraceBox trace_box(const Tensor& tensor) {
  return {tensor.storage().id(), tensor.offset(), tensor.shape(), tensor.strides(), tensor.dtype()};
}

/// out[i] = the i-th element of the strided source, in row-major order.
template <class T>
void gather_elements(const T* from, const Shape& shape, const Shape& strides, T* out) {
  if (shape.numel() == 0) return;
  if (shape.ndim() == 0) {
    *out = *from;
    return;
  }
  const std::int64_t inner = shape.back();
  const std::int64_t inner_stride = strides.back();
  Shape index = Shape::filled(shape.ndim(), 0);
  for (;;) {
    for (std::int64_t i = 0; i < inner; ++i) *out++ = from[i * inner_stride];
    int dim = shape.ndim() - 2;
    for (; dim >= 0; --dim) {
      from += strides[dim];
      if (++index[dim] < shape[dim]) break;
      from -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
    if (dim < 0) return;
  }
}

}  // namespace

Tensor Tensor::from_host(const void* data, std::size_t count, DType dtype, const Shape& shape,
                         Device device) {
  TESSERA_CHECK(static_cast<std::int64_t>(count) == shape.numel(), "tensor.from_vector",
                "{} values do not fill shape {} of {} elements", count, shape.str(), shape.numel());
  Tensor out = empty(shape, {.dtype = dtype, .device = device});
  const DeviceStream& stream = current_stream(device);
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(KernelRecord{"copy_from_host", stream.id(), {}, {trace_box(out)}});
  }
  const std::size_t bytes = count * dtype_size(dtype);
  if (bytes == 0 || device.is_null()) return out;
  void* to = out.storage().data();
  if (stream.kind() == StreamKind::kInline) {
    stream.enqueue("copy_from_host", [to, data, bytes] { std::memcpy(to, data, bytes); });
    return out;
  }
  if (device.is_cuda()) {
    stream.cuda_queue().copy_from_host(to, data, bytes);
    return out;
  }
  const auto* first = static_cast<const std::byte*>(data);
  stream.enqueue("copy_from_host", [to, values = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(to, values.data(), values.size());
  });
  return out;
}

Tensor Tensor::scalar(double value, const TensorOptions& options) {
  return dispatch_all(options.dtype, "tensor.scalar", [&]<class T>() {
    const T converted = static_cast<T>(value);
    return from_host(&converted, 1, options.dtype, {}, options.device);
  });
}

std::size_t Tensor::prepare_host_read(DType wanted, std::int64_t expected) const {
  const char* where = expected < 0 ? "tensor.to_vector" : "tensor.item";
  const Impl& self = impl();
  TESSERA_CHECK(wanted == self.dtype, where,
                "the tensor's elements are {}, not {}; ask for their type or cast the tensor first",
                dtype_name(self.dtype), dtype_name(wanted));
  TESSERA_CHECK(expected < 0 || self.numel == expected, where,
                "shape {} has {} elements, not {}; use to_vector() or reduce it first",
                self.shape.str(), self.numel, expected);
  TESSERA_CHECK_AS(StateError, !device().is_null(), where,
                   "a tensor of shape {} on the null device has no values; say what a plan should "
                   "assume with item(PlanValue{{...}})",
                   self.shape.str());
  self.storage().data();  // throws unless ready, before anything waits
  if (device().is_cuda()) cuda::check_not_capturing(where);
  const DeviceStream& stream = current_stream(device());
  stream.synchronize();
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(KernelRecord{"copy_to_host", 0, {trace_box(*this)}, {}});
  }
  return static_cast<std::size_t>(self.numel);
}

void Tensor::copy_to_host(void* out) const {
  const Impl& self = impl();
  const HostElements elements(*this);
  dispatch_all(self.dtype, "tensor.to_vector", [&]<class T>() {
    gather_elements(static_cast<const T*>(elements.first()), self.shape, self.strides,
                    static_cast<T*>(out));
  });
}

double Tensor::floating_item(DType wanted) const {
  if (!is_floating(dtype())) prepare_host_read(wanted, 1);  // throws: the dtypes differ
  return dispatch_floating(dtype(), "tensor.item",
                           [&]<class T>() { return static_cast<double>(to_vector<T>(1).front()); });
}

double Tensor::item(PlanValue plan) const {
  TESSERA_CHECK(numel() == 1, "tensor.item",
                "shape {} has {} elements, not 1; use to_vector() or reduce it first",
                shape().str(), numel());
  if (device().is_null()) return plan.value;
  return dispatch_all(dtype(), "tensor.item",
                      [&]<class T>() { return static_cast<double>(item<T>()); });
}

HostElements::HostElements(const Tensor& tensor) {
  const std::size_t size = dtype_size(tensor.dtype());
  const auto* data = static_cast<const std::byte*>(tensor.storage().data());
  first_ = data + static_cast<std::size_t>(tensor.offset()) * size;
  if (!tensor.device().is_cuda()) return;
  const std::int64_t span = spanned_elements(tensor.shape(), tensor.strides());
  const std::size_t bytes = static_cast<std::size_t>(span) * size;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) {
    current_stream(tensor.device()).cuda_queue().copy_to_host(copy_.get(), first_, bytes);
  }
  first_ = copy_.get();
}

std::int64_t spanned_elements(const Shape& shape, const Shape& strides) {
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == 0) return 0;
    last += (shape[dim] - 1) * strides[dim];
  }
  return last + 1;
}

}  // namespace tessera
