#pragma once

/// A LanguageFamily made of a model's class, its presets and those members of its options that are
/// options of the program.

#include <functional>
#include <type_traits>
#include <utility>
#include <variant>

#include "tessera/models/runs/language_family.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/check.h"

namespace tessera::models::runs {

/// A SizeOption and the member that stores it.
template <class Options>
struct SizeField {
  SizeOption option;
  std::variant<int Options::*, std::int64_t Options::*, double Options::*> member;

  double get(const Options& options) const {
    return std::visit([&](auto each) { return static_cast<double>(options.*each); }, member);
  }
  void set(Options& options, double value) const {
    const auto write = [value]<class Number>(Number& target) {
      target = static_cast<Number>(value);
    };
    std::visit([&](auto each) { write(options.*each); }, member);
  }
};

template <class Options, class Number>
SizeField<Options> size_field(SizeOption option, Number Options::*member) {
  option.is_whole = std::is_integral_v<Number>;
  return {.option = option, .member = member};
}

/// Elements of the weights of linear layers and of other matrices, except lookup tables. A table
/// that is also the weight of a linear layer counts once. `experts` gives the fraction of a
/// parameter that a token uses.
std::int64_t count_matmul_parameters(nn::Module& module,
                                     const std::function<double(const std::string&)>& part);

template <class Model>
class LanguageNetOf final : public LanguageNet {
 public:
  LanguageNetOf(const typename Model::Options& options, double expert_part)
      : model_(options), expert_part_(expert_part) {}
  Model& model() { return model_; }
  nn::Module& module() override { return model_; }
  LanguageModel language_model() override { return models::language_model(model_, parallel_); }
  Variable hidden(const Variable& tokens) override { return states_of(model_.hidden(tokens)); }
  void parallelize(const ParallelizeOptions& options) override {
    models::parallelize(model_, options);
    parallel_ = options;
  }
  std::int64_t matmul_parameters() override {
    return count_matmul_parameters(model_, [this](const std::string& name) {
      return name.find(".experts.") == std::string::npos ? 1.0 : expert_part_;
    });
  }

 private:
  static Variable states_of(const Variable& states) { return states; }
  // Of a mixture of experts.
  template <class Result>
  static Variable states_of(const Result& result) {
    return result.hidden;
  }

  Model model_;
  double expert_part_;
  ParallelizeOptions parallel_;
};

template <class Model, class Preset>
class LanguageFamilyOf final : public LanguageFamily {
 public:
  using Options = typename Model::Options;
  struct Parts {
    std::string name;
    std::string description;
    const std::vector<Preset>& (*presets)();
    const Preset& (*preset)(std::string_view name);
    std::vector<SizeField<Options>> fields;
    /// The fraction of the experts that a token is sent to.
    std::function<double(const Options&)> expert_part = [](const Options&) { return 1.0; };
    /// Sets initial values for training if they differ from the model's own.
    std::function<void(Model&, const Options&)> start = [](Model&, const Options&) {};
  };
  explicit LanguageFamilyOf(Parts parts) : parts_(std::move(parts)) {
    for (const SizeField<Options>& field : parts_.fields) sizes_.push_back(field.option);
  }

  const std::string& name() const override { return parts_.name; }
  const std::string& description() const override { return parts_.description; }
  std::vector<std::string> presets() const override {
    std::vector<std::string> names;
    for (const Preset& preset : parts_.presets()) names.emplace_back(preset.name);
    return names;
  }
  const std::vector<SizeOption>& sizes() const override { return sizes_; }
  std::string description_of(const std::string& preset) const override {
    return parts_.preset(preset).description;
  }
  Sizes sizes_of(const std::string& preset) const override {
    Sizes sizes;
    for (const SizeField<Options>& field : parts_.fields)
      sizes[field.option.name] = field.get(parts_.preset(preset).options);
    return sizes;
  }
  std::int64_t length_of(const std::string& preset) const override {
    return parts_.preset(preset).options.max_seq_len;
  }
  double dropout_of(const std::string& preset) const override {
    return parts_.preset(preset).options.dropout;
  }
  std::unique_ptr<LanguageNet> build(const LanguageNetOptions& asked) const override {
    Options options = parts_.preset(asked.preset).options;
    for (const auto& [name, value] : asked.sizes) field_of(name).set(options, value);
    if (asked.vocab_size > 0) options.vocab_size = asked.vocab_size;
    if (asked.max_seq_len > 0) options.max_seq_len = asked.max_seq_len;
    options.dropout = asked.dropout;
    options.dtype = asked.dtype;
    auto net = std::make_unique<LanguageNetOf<Model>>(options, parts_.expert_part(options));
    parts_.start(net->model(), options);
    return net;
  }

 private:
  const SizeField<Options>& field_of(const std::string& name) const {
    for (const SizeField<Options>& field : parts_.fields)
      if (field.option.name == name) return field;
    throw_error<InvalidArgument>("runs.language_family", "{} has no size {}", parts_.name, name);
  }

  Parts parts_;
  std::vector<SizeOption> sizes_;
};

}  // namespace tessera::models::runs
