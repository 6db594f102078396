#include "tessera/nn/layers/transformer/attention_mask.h"

#include <limits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.merge_attention_masks";
constexpr double kHidden = -std::numeric_limits<double>::infinity();

void check_dtype(const char* name, const Tensor& mask) {
  TESSERA_CHECK(mask.dtype() == DType::kBool || is_floating(mask.dtype()), kWhere,
                "{} has dtype {}; it must be bool (true: may not be attended to) or floating "
                "(added to the scores)",
                name, dtype_name(mask.dtype()));
}

bool broadcasts_to(const Shape& mask, const Shape& scores) {
  bool fits = mask.ndim() == scores.ndim();
  for (int d = 0; fits && d < scores.ndim(); ++d) fits = mask[d] == 1 || mask[d] == scores[d];
  return fits;
}

// With 4 dims that broadcast to the scores.
Tensor aligned_attn_mask(const Tensor& mask, const Shape& scores) {
  if (!mask.defined()) return {};
  check_dtype("attn_mask", mask);
  const Shape square{scores[2], scores[3]}, each_head{scores[0] * scores[1], scores[2], scores[3]};
  if (mask.shape() == square) return mask.view({1, 1, scores[2], scores[3]});
  if (mask.shape() == each_head) return reshape(mask, scores);
  TESSERA_CHECK(broadcasts_to(mask.shape(), scores), kWhere,
                "attn_mask {} does not fit scores [batch, heads, queries, keys] of {}: pass {}, "
                "{} or 4 dims that broadcast to them",
                mask.shape().str(), scores.str(), square.str(), each_head.str());
  return mask;
}

Tensor aligned_padding_mask(const Tensor& mask, const Shape& scores) {
  if (!mask.defined()) return {};
  check_dtype("key_padding_mask", mask);
  const Shape expected{scores[0], scores[3]};
  TESSERA_CHECK(mask.shape() == expected, kWhere,
                "key_padding_mask is {}, expected {}, that is "
                "[batch, keys]",
                mask.shape().str(), expected.str());
  return mask.unsqueeze(1).unsqueeze(1);
}

}  // namespace

Tensor merge_attention_masks(const AttentionMasks& masks, const Shape& scores) {
  const Tensor a = aligned_attn_mask(masks.attn_mask, scores);
  const Tensor b = aligned_padding_mask(masks.key_padding_mask, scores);
  const auto is_bool = [](const Tensor& mask) { return mask.dtype() == DType::kBool; };
  if (!a.defined() || !b.defined()) {
    const Tensor& one = a.defined() ? a : b;
    return one.defined() && is_bool(one) ? logical_not(one) : one;
  }
  if (is_bool(a) && is_bool(b)) return logical_not(logical_or(a, b));
  if (is_bool(a)) return where(a, kHidden, b);
  if (is_bool(b)) return where(b, kHidden, a);
  return add(a, b);
}

Tensor generate_square_subsequent_mask(std::int64_t size, const TensorOptions& options) {
  TESSERA_CHECK(size >= 0 && is_floating(options.dtype), "nn.generate_square_subsequent_mask",
                "expected a size of at least 0 and a floating dtype, got {} and {}", size,
                dtype_name(options.dtype));
  return triu(full({size, size}, kHidden, options), 1);
}

}  // namespace tessera::nn
