#include "tessera/models/nets/mlp_stack.h"

#include <array>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

constexpr std::array kActivations = {Activation::kGelu, Activation::kRelu};

const MlpOptions& checked(const MlpOptions& options) {
  TESSERA_CHECK(options.in >= 1, "mlp_stack", "in is {}; it must be at least 1", options.in);
  TESSERA_CHECK(options.classes >= 1, "mlp_stack", "classes is {}; it must be at least 1",
                options.classes);
  for (std::size_t i = 0; i < options.hidden.size(); ++i)
    TESSERA_CHECK(options.hidden[i] >= 1, "mlp_stack", "hidden[{}] is {}; it must be at least 1", i,
                  options.hidden[i]);
  return options;
}

}  // namespace

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu";
    case Activation::kRelu:
      return "relu";
  }
  return "?";
}

Activation activation_named(std::string_view name) {
  std::string known;
  for (const Activation activation : kActivations) {
    if (name == activation_name(activation)) return activation;
    known += (known.empty() ? "" : ", ") + std::string(activation_name(activation));
  }
  throw_error<InvalidArgument>("mlp_stack", "unknown activation \"{}\"; there are: {}", name,
                               known);
}

std::span<const MlpPreset> mlp_presets() {
  static const std::vector<MlpPreset> presets = {
      {.name = "base", .hidden = {256, 128}, .activation = Activation::kGelu},
      {.name = "small", .hidden = {128}, .activation = Activation::kGelu},
      {.name = "deep", .hidden = {256, 256, 256, 256}, .activation = Activation::kGelu},
  };
  return presets;
}

const MlpPreset& mlp_preset(std::string_view name) {
  std::string known;
  for (const MlpPreset& preset : mlp_presets()) {
    if (name == preset.name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw_error<InvalidArgument>("mlp_stack", "unknown preset \"{}\"; there are: {}", name, known);
}

MlpBlock::MlpBlock(const Options& options)
    : linear_({.in = options.in, .out = options.out, .dtype = options.dtype}),
      activation_(options.activation) {
  register_module("linear", linear_);
}

Variable MlpBlock::forward(const Variable& x) {
  const Variable y = linear_(x);
  switch (activation_) {
    case Activation::kGelu:
      return gelu(y);
    case Activation::kRelu:
      return relu(y);
  }
  return y;
}

MlpStack::MlpStack(const MlpOptions& options)
    : head_({.in = checked(options).hidden.empty() ? options.in : options.hidden.back(),
             .out = options.classes,
             .dtype = options.dtype}) {
  std::int64_t in = options.in;
  for (const std::int64_t out : options.hidden) {
    blocks_.add<MlpBlock>(MlpBlock::Options{
        .in = in, .out = out, .activation = options.activation, .dtype = options.dtype});
    in = out;
  }
  register_module("blocks", blocks_);
  register_module("head", head_);
}

Variable MlpStack::forward(const Variable& x) { return head_(blocks_(x)); }

Variable MlpStack::hidden(const Variable& x) {
  return hooked([this](const Variable& own) { return blocks_(own); }, x);
}

}  // namespace tessera::models
