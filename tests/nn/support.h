#pragma once

// Small helpers of the nn tests.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/parameter.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {

inline std::vector<double> values(const Tensor& tensor) {
  if (tensor.dtype() == DType::kF64) return tensor.to_vector<double>();
  const std::vector<float> floats = tensor.to_vector<float>();
  return {floats.begin(), floats.end()};
}

struct FakeOwner final : nn::ParameterOwner {
  Device compute_device() const override { return default_device(); }
  explicit FakeOwner(std::string group) : name(std::move(group)) {}
  std::string group_name() const override { return name; }
  bool has_pending_gradients() const override { return pending; }
  void prepare_conversion() override { ++conversions; }
  std::string name;
  bool pending = false;
  int conversions = 0;
};

// A mesh that records its all-reduces, and combines this rank's values with `others`: the sum or
// the largest of the other ranks.
struct FakeMesh final : nn::Mesh {
  FakeMesh(std::vector<std::string> axis_names, int ranks)
      : names(std::move(axis_names)), ranks(ranks) {}
  const std::vector<std::string>& axes() const override { return names; }
  int size(const std::string&) const override { return ranks; }
  int rank(const std::string&) const override { return 0; }
  void all_reduce(const Tensor& tensor, const std::string& axis, nn::MeshReduce op) const override {
    const bool is_max = op == nn::MeshReduce::kMax;
    reduced.push_back(axis + tensor.shape().str() + (is_max ? " max" : ""));
    const std::vector<double> mine = values(tensor);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const Tensor element = tensor.ndim() == 0 ? tensor : tensor.select(0, i);
      const double here = mine[static_cast<std::size_t>(i)];
      fill_(element, is_max ? std::max(here, others) : here + others);
    }
  }
  Tensor all_gather(const Tensor& tensor, const std::string&) const override { return tensor; }
  Tensor reduce_scatter(const Tensor& tensor, const std::string&) const override { return tensor; }
  using nn::Mesh::all_to_all;
  Tensor all_to_all(const Tensor& tensor, const std::string&, const nn::RowCounts&) const override {
    return tensor;
  }

  std::vector<std::string> names;
  int ranks;
  double others = 0;
  mutable std::vector<std::string> reduced;
};

// Rows [first, first + rows) of a parameter of `shape`, in a storage of `padded` rows.
inline nn::Sharding row_sharding(const Shape& shape, std::int64_t first, std::int64_t rows,
                                 std::int64_t padded,
                                 std::shared_ptr<const nn::Mesh> mesh = nn::local_mesh()) {
  const Shape local = shape.with(0, rows);
  return {.spec = {.global_shape = shape,
                   .boxes = {{.offset = Shape::filled(shape.ndim(), 0).with(0, first),
                              .extent = local}},
                   .sharded_axes = {"data"}},
          .mesh = std::move(mesh),
          .local_shape = local,
          .padded_rows = padded};
}

}  // namespace tessera::testing
