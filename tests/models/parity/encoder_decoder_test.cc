// The encoder-decoder Transformer trains like an equivalent PyTorch model, with padded sources.
#include "tessera/models/nets/encoder_decoder.h"

#include <catch2/catch.hpp>

#include "tessera/nn/recompute.h"
#include "tessera/tests/models/parity/with_adamw.h"

namespace tessera::models {
namespace {

using testing::MakeModel;
using testing::TrainingBatch;

EncoderDecoderOptions tiny_options() {
  return {.encoder_layers = 2,
          .decoder_layers = 2,
          .vocab_size = 19,
          .max_seq_len = 13,
          .dim = 12,
          .heads = 3,
          .ffn_dim = 23,
          .dropout = 0};
}

MakeModel encoder_decoder_of(const EncoderDecoderOptions& options, bool recomputed = false) {
  return [=] {
    const auto model = std::make_shared<EncoderDecoder>(options);
    for (auto& block : model->encoder_blocks()) nn::recompute(block, recomputed);
    for (auto& block : model->decoder_blocks()) nn::recompute(block, recomputed);
    return testing::trained(model, [](EncoderDecoder& net, const TrainingBatch& batch) {
      const EncoderDecoderCall call{.source_padding = batch.tensor("padding")};
      return testing::mean_cross_entropy(net(batch["source"], batch["wanted"], call),
                                         batch.tensor("next"));
    });
  };
}

TEST_CASE("parity: EncoderDecoder") {
  const std::string file = "encoder_decoder_model";
  check_training(file, "EncoderDecoder, SGD", encoder_decoder_of(tiny_options()));
  check_training(file, "EncoderDecoder, AdamW", with_adamw(encoder_decoder_of(tiny_options())));
  check_training(file, "EncoderDecoder, SGD", encoder_decoder_of(tiny_options(), true),
                 "blocks recomputed");
}

TEST_CASE("parity: EncoderDecoder, learned positions, untied") {
  EncoderDecoderOptions options = tiny_options();
  options.positions = PositionKind::kLearned;
  options.share_embeddings = false;
  options.weight_tying = false;
  check_training("encoder_decoder_learned_model", "EncoderDecoder, learned positions, untied",
                 encoder_decoder_of(options));
}

}  // namespace
}  // namespace tessera::models
