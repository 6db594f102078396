#include "tessera/nn/layers/transformer/rotary_embedding.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.RotaryEmbedding";

const RotaryEmbeddingOptions& checked(const RotaryEmbeddingOptions& options) {
  TESSERA_CHECK(options.dim >= 2 && options.dim % 2 == 0 && options.max_length >= 1, kWhere,
                "expected an even dim of at least 2 and max_length of at least 1, got dim = {}, "
                "max_length = {}",
                options.dim, options.max_length);
  TESSERA_CHECK(options.base > 0 && options.offset >= 0, kWhere,
                "expected base above 0 and offset of at least 0, got base = {}, offset = {}",
                options.base, options.offset);
  return options;
}

BufferOptions table_buffer(const RotaryEmbeddingOptions& options, Tensor RotaryTable::*half) {
  return {.shape = {options.max_length, options.dim / 2},
          .dtype = DType::kF64,
          .init =
              [options, half](const Tensor& out, random::Key, const random::Box& box) {
                const RotaryTable table = rotary_table(out.dim(0), options.dim,
                                                       {.base = options.base,
                                                        .offset = options.offset + box.offset[0],
                                                        .dtype = out.dtype(),
                                                        .device = out.device()});
                copy_(out, table.*half);
              },
          .persistent = false,
          .keep_dtype = true};
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const RotaryEmbeddingOptions& options)
    : pairing_(checked(options).pairing),
      cos_(table_buffer(options, &RotaryTable::cos)),
      sin_(table_buffer(options, &RotaryTable::sin)) {
  register_buffer("cos", cos_);
  register_buffer("sin", sin_);
}

Variable RotaryEmbedding::forward(const Variable& x, std::int64_t position) {
  TESSERA_CHECK(x.ndim() >= 3 && x.dim(-1) >= dim() && is_floating(x.dtype()), kWhere,
                "expected a floating input [..., positions, heads, {} or more], got {} {}", dim(),
                dtype_name(x.dtype()), x.shape().str());
  const std::int64_t length = x.dim(-3);
  TESSERA_CHECK(position >= 0 && position + length <= max_length(), kWhere,
                "{} positions from {} on do not lie in a table of {}: build the layer with a "
                "larger max_length",
                length, position, max_length());
  const DType dtype = compute_dtype(x.dtype());
  const auto rows = [&](const Buffer& half) {
    const Tensor part = half.tensor().narrow(0, position, length);
    return part.dtype() == dtype ? part : cast(part, dtype);
  };
  return rotary(x, {.cos = rows(cos_), .sin = rows(sin_)}, {.pairing = pairing_});
}

}  // namespace tessera::nn
