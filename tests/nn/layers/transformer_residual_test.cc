// Transformer layers against their formulas written with additions and norms apart: equal bits.

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tessera/nn/layers/transformer/transformer.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/layers/layer_support.h"
#include "tessera/tests/nn/layers/transformers.h"

namespace tessera::testing {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;

// The children of a layer, by name; there is no dropout.
class Parts {
 public:
  explicit Parts(nn::Module& layer) : layer_(layer) {}

  Variable norm(int number, const Variable& x) const {
    return part<nn::LayerNorm>("norm" + std::to_string(number))(x);
  }
  Variable self(const Variable& x) const {
    return part<nn::MultiheadAttention>("self_attn")(x, nn::AttentionForwardOptions{}).output;
  }
  Variable cross(const Variable& x, const Variable& memory) const {
    auto& attention = part<nn::MultiheadAttention>("multihead_attn");
    return attention(x, memory, memory, nn::AttentionForwardOptions{}).output;
  }
  Variable feed_forward(const Variable& x) const {
    return part<nn::Linear>("linear2")(relu(part<nn::Linear>("linear1")(x)));
  }

 private:
  template <class L>
  L& part(const std::string& name) const {
    return dynamic_cast<L&>(layer_.get_submodule(name));
  }
  nn::Module& layer_;
};

Variable encoder_formula(const Parts& l, Variable x, bool norm_first) {
  if (norm_first) {
    x = x + l.self(l.norm(1, x));
    return x + l.feed_forward(l.norm(2, x));
  }
  x = l.norm(1, x + l.self(x));
  return l.norm(2, x + l.feed_forward(x));
}

Variable decoder_formula(const Parts& l, Variable x, const Variable& memory, bool norm_first) {
  if (norm_first) {
    x = x + l.self(l.norm(1, x));
    x = x + l.cross(l.norm(2, x), memory);
    return x + l.feed_forward(l.norm(3, x));
  }
  x = l.norm(1, x + l.self(x));
  x = l.norm(2, x + l.cross(x, memory));
  return l.norm(3, x + l.feed_forward(x));
}

// The result, and the gradients of inputs and parameters.
std::vector<Tensor> trained(const nn::Module& layer, const Function& function) {
  const std::vector<Variable> inputs = {wave_input({2, 3, 4}, 0.2), wave_input({2, 5, 4}, 0.7)};
  std::vector<Variable> leaves = inputs;
  for (const nn::Parameter& p : layer.parameters()) leaves.push_back(p.value());
  const Variable y = function(inputs), loss = weigh(y);
  std::vector<Tensor> out = {y.tensor()};
  for (const Variable& gradient : grad({&loss, 1}, leaves))
    if (gradient.defined()) out.push_back(gradient.tensor());
  return out;
}

void check_same(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    CHECK(all_equal(got[i], expected[i]));
  }
}

// How many Variables each norm is called with.
std::vector<int> norm_arguments(nn::Module& layer, int norms, const std::function<void()>& call) {
  std::vector<int> out(static_cast<std::size_t>(norms));
  std::vector<HookHandle> hooks;
  for (int i = 0; i < norms; ++i) {
    hooks.push_back(
        layer.get_submodule("norm" + std::to_string(i + 1))
            .register_forward_pre_hook([&count = out[static_cast<std::size_t>(i)]](
                                           nn::Module&, const nn::VisitVariables& arguments) {
              arguments([&count](Variable&) { ++count; });
            }));
  }
  call();
  for (HookHandle& hook : hooks) hook.remove();
  return out;
}

TEST_CASE("a transformer's layers add and normalise in one call, with the bits of their formulas") {
  for (const bool norm_first : {false, true}) {
    INFO("norm_first " << norm_first);
    nn::TransformerEncoderLayer encoder(small(norm_first));
    nn::TransformerDecoderLayer decoder(small(norm_first));
    fill_with_waves(encoder);
    fill_with_waves(decoder);
    const Function encode = [&](const auto& in) { return encoder(in[0]); };
    const Function decode = [&](const auto& in) { return decoder(in[0], in[1]); };
    check_same(trained(encoder, encode), trained(encoder, [&](const auto& in) {
                 return encoder_formula(Parts(encoder), in[0], norm_first);
               }));
    check_same(trained(decoder, decode), trained(decoder, [&](const auto& in) {
                 return decoder_formula(Parts(decoder), in[0], in[1], norm_first);
               }));
    const int first = norm_first ? 1 : 2;  // norms of the stream alone, or of a sum
    CHECK(norm_arguments(encoder, 2, [&] { trained(encoder, encode); }) ==
          std::vector<int>{first, 2});
    CHECK(norm_arguments(decoder, 3, [&] { trained(decoder, decode); }) ==
          std::vector<int>{first, 2, 2});
  }
}

}  // namespace
}  // namespace tessera::testing
