// KeyValueCache: decoding in steps is the full causal forward; growing, clearing, errors.
#include "tessera/nn/layers/transformer/key_value_cache.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {
namespace {

using nn::AttentionForwardOptions;

std::shared_ptr<nn::RotaryEmbedding> rotary(std::int64_t dim) {
  return std::make_shared<nn::RotaryEmbedding>(
      nn::RotaryEmbeddingOptions{.dim = dim, .max_length = 9});
}

TEST_CASE("decoding in steps of any size is the full causal forward") {
  const nn::MultiheadAttentionOptions kinds[] = {
      {.dim = 6, .heads = 3, .dtype = DType::kF64},
      {.dim = 8, .heads = 4, .kv_heads = 2, .rotary = rotary(2), .dtype = DType::kF64},
      {.dim = 8,
       .heads = 2,
       .kv_heads = 1,
       .batch_first = false,
       .rotary = rotary(4),
       .dtype = DType::kF64},
  };
  for (const nn::MultiheadAttentionOptions& options : kinds) {
    nn::MultiheadAttention layer(options);
    fill_with_waves(layer);
    const int length_dim = options.batch_first ? 1 : 0;
    const Variable x =
        wave_input(options.batch_first ? Shape{2, 7, options.dim} : Shape{7, 2, options.dim}, 0.2);
    const Tensor padding =
        Tensor::from_vector<bool>({false, false, true, false, false, false, false,  //
                                   true, false, false, false, true, true, false},
                                  {2, 7});
    for (const bool padded : {false, true}) {
      const auto mask = [&](std::int64_t keys) {
        return padded ? padding.narrow(1, 0, keys) : Tensor();
      };
      const Variable full =
          layer(x, AttentionForwardOptions{.key_padding_mask = mask(7), .is_causal = true}).output;
      NoGradGuard no_grad;
      nn::KeyValueCache cache({.capacity = 2});
      std::vector<Variable> steps;
      for (const std::int64_t count : {3, 1, 2, 1}) {
        const Variable part = narrow(x, length_dim, cache.length(), count);
        steps.push_back(
            layer(part, AttentionForwardOptions{.key_padding_mask = mask(cache.length() + count),
                                                .is_causal = true,
                                                .need_weights = padded && count == 2,
                                                .cache = &cache})
                .output);
      }
      CHECK(cache.length() == 7);
      check_close(values(cat(steps, length_dim).tensor()), values(full.tensor()));
    }
  }
}

TEST_CASE("one rotary embedding is shared by layers and registered in each") {
  struct Pair final : nn::Layer<Pair> {
    explicit Pair(const std::shared_ptr<nn::RotaryEmbedding>& rotary)
        : first({.dim = 8, .heads = 2, .rotary = rotary, .dtype = DType::kF64}),
          second({.dim = 8, .heads = 4, .kv_heads = 1, .dtype = DType::kF64}),
          third({.dim = 8, .heads = 2, .rotary = rotary, .dtype = DType::kF64}) {
      register_module("first", first);
      register_module("second", second);
      register_module("third", third);
    }
    Variable forward(const Variable& x) { return third(second(first(x).output).output).output; }
    nn::MultiheadAttention first, second, third;
  };
  Pair model(rotary(4));
  CHECK(model.named_buffers().size() == 2);
  CHECK(model.named_buffers()[0].name == "first.rotary.cos");
  fill_with_waves(model);
  const Variable x = wave_input({1, 4, 8}, 0.2);
  CHECK(model(x).shape() == Shape{1, 4, 8});
  // Rotary positions: attention of a sequence to itself does depend on the order now.
  const auto sum_of = [&](nn::MultiheadAttention& layer, const Variable& in) {
    return values(sum(layer(in).output, {1}).tensor());
  };
  check_close(sum_of(model.second, x), sum_of(model.second, flip(x, {1})));
  CHECK(std::abs(sum_of(model.first, x)[0] - sum_of(model.first, flip(x, {1}))[0]) > 1e-3);
}

TEST_CASE("a cache grows, keeps what it has, and forgets on clear") {
  nn::KeyValueCache cache({.capacity = 1});
  CHECK(cache.length() == 0);
  CHECK_FALSE(cache.keys().defined());
  CHECK_FALSE(cache.values().defined());
  const Tensor keys = waves({2, 3, 11, 2}, 0.1), added = waves({2, 3, 11, 5}, 0.7);
  std::int64_t length = 0;
  for (const std::int64_t count : {0, 1, 2, 0, 5, 3}) {
    cache.append(Variable(keys.narrow(2, length, count)), Variable(added.narrow(2, length, count)));
    length += count;
    CHECK(cache.length() == length);
    CHECK(cache.keys().shape() == Shape{2, 3, length, 2});
    CHECK(values(cache.keys().tensor()) == values(keys.narrow(2, 0, length)));
    CHECK(values(cache.values().tensor()) == values(added.narrow(2, 0, length)));
  }
  cache.clear();
  CHECK(cache.length() == 0);
  CHECK_FALSE(cache.keys().defined());
  cache.append(Variable(zeros({1, 1, 2, 4})), Variable(zeros({1, 1, 2, 4})));
  CHECK(cache.keys().shape() == Shape{1, 1, 2, 4});
}

TEST_CASE("a call that is refused for its mask leaves the cache as it was") {
  const NoGradGuard no_grad;
  nn::MultiheadAttention attention({.dim = 4, .heads = 2});
  nn::initialize(attention);
  nn::KeyValueCache cache;
  const Variable x(zeros({1, 2, 4}));
  attention(x, nn::AttentionForwardOptions{.cache = &cache});
  CHECK(thrown<InvalidArgument>([&] {
          attention(x, nn::AttentionForwardOptions{.attn_mask = zeros({2, 2}), .cache = &cache});
        }).find("attn_mask [2, 2] does not fit scores") != std::string::npos);
  CHECK(cache.length() == 2);
}

TEST_CASE("a cache names what does not fit") {
  const std::string where = "[nn.KeyValueCache] ";
  CHECK(thrown<InvalidArgument>([] { nn::KeyValueCache({.capacity = 0}); }) ==
        where + "capacity is 0; it must be at least 1");
  nn::KeyValueCache cache;
  const Variable plain(zeros({2, 1, 3, 4}));
  CHECK(thrown<StateError>([&] {
          cache.append(Variable(zeros({2, 1, 3, 4}), true), plain);
        }) == where +
                  "the new keys require gradients, and a cache keeps no history: decode in a "
                  "NoGradGuard");
  CHECK(thrown<StateError>([&] {
          cache.append(plain, Variable(zeros({2, 1, 3, 4}), true));
        }).find("the new values require gradients") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          cache.append(plain, Variable(zeros({2, 1, 2, 4})));
        }) ==
        where +
            "expected keys and values [batch, heads, positions, dim] that differ in dim only, "
            "got [2, 1, 3, 4] and [2, 1, 2, 4]");
  CHECK(thrown<InvalidArgument>([&] {
          cache.append(Variable(zeros({1, 3, 4})), Variable(zeros({1, 3, 4})));
        }).find("got [1, 3, 4]") != std::string::npos);
  cache.append(plain, plain);
  const Variable other(zeros({3, 1, 2, 4})), doubles(zeros({2, 1, 2, 4}, {.dtype = DType::kF64}));
  CHECK(thrown<InvalidArgument>([&] { cache.append(other, other); }) ==
        where + "the new keys are f32 [3, 1, 2, 4] on " + default_device().str() +
            ", those before need f32 [2, 1, 2, 4] on " + default_device().str() + ": clear() it");
  CHECK(thrown<InvalidArgument>([&] { cache.append(doubles, doubles); }).find("f64") !=
        std::string::npos);
  const Variable planned(zeros({2, 1, 2, 4}, {.device = kNull}));
  CHECK(thrown<InvalidArgument>([&] { cache.append(planned, planned); }).find("on null") !=
        std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          cache.append(Variable(zeros({2, 1, 2, 4})), Variable(zeros({2, 1, 2, 5})));
        }).find("the new values are f32 [2, 1, 2, 5]") != std::string::npos);
  CHECK(cache.length() == 3);
}

}  // namespace
}  // namespace tessera::testing
