// Convolutions of the emulated cuDNN, straight from their definition: each product of an element of
// x and one of w that meet at an element of y is added where it belongs.

#include <vector>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_arithmetic.h"

namespace tessera::emulated::cudnn {
namespace {

using enum Role;

struct Geometry {
  std::int64_t stride[2], dilation[2], before[2];
  bool flipped = false;  // a convolution in the mathematical sense
  double alpha = 1, beta = 0;
};

struct Parts {
  int description, alpha, beta;
  Role x, w, y;
};
Parts parts_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              kX,
              kB,
              kY};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              kY,
              kB,
              kX};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              kX,
              kY,
              kB};
  }
}

Geometry geometry_of(const Descriptor& operation, const Parts& parts) {
  const auto conv = operation.descriptor(parts.description);
  const auto stride = conv->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilation = conv->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto before = conv->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  Geometry g;
  for (int i = 0; i < 2; ++i) {
    g.stride[i] = stride[i], g.dilation[i] = dilation[i], g.before[i] = before[i];
  }
  g.flipped =
      conv->one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION) == CUDNN_CONVOLUTION;
  g.alpha = operation.number(parts.alpha, 1);
  g.beta = operation.number(parts.beta, 0);
  return g;
}

// A tensor as dense numbers, in the order of its dims.
template <class Number>
std::vector<Number> dense(const Tensor& t, const char* at, Manner manner) {
  std::vector<Number> values;
  values.reserve(static_cast<std::size_t>(t.numel()));
  for (std::int64_t a = 0; a < t.dims[0]; ++a) {
    for (std::int64_t b = 0; b < t.dims[1]; ++b) {
      for (std::int64_t c = 0; c < t.dims[2]; ++c) {
        for (std::int64_t d = 0; d < t.dims[3]; ++d) {
          const std::int64_t place =
              a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
          values.push_back(operand(manner, read<Number>(t.type, at, place)));
        }
      }
    }
  }
  return values;
}

// f(index of x, index of w, index of y), dense, for all triples that meet.
template <class F>
void for_each_product(const Tensor& x, const Tensor& w, const Tensor& y, const Geometry& g, F f) {
  const std::int64_t per_group = w.dims[1], groups = x.dims[1] / per_group,
                     outs = w.dims[0] / groups, r = w.dims[2], s = w.dims[3];
  const auto meet = [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    const std::int64_t y_at = ((n * y.dims[1] + k) * y.dims[2] + p) * y.dims[3] + q;
    for (std::int64_t c = 0; c < per_group; ++c) {
      for (std::int64_t i = 0; i < r; ++i) {
        const std::int64_t h = p * g.stride[0] + i * g.dilation[0] - g.before[0];
        if (h < 0 || h >= x.dims[2]) continue;
        for (std::int64_t j = 0; j < s; ++j) {
          const std::int64_t v = q * g.stride[1] + j * g.dilation[1] - g.before[1];
          if (v < 0 || v >= x.dims[3]) continue;
          const std::int64_t channel = k / outs * per_group + c;
          const std::int64_t tap = g.flipped ? (r - 1 - i) * s + s - 1 - j : i * s + j;
          f(((n * x.dims[1] + channel) * x.dims[2] + h) * x.dims[3] + v,
            (k * per_group + c) * r * s + tap, y_at);
        }
      }
    }
  };
  for (std::int64_t n = 0; n < y.dims[0]; ++n) {
    for (std::int64_t k = 0; k < y.dims[1]; ++k) {
      for (std::int64_t p = 0; p < y.dims[2]; ++p) {
        for (std::int64_t q = 0; q < y.dims[3]; ++q) meet(n, k, p, q);
      }
    }
  }
}

template <class Number>
void store(const Tensor& t, char* at, const std::vector<Number>& sums, const Geometry& g) {
  std::size_t next = 0;
  for (std::int64_t a = 0; a < t.dims[0]; ++a) {
    for (std::int64_t b = 0; b < t.dims[1]; ++b) {
      for (std::int64_t c = 0; c < t.dims[2]; ++c) {
        for (std::int64_t d = 0; d < t.dims[3]; ++d) {
          const std::int64_t place =
              a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
          Number value = static_cast<Number>(g.alpha) * sums[next++];
          if (g.beta != 0) value += static_cast<Number>(g.beta) * read<Number>(t.type, at, place);
          write(t.type, at, place, value);
        }
      }
    }
  }
}

template <class Number>
void run_as(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  const Parts parts = parts_of(o.type());
  const Geometry g = geometry_of(*o.descriptor, parts);
  const Tensor &x = graph.of(o, parts.x), &w = graph.of(o, parts.w), &y = graph.of(o, parts.y);
  const auto numbers = [&](const Tensor& t) {
    if (t.id == o.output()) return std::vector<Number>(static_cast<std::size_t>(t.numel()));
    return dense<Number>(t, places.at(t.id), manner);
  };
  auto xs = numbers(x), ws = numbers(w), ys = numbers(y);
  auto& sums = parts.y == kY ? ys : parts.x == kY ? xs : ws;
  const auto &left = parts.x == kY ? ys : xs, &right = parts.w == kY ? ys : ws;
  struct Step {
    std::int64_t to, left, right;
  };
  const auto step_of = [&](std::int64_t i, std::int64_t j, std::int64_t l) -> Step {
    if (parts.y == kY) return {l, i, j};
    if (parts.x == kY) return {i, l, j};
    return {j, i, l};
  };
  const auto add = [&](const Step& s) { sums[s.to] += left[s.left] * right[s.right]; };
  if (!manner.backwards) {
    for_each_product(x, w, y, g, [&](auto i, auto j, auto l) { add(step_of(i, j, l)); });
  } else {
    std::vector<Step> steps;
    for_each_product(x, w, y, g,
                     [&](auto i, auto j, auto l) { steps.push_back(step_of(i, j, l)); });
    for (auto s = steps.rbegin(); s != steps.rend(); ++s) add(*s);
  }
  store(graph.of(o, kY), places.at(o.output()), sums, g);
}

}  // namespace

void run_convolution(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  if (o.compute_type == CUDNN_DATA_DOUBLE) {
    run_as<double>(graph, o, places, manner);
  } else {
    run_as<float>(graph, o, places, manner);
  }
}

}  // namespace tessera::emulated::cudnn
