// Layers and stacks of transformers train as PyTorch's do, recomputed or not.
#include <catch2/catch.hpp>

#include "tessera/nn/layers/transformer/transformer.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::MakeModel;
using testing::squared_error;
using testing::StepResult;
using testing::trained;
using testing::TrainingBatch;

nn::TransformerLayerOptions layer_options() {
  return {.dim = 8, .heads = 2, .feedforward = 10, .dropout = 0};
}
nn::TransformerLayerOptions norm_first() {
  nn::TransformerLayerOptions options = layer_options();
  options.norm_first = true;
  return options;
}
nn::TransformerLayerOptions norm_first_gelu() {
  nn::TransformerLayerOptions options = norm_first();
  options.activation = ActivationKind::kGelu;
  return options;
}
nn::TransformerLayerOptions without_bias() {
  nn::TransformerLayerOptions options = layer_options();
  options.bias = false;
  return options;
}

// ---- encoder ----

using EncoderCall = std::function<nn::TransformerMask(const TrainingBatch&)>;

nn::TransformerMask no_masks(const TrainingBatch&) { return {}; }
nn::TransformerMask mask_and_padding(const TrainingBatch& batch) {
  return {.mask = batch.tensor("mask"), .key_padding_mask = batch.tensor("padding")};
}
nn::TransformerMask causal_and_padding(const TrainingBatch& batch) {
  return {.key_padding_mask = batch.tensor("padding"), .is_causal = true};
}

template <class Encoder>
MakeModel encoder(const typename Encoder::Options& options, EncoderCall call = no_masks,
                  bool recomputed = false) {
  return [=] {
    const auto module = std::make_shared<Encoder>(options);
    nn::recompute(*module, recomputed);
    return trained(module, [call](Encoder& model, const TrainingBatch& batch) {
      return squared_error(model(batch["x"], call(batch)), batch);
    });
  };
}

TEST_CASE("parity: encoder layer") {
  const auto layer = encoder<nn::TransformerEncoderLayer>;
  check_training("encoder_layer", "encoder layer", layer(layer_options(), no_masks, false));
  check_training("encoder_layer", "encoder layer", layer(layer_options(), no_masks, true),
                 "recomputed");
  check_training("encoder_layer", "encoder layer, norm first, gelu",
                 layer(norm_first_gelu(), no_masks, false));
  check_training("encoder_layer", "encoder layer, norm first, gelu",
                 layer(norm_first_gelu(), no_masks, true), "recomputed");
  check_training("encoder_layer", "encoder layer, without bias",
                 layer(without_bias(), no_masks, false));
  check_training("encoder_layer", "encoder layer, masks",
                 layer(layer_options(), mask_and_padding, false));
  check_training("encoder_layer", "encoder layer, masks",
                 layer(layer_options(), causal_and_padding, false), "by is_causal");
}

TEST_CASE("parity: encoder") {
  check_training("encoder_layer", "encoder of two layers and a norm",
                 encoder<nn::TransformerEncoder>(
                     {.layer = norm_first(), .num_layers = 2, .norm = true}, mask_and_padding));
}

// ---- decoder ----

using DecoderCall = std::function<nn::TransformerDecoderMasks(const TrainingBatch&)>;

MakeModel decoder(const nn::TransformerLayerOptions& options, DecoderCall call,
                  bool recomputed = false) {
  return [=] {
    const auto module = std::make_shared<nn::TransformerDecoderLayer>(options);
    nn::recompute(*module, recomputed);
    return trained(module, [call](nn::TransformerDecoderLayer& model, const TrainingBatch& batch) {
      return squared_error(model(batch["x"], batch["memory"], call(batch)), batch);
    });
  };
}

TEST_CASE("parity: decoder layer") {
  const auto plain = [](const TrainingBatch&) { return nn::TransformerDecoderMasks{}; };
  const auto masks = [](const TrainingBatch& batch) -> nn::TransformerDecoderMasks {
    return {.tgt = {.mask = batch.tensor("mask")},
            .memory = {.key_padding_mask = batch.tensor("padding")}};
  };
  check_training("decoder_layer", "decoder layer", decoder(layer_options(), plain));
  check_training("decoder_layer", "decoder layer", decoder(layer_options(), plain, true),
                 "recomputed");
  check_training("decoder_layer", "decoder layer, norm first, gelu",
                 decoder(norm_first_gelu(), plain));
  check_training("decoder_layer", "decoder layer, masks", decoder(layer_options(), masks));
}

// ---- both ----

using TransformerCall = std::function<nn::TransformerMasks(const TrainingBatch&)>;

MakeModel transformer(const nn::TransformerLayerOptions& layer, TransformerCall call) {
  return [=] {
    const nn::TransformerOptions options{.layer = layer, .encoder_layers = 1, .decoder_layers = 2};
    return trained(std::make_shared<nn::Transformer>(options), [call](nn::Transformer& model,
                                                                      const TrainingBatch& batch) {
      return squared_error(model(batch["source"], batch["target_in"], call(batch)), batch);
    });
  };
}

TEST_CASE("parity: Transformer") {
  nn::TransformerLayerOptions length_first = layer_options();
  length_first.batch_first = false;
  check_training(
      "transformer", "Transformer, length before batch",
      transformer(length_first, [](const TrainingBatch&) { return nn::TransformerMasks{}; }));
  check_training(
      "transformer", "Transformer, norm first, gelu, masks",
      transformer(norm_first_gelu(), [](const TrainingBatch& batch) -> nn::TransformerMasks {
        const Tensor padding = batch.tensor("padding");
        return {.src = {.key_padding_mask = padding},
                .tgt = {.mask = batch.tensor("mask")},
                .memory = {.key_padding_mask = padding}};
      }));
}

}  // namespace
}  // namespace tessera
