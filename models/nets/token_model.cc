#include "tessera/models/nets/token_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::models {

void check_extent(const char* where, const char* name, std::int64_t value, std::int64_t least) {
  TESSERA_CHECK(value >= least, where, "{} is {}; it must be at least {}", name, value, least);
}

void check_heads(const char* where, std::int64_t dim, std::int64_t n_heads) {
  check_extent(where, "dim", dim);
  check_extent(where, "n_heads", n_heads);
  TESSERA_CHECK(dim % n_heads == 0, where,
                "dim is {}, n_heads {}; dim must be a multiple of n_heads", dim, n_heads);
}

void check_tokens(const char* where, const Variable& tokens, std::int64_t past,
                  std::int64_t max_length) {
  TESSERA_CHECK(tokens.ndim() == 2, where, "expected tokens [batch, length], got {}",
                tokens.shape().str());
  TESSERA_CHECK(past + tokens.dim(1) <= max_length, where,
                "got {} positions, the model computes {}: cut the sequences, or build the "
                "model with a larger max_seq_len",
                past + tokens.dim(1), max_length);
}

std::int64_t cached_length(const DecodeCache* cache) {
  return cache != nullptr ? cache->length() : 0;
}

nn::AttentionForwardOptions causal_call(DecodeCache* cache, std::int64_t layer) {
  return {.is_causal = true, .cache = cache != nullptr ? &cache->layer(layer) : nullptr};
}

Tensor positions_of(const Variable& x, std::int64_t past) {
  const auto first = static_cast<double>(past);
  return arange(first, first + static_cast<double>(x.dim(1)), 1,
                {.dtype = DType::kI64, .device = x.device()});
}

Variable at_least_f32(const Variable& logits) {
  return dtype_size(logits.dtype()) < dtype_size(DType::kF32) ? cast(logits, DType::kF32) : logits;
}

// The weights whose products are added to the residual stream, in the names of these models.
constexpr const char* kToResidual[] = {"out_proj.weight", "down.weight", "wo.weight", "w2.weight"};

void start_as_gpt2(nn::Module& model, std::int64_t n_layers) {
  constexpr double kDeviation = 0.02;
  for (auto& [name, parameter] : model.named_parameters()) {
    const bool is_residual = std::any_of(std::begin(kToResidual), std::end(kToResidual),
                                         [&](const char* end) { return name.ends_with(end); });
    if (parameter.shape().ndim() == 2) {
      const double layers = is_residual ? 2 * static_cast<double>(n_layers) : 1;
      parameter.set_init(nn::init::normal(0, kDeviation / std::sqrt(layers)));
    } else if (name.ends_with("bias")) {
      parameter.set_init(nn::init::zeros());
    }
  }
}

}  // namespace tessera::models
