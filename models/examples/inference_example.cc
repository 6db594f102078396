// Inference only: loads a model from a safetensors file and generates text, without gradients and
// with a key-value cache. The file holds the Transformer that learned to count:
//
//     transformer_plain_example /tmp/counting.safetensors
//     inference_example /tmp/counting.safetensors

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL.safetensors\n", argv[0]);
    return 2;
  }
  models::Transformer model({.vocab_size = 16, .dim = 32});
  nn::load_state_dict(model, nn::load_state(argv[1]));  // also allocates it
  const models::LanguageModel language = models::language_model(model);

  // Correct text counts up by 2 start + 1. temperature 0 always takes the most likely token;
  // generate() runs the model in evaluation mode.
  int right = 0;
  for (int32_t start = 0; start < 16; ++start) {
    const int32_t stride = 2 * start + 1;
    const std::vector<int32_t> prompt = {start, (start + stride) % 16};
    std::printf("%d %d:", prompt[0], prompt[1]);
    const models::SamplingOptions options{.max_tokens = 10, .temperature = 0};
    const std::vector<int32_t> text =
        generate(language, prompt, options, [](int32_t token) { std::printf(" %d", token); });
    std::printf("\n");
    for (int32_t i = 0; i < 10; ++i) right += text[i] == (start + (i + 2) * stride) % 16;
  }
  std::printf("%d of 160 tokens count on\n", right);

  // A direct call: the logits of the token after 0 1 2, as probabilities.
  const models::EvalScope scope(model);
  const Variable logits = model(Tensor::from_vector<int64_t>({0, 1, 2}, {1, 3}));
  const Tensor next = softmax(logits.tensor().select(0, 0).select(0, 2));
  std::printf("after 0 1 2 comes 3 with probability %.3f\n", next.select(0, 3).item<float>());
  return right >= 155 ? 0 : 1;
}
