// A small encoder-decoder with one matrix at both ends: TransformerWithSharedParams of PyTorch's
// FSDP tests, for tests of parity, state dict and mixed precision with tied weights, buffers and
// batch norm.
//
//     src = embed_tokens(src_ids) + vocab_bias + long_buffer
//     y   = output_proj(transformer(src, bn(embed_tokens(tgt_ids)))) [tgt length, 2, 23]
//
// Sequence first: src_ids is 0 ... 11 as [6, 2], tgt_ids 0 ... 7 as [4, 2], the same on all ranks.
// On request each rank's ids are 7 larger (modulo 23) than those of the rank before, so that an
// unreduced gradient changes the result. The loss is the summed cross entropy of y against tgt_ids.
// embed_tokens [23, 16]; transformer: 2 + 2 layers of 8 heads and feedforward 8, dropout 0.1,
// post-norm. output_proj.weight is embed_tokens.weight, listed under that name. Buffers:
// vocab_bias, ones [16]; long_buffer, i64 zeros [16], which no conversion of the model changes and
// which is cast where it is added. bn: BatchNorm1d(2) over (length 4, batch 2, 16), so its channels
// are the batch; or Identity.
#pragma once

#include <optional>
#include <vector>

#include "tessera/nn/buffer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/flatten.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/transformer.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

struct TransformerWithSharedParamsOptions {
  bool add_bn = true;
  bool deterministic = false;  ///< in evaluation mode from the start: no dropout, running
                               ///< statistics
  bool inputs_by_rank = false;
  DType dtype = DType::kF32;
};

class TransformerWithSharedParams final : public nn::Layer<TransformerWithSharedParams>,
                                          public TestModel {
 public:
  using Options = TransformerWithSharedParamsOptions;
  explicit TransformerWithSharedParams(const TransformerWithSharedParamsOptions& options = {});

  Variable forward(const Variable& src_ids, const Variable& tgt_ids);

  nn::Module& root() override { return *this; }
  std::vector<Variable> get_input(Device device, int rank) const override;
  Variable call(const std::vector<Variable>& input) override;
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override;
  /// Every encoder and decoder layer, then the root.
  std::vector<nn::Module*> groups() override;
  /// The modules that tests of ignored modules leave unsharded.
  std::vector<nn::Module*> get_ignored_modules() { return {&transformer_}; }

 private:
  nn::Embedding embed_tokens_;
  nn::Transformer transformer_;
  nn::Linear output_proj_;
  nn::Buffer vocab_bias_, long_buffer_;
  bool inputs_by_rank_;
  std::optional<nn::BatchNorm1d> bn_;
  std::optional<nn::Identity> no_bn_;
};

}  // namespace tessera::testing
