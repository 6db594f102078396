#pragma once

/// A stack of fully connected blocks: the smallest model that is really trained.
///
///     x [rows, in] -> block 0 -> block 1 -> ... -> head -> logits [rows, classes]
///
/// A block is a linear layer and an activation; the head is a linear layer. The constructor
/// allocates nothing: call initialize.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"

namespace tessera::models {

enum class Activation : std::uint8_t { kGelu, kRelu };
const char* activation_name(Activation activation);  ///< "gelu", "relu"
/// Throws InvalidArgument for an unknown name, listing the known ones.
Activation activation_named(std::string_view name);

struct MlpOptions {
  std::int64_t in = 784;
  /// Features after each block; empty: only the head.
  std::vector<std::int64_t> hidden = {256, 128};
  std::int64_t classes = 10;
  Activation activation = Activation::kGelu;
  DType dtype = DType::kF32;
};

/// A named size of the model.
struct MlpPreset {
  const char* name;
  std::vector<std::int64_t> hidden;
  Activation activation;
};
/// All presets, the default one first.
std::span<const MlpPreset> mlp_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const MlpPreset& mlp_preset(std::string_view name);

/// Linear, then activation: [rows, in] -> [rows, out].
class MlpBlock final : public nn::Layer<MlpBlock> {
 public:
  struct Options {
    std::int64_t in = 0;
    std::int64_t out = 0;
    Activation activation = Activation::kGelu;
    DType dtype = DType::kF32;
  };
  explicit MlpBlock(const Options& options);
  Variable forward(const Variable& x);

 private:
  nn::Linear linear_;
  Activation activation_;
};

class MlpStack final : public nn::Layer<MlpStack> {
 public:
  /// Throws InvalidArgument for an extent below 1, naming it.
  explicit MlpStack(const MlpOptions& options = {});
  /// x [rows, in], rows may be 0; throws InvalidArgument for any other shape.
  Variable forward(const Variable& x);

  /// What the head computes logits from: [rows, hidden.back()], for a head of your own. Takes x as
  /// forward does, and runs the model's hooks, so a sharded model works too.
  Variable hidden(const Variable& x);

  /// The blocks, in order: sharding makes a group of each.
  nn::Sequential& blocks() { return blocks_; }

 private:
  nn::Sequential blocks_;
  nn::Linear head_;
};

}  // namespace tessera::models
