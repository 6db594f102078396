// The two-layer perceptron of the sharding tests, and a stack of three.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/nn/buffer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/layer_norm.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

struct MLPOptions {
  std::int64_t dim = 0;         ///< required, >= 1
  std::int64_t multiplier = 4;  ///< the hidden width is multiplier * dim
  bool bias = true;
  bool with_buffer = false;
  DType dtype = DType::kF32;
};

// relu(out_proj(relu(in_proj(x)))) + buffer: [..., dim] -> [..., dim]. The buffer [dim] is drawn
// from a standard normal distribution by initialize() and reinitialize(); PyTorch's
// reset_parameters is therefore reinitialize(). Used by nearly all tests of fully_shard.
class MLP final : public nn::Layer<MLP> {
 public:
  using Options = MLPOptions;
  explicit MLP(const MLPOptions& options);
  Variable forward(const Variable& x);

 private:
  nn::Linear in_proj_, out_proj_;
  std::optional<nn::Buffer> buffer_;
};

struct MLPStackOptions {
  std::int64_t dim = 0;            ///< required, >= 1
  bool with_seq_parallel = false;  ///< a LayerNorm without bias at the end
  DType dtype = DType::kF32;
};

// MLPs "0", "1", "2" with the multipliers 3, 4, 3 (3 is deliberately uneven over 2 ranks), and the
// norm "3". Used by tests with two meshes (tensor parallelism inside data parallelism), and by
// tests of clipping and of replicate. The plan of parallelize() in PyTorch's FSDP tests names
// in_proj and out_proj of each MLP by these paths.
class MLPStack final : public nn::Layer<MLPStack> {
 public:
  using Options = MLPStackOptions;
  explicit MLPStack(const MLPStackOptions& options);
  Variable forward(Variable x);

  /// The MLPs, in order: each is a group, and may be recomputed. The norm belongs to the root.
  std::vector<nn::Module*> groups() { return {&first_, &second_, &third_}; }

 private:
  MLP first_, second_, third_;
  std::optional<nn::LayerNorm> norm_;
};

}  // namespace tessera::testing
