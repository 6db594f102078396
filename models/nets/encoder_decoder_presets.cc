#include "tessera/models/nets/encoder_decoder.h"
#include "tessera/models/nets/token_model.h"

namespace tessera::models {
namespace {

constexpr std::int64_t kBytes = 256;  // vocabulary of a byte-level tokenizer

// The paper's sizes (table 3, two rows), with the shared vocabulary of English and German.
EncoderDecoderOptions published(std::int64_t dim, std::int64_t n_heads, double dropout_p) {
  return {.encoder_layers = 6,
          .decoder_layers = 6,
          .vocab_size = 37000,
          .max_seq_len = 1024,
          .dim = dim,
          .n_heads = n_heads,
          .ffn_dim = 4 * dim,
          .dropout_p = dropout_p};
}

std::vector<EncoderDecoderPreset> make_presets() {
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.encoder_layers = 3,
                   .decoder_layers = 3,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .n_heads = 6,
                   .ffn_dim = 768}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.encoder_layers = 2,
                   .decoder_layers = 2,
                   .vocab_size = kBytes,
                   .max_seq_len = 33,
                   .dim = 20,
                   .n_heads = 4,
                   .ffn_dim = 46}},
      {.name = "base",
       .description = "\"Attention is all you need\" (Vaswani et al., 2017), base",
       .options = published(512, 8, 0.1)},
      {.name = "big",
       .description = "\"Attention is all you need\" (Vaswani et al., 2017), big",
       .options = published(1024, 16, 0.3)},
  };
}

}  // namespace

const std::vector<EncoderDecoderPreset>& encoder_decoder_presets() {
  static const std::vector<EncoderDecoderPreset> presets = make_presets();
  return presets;
}

const EncoderDecoderPreset& encoder_decoder_preset(std::string_view name) {
  return preset_named("models.encoder_decoder", encoder_decoder_presets(), name);
}

}  // namespace tessera::models
