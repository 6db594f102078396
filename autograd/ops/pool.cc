#include "tessera/tensor/ops/pool.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/conv.h"
#include "tessera/autograd/ops/view.h"

namespace tessera {
namespace {

// `forward` gives maxima and indices, `backward(dy, indices, x shape)` their derivative.
template <class Forward, class Backward>
Variable record_max(const char* name, const Variable& x, const Forward& forward,
                    const Backward& backward) {
  const MaxPoolResult result = forward(x.tensor());
  return record(name, result.output, {x},
                [indices = SavedTensor(result.indices, name), x_shape = x.shape(), backward](
                    const Tensor& dy, const BackwardContext&) {
                  return std::vector<Tensor>{backward(dy, indices.unpack(), x_shape)};
                });
}

// A mean is linear in x: its derivative is `backward(dy, x shape)`, and the derivative of that is
// `forward` again.
template <class Forward, class Backward>
Variable record_avg(const char* name, const Variable& x, const Forward& forward,
                    const Backward& backward) {
  return record_twice(
      name, forward(x.tensor()), {x},
      [name, x_shape = x.shape(), forward, backward](const Variable& dy, const BackwardContext&) {
        return Gradients{
            record_twice("avg_pool_backward", backward(dy.tensor(), x_shape), {dy},
                         [name, forward, backward](const Variable& dx, const BackwardContext&) {
                           return Gradients{record_avg(name, dx, forward, backward)};
                         })};
      });
}

}  // namespace

Variable max_pool1d(const Variable& x, const MaxPool1dOptions& options) {
  if (x.ndim() == 2) return select(max_pool1d(unsqueeze(x, 0), options), 0, 0);
  return record_max(
      "max_pool1d", x, [options](const Tensor& in) { return max_pool1d(in, options); },
      [options](const Tensor& dy, const Tensor& indices, const Shape& shape) {
        return max_pool_backward(dy, indices, shape, options.as_2d());
      });
}

Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options) {
  if (x.ndim() == 3) return select(max_pool2d(unsqueeze(x, 0), options), 0, 0);
  return record_max(
      "max_pool2d", x, [options](const Tensor& in) { return max_pool2d(in, options); },
      [options](const Tensor& dy, const Tensor& indices, const Shape& shape) {
        return max_pool_backward(dy, indices, shape, options);
      });
}

Variable adaptive_max_pool1d(const Variable& x, std::int64_t output) {
  if (x.ndim() == 2) return select(adaptive_max_pool1d(unsqueeze(x, 0), output), 0, 0);
  return record_max(
      "adaptive_max_pool1d", x,
      [output](const Tensor& in) { return adaptive_max_pool1d(in, output); },
      adaptive_max_pool_backward);
}

Variable adaptive_max_pool2d(const Variable& x, Size2d output) {
  if (x.ndim() == 3) return select(adaptive_max_pool2d(unsqueeze(x, 0), output), 0, 0);
  return record_max(
      "adaptive_max_pool2d", x,
      [output](const Tensor& in) { return adaptive_max_pool2d(in, output); },
      adaptive_max_pool_backward);
}

Variable avg_pool1d(const Variable& x, const AvgPool1dOptions& options) {
  if (x.ndim() == 2) return select(avg_pool1d(unsqueeze(x, 0), options), 0, 0);
  return record_avg(
      "avg_pool1d", x, [options](const Tensor& in) { return avg_pool1d(in, options); },
      [options](const Tensor& dy, const Shape& shape) {
        return avg_pool_backward(dy, shape, options.as_2d());
      });
}

Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options) {
  if (x.ndim() == 3) return select(avg_pool2d(unsqueeze(x, 0), options), 0, 0);
  return record_avg(
      "avg_pool2d", x, [options](const Tensor& in) { return avg_pool2d(in, options); },
      [options](const Tensor& dy, const Shape& shape) {
        return avg_pool_backward(dy, shape, options);
      });
}

Variable adaptive_avg_pool1d(const Variable& x, std::int64_t output) {
  if (x.ndim() == 2) return select(adaptive_avg_pool1d(unsqueeze(x, 0), output), 0, 0);
  return record_avg(
      "adaptive_avg_pool1d", x,
      [output](const Tensor& in) { return adaptive_avg_pool1d(in, output); },
      adaptive_avg_pool_backward);
}

Variable adaptive_avg_pool2d(const Variable& x, Size2d output) {
  if (x.ndim() == 3) return select(adaptive_avg_pool2d(unsqueeze(x, 0), output), 0, 0);
  return record_avg(
      "adaptive_avg_pool2d", x,
      [output](const Tensor& in) { return adaptive_avg_pool2d(in, output); },
      adaptive_avg_pool_backward);
}

}  // namespace tessera
