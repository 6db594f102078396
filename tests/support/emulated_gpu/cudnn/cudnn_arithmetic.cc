#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_arithmetic.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tessera::emulated::cudnn {
namespace {

using enum Role;
using Index = std::vector<std::int64_t>;

// Calls f(index) for each index of these extents, the last dimension fastest.
template <class F>
void for_each_index(const Index& dims, F f) {
  Index index(dims.size(), 0);
  for (;;) {
    f(index);
    std::size_t i = dims.size();
    while (i > 0 && ++index[i - 1] == dims[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

// Where a tensor of fewer heads (or of extent 1) is read for an index of `dims`.
std::int64_t offset(const Tensor& t, const Index& dims, const Index& index) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    at += index[i] / (dims[i] / t.dims[i]) * t.strides[i];
  }
  return at;
}

template <class Number>
void matmul(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  const Tensor &a = graph.of(o, kX), &b = graph.of(o, kB), &c = graph.of(o, kY);
  const std::size_t rank = c.dims.size();
  const std::int64_t m = c.dims[rank - 2], n = c.dims[rank - 1], k = a.dims[rank - 1];
  const auto matrix = [&](const Tensor& t, std::int64_t from, std::int64_t rows,
                          std::int64_t cols) {
    std::vector<Number> values(rows * cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::int64_t at = from + i * t.strides[rank - 2] + j * t.strides[rank - 1];
        values[i * cols + j] = operand(manner, read<Number>(t.type, places.at(t.id), at));
      }
    }
    return values;
  };
  Index batches(c.dims.begin(), c.dims.end() - 2);
  for_each_index(batches, [&](const Index& batch) {
    const auto left = matrix(a, offset(a, batches, batch), m, k);
    const auto right = matrix(b, offset(b, batches, batch), k, n);
    std::vector<Number> row(n);
    for (std::int64_t i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), Number(0));
      for (std::int64_t step = 0; step < k; ++step) {
        const std::int64_t l = manner.backwards ? k - 1 - step : step;
        const Number factor = left[i * k + l];
        for (std::int64_t j = 0; j < n; ++j) row[j] += factor * right[l * n + j];
      }
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at =
            offset(c, batches, batch) + i * c.strides[rank - 2] + j * c.strides[rank - 1];
        write(c.type, places.at(c.id), at, row[j]);
      }
    }
  });
}

template <class Number>
Number pointwise(cudnnPointwiseMode_t mode, Number x, Number b, Number t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    default:
      return x;
  }
}

template <class Number>
void pointwise(const Graph& graph, const Operation& o, const Places& places) {
  const auto description = o.descriptor->descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = description->one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
  const auto axis = description->one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0);
  const Tensor& y = graph.of(o, kY);
  for_each_index(y.dims, [&](const Index& index) {
    const auto input = [&](Role role) {
      if (!o.tensors.contains(role)) return Number(0);
      const Tensor& x = graph.of(o, role);
      return read<Number>(x.type, places.at(x.id), offset(x, y.dims, index));
    };
    const Number value = mode == CUDNN_POINTWISE_GEN_INDEX
                             ? static_cast<Number>(index[axis])
                             : pointwise(mode, input(kX), input(kB), input(kT));
    write(y.type, places.at(y.id), offset(y, y.dims, index), value);
  });
}

template <class Number>
void reduce(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  const auto op = o.descriptor->descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                      ->one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
  const Tensor &x = graph.of(o, kX), &y = graph.of(o, kY);
  Index block(y.dims.size());
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = x.dims[i] / y.dims[i];
  }
  for_each_index(y.dims, [&](const Index& index) {
    std::vector<Number> values;
    for_each_index(block, [&](const Index& inside) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < block.size(); ++i) {
        at += (index[i] * block[i] + inside[i]) * x.strides[i];
      }
      values.push_back(read<Number>(x.type, places.at(x.id), at));
    });
    if (manner.backwards) std::reverse(values.begin(), values.end());
    Number result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) {
      if (op == CUDNN_REDUCE_TENSOR_MAX) {
        result = result < values[i] ? values[i] : result;
      } else {
        result += values[i];
      }
    }
    write(y.type, places.at(y.id), offset(y, y.dims, index), result);
  });
}

// Into another type, in the order of memory.
template <class Number>
void reshape(const Graph& graph, const Operation& o, const Places& places) {
  const Tensor &x = graph.of(o, kX), &y = graph.of(o, kY);
  for (std::int64_t at = 0; at < y.extent(); ++at) {
    write(y.type, places.at(y.id), at, read<Number>(x.type, places.at(x.id), at));
  }
}

template <class Number>
void run_as(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  switch (o.type()) {
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return reshape<Number>(graph, o, places);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return matmul<Number>(graph, o, places, manner);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return pointwise<Number>(graph, o, places);
    default:
      return reduce<Number>(graph, o, places, manner);
  }
}

}  // namespace

void run_operation(const Graph& graph, const Operation& o, const Places& places, Manner manner) {
  switch (o.type()) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return run_convolution(graph, o, places, manner);
    default:
      break;
  }
  if (o.compute_type == CUDNN_DATA_DOUBLE || graph.of(o, kX).type == CUDNN_DATA_DOUBLE) {
    run_as<double>(graph, o, places, manner);
  } else {
    run_as<float>(graph, o, places, manner);
  }
}

}  // namespace tessera::emulated::cudnn
