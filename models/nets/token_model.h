#pragma once

/// Small functions that the token models share.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/check.h"

namespace tessera::models {

/// Throws InvalidArgument naming the extent if it is below `least`.
void check_extent(const char* where, const char* name, std::int64_t value, std::int64_t least = 1);
/// Throws InvalidArgument unless both are at least 1 and n_heads divides dim.
void check_heads(const char* where, std::int64_t dim, std::int64_t n_heads);
/// Throws InvalidArgument unless tokens are [batch, length] and their positions, which start at
/// `past`, are below max_length.
void check_tokens(const char* where, const Variable& tokens, std::int64_t past,
                  std::int64_t max_length);

/// Number of positions in the cache; 0 for null.
std::int64_t cached_length(const DecodeCache* cache);
/// The options of a block's self attention: causal, with the cache of the layer.
nn::AttentionForwardOptions causal_call(DecodeCache* cache, std::int64_t layer);

/// i64 [length]: past, past + 1, ... on the device of x [batch, length, ...].
Tensor positions_of(const Variable& x, std::int64_t past);

/// Casts logits of 16 bits to f32, because 16 bits lose differences that the loss needs. f64 stays
/// f64.
Variable at_least_f32(const Variable& logits);

/// GPT-2's initial values: matrices normal with standard deviation 0.02, or 0.02 / sqrt(2 n_layers)
/// for those named out_proj.weight and down.weight, whose products are added to the residual
/// stream; biases of linear layers and projections 0. Norms keep their values.
void start_as_gpt2(nn::Module& model, std::int64_t n_layers);

/// The preset of this name. Throws InvalidArgument for an unknown name, listing the known ones.
template <class Preset>
const Preset& preset_named(const char* where, const std::vector<Preset>& presets,
                           std::string_view name) {
  std::string known;
  for (const Preset& preset : presets) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw_error<InvalidArgument>(where, "unknown preset \"{}\"; there are: {}", name, known);
}

}  // namespace tessera::models
