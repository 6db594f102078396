#include "tessera/models/nets/position_embedding.h"

#include <cmath>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.PositionEmbedding";

// Computed on the CPU, row by row of the box.
void fill_sines(const Tensor& out, random::Key, const random::Box& box) {
  const std::int64_t dim = out.dim(1);
  std::vector<double> table;
  for (std::int64_t row = 0; row < out.dim(0); ++row) {
    const auto position = static_cast<double>(box.offset[0] + row);
    for (std::int64_t i = 0; i < dim; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(dim);
      const double angle = position / std::pow(10000.0, exponent);
      table.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  const Tensor made = cast(Tensor::from_vector(table, out.shape(), kCpu), out.dtype());
  copy_(out, to_device(made, out.device()));
}

}  // namespace

PositionEmbedding::PositionEmbedding(const PositionEmbeddingOptions& options)
    : max_length_(options.max_length) {
  check_extent(kWhere, "max_length", options.max_length);
  check_extent(kWhere, "dim", options.dim);
  if (options.kind == PositionKind::kLearned) {
    learned_.emplace(nn::EmbeddingOptions{
        .entries = options.max_length, .dim = options.dim, .dtype = options.dtype});
    register_module("learned", *learned_);
    return;
  }
  TESSERA_CHECK(options.dim % 2 == 0, kWhere,
                "dim is {}; sines and cosines come in pairs: make it even, or learn the positions",
                options.dim);
  sines_.emplace(nn::BufferOptions{.shape = {options.max_length, options.dim},
                                   .dtype = DType::kF64,
                                   .init = fill_sines,
                                   .persistent = false,
                                   .keep_dtype = true});
  register_buffer("sines", *sines_);
}

Variable PositionEmbedding::forward(const Variable& x, std::int64_t first) {
  TESSERA_CHECK(x.ndim() == 3, kWhere, "expected x [batch, length, dim], got {}", x.shape().str());
  const std::int64_t length = x.dim(1);
  TESSERA_CHECK(first >= 0 && first + length <= max_length_, kWhere,
                "{} positions from {} on do not lie in a table of {}: build the layer with a "
                "larger max_length",
                length, first, max_length_);
  if (learned_) return x + (*learned_)(positions_of(x, first));
  return x + Variable(cast(sines_->tensor().narrow(0, first, length), x.dtype()));
}

}  // namespace tessera::models
