#include "tessera/tests/support/models/transformer_with_shared_params.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kVocab = 23, kDim = 16, kBatch = 2;

Variable ids(std::int64_t length, std::int64_t first, Device device) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < length * kBatch; ++i) values.push_back((first + i) % kVocab);
  return Variable(to_device(Tensor::from_vector(values, {length, kBatch}), device));
}

}  // namespace

TransformerWithSharedParams::TransformerWithSharedParams(
    const TransformerWithSharedParamsOptions& options)
    : embed_tokens_({.entries = kVocab, .dim = kDim, .dtype = options.dtype}),
      transformer_({.layer = {.dim = kDim,
                              .heads = 8,
                              .feedforward = 8,
                              .dropout = 0.1,
                              .batch_first = false,
                              .dtype = options.dtype},
                    .encoder_layers = 2,
                    .decoder_layers = 2}),
      output_proj_({.in = kDim, .out = kVocab, .dtype = options.dtype}),
      vocab_bias_({.shape = {kDim}, .dtype = options.dtype, .init = nn::init::ones()}),
      long_buffer_({.shape = {kDim}, .dtype = DType::kI64, .init = nn::init::zeros()}),
      inputs_by_rank_(options.inputs_by_rank) {
  register_module("embed_tokens", embed_tokens_);
  register_module("transformer", transformer_);
  register_module("output_proj", output_proj_);
  nn::tie(embed_tokens_.weight(), output_proj_.weight());
  register_buffer("vocab_bias", vocab_bias_);
  register_buffer("long_buffer", long_buffer_);
  if (options.add_bn) {
    bn_.emplace(nn::BatchNormOptions{.channels = kBatch, .dtype = options.dtype});
    register_module("bn", *bn_);
  } else {
    no_bn_.emplace();
    register_module("bn", *no_bn_);
  }
  if (options.deterministic) eval();
}

Variable TransformerWithSharedParams::forward(const Variable& src_ids, const Variable& tgt_ids) {
  const Variable embedded = embed_tokens_(src_ids);
  const Tensor long_buffer = cast(long_buffer_.tensor(), embedded.dtype());
  const Variable src = embedded + Variable(vocab_bias_.tensor()) + Variable(long_buffer);
  const Variable embedded_tgt = embed_tokens_(tgt_ids);
  const Variable tgt = bn_ ? (*bn_)(embedded_tgt) : (*no_bn_)(embedded_tgt);
  return output_proj_(transformer_(src, tgt));
}

std::vector<Variable> TransformerWithSharedParams::get_input(Device device, int rank) const {
  const std::int64_t first = inputs_by_rank_ ? 7 * rank : 0;
  return {ids(6, first, device), ids(4, first, device)};
}

Variable TransformerWithSharedParams::call(const std::vector<Variable>& input) {
  return (*this)(input.at(0), input.at(1));
}

Variable TransformerWithSharedParams::get_loss(const std::vector<Variable>& input,
                                               const Variable& output) {
  const Tensor targets = input.at(1).tensor();
  return cross_entropy(flatten(output, 0, 1), targets.view({targets.numel()}), LossReduction::kSum);
}

std::vector<nn::Module*> TransformerWithSharedParams::groups() {
  std::vector<nn::Module*> out;
  for (const nn::NamedModule& named : named_modules()) {
    if (dynamic_cast<nn::TransformerEncoderLayer*>(named.module) != nullptr ||
        dynamic_cast<nn::TransformerDecoderLayer*>(named.module) != nullptr) {
      out.push_back(named.module);
    }
  }
  out.push_back(this);
  return out;
}

}  // namespace tessera::testing
