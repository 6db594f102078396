#pragma once

/// The families of language models that the program trains, each behind one interface: presets,
/// sizes that options may change, and a model of them.
///
///     const LanguageFamily& gpt = language_family("gpt");
///     std::unique_ptr<LanguageNet> net = gpt.build({.preset = "small", .vocab_size = 257, ...});

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/models/nets/language_model.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/dtype.h"

namespace tessera::tools {

/// A size of a family's model that has an option.
struct SizeOption {
  const char* name;  ///< of the option: "kv-heads"
  const char* meaning;
  std::uint64_t least = 1;
  bool is_whole = true;
};

/// By the name of the option.
using Sizes = std::map<std::string, double>;

struct LanguageNetOptions {
  std::string preset;
  Sizes sizes = {};              ///< in place of the preset's
  std::int64_t vocab_size = 0;   ///< 0: the preset's
  std::int64_t max_seq_len = 0;  ///< 0: the preset's
  double dropout = 0;
  DType dtype = DType::kF32;
};

/// A model whatever its class. Constructing allocates nothing.
class LanguageNet {
 public:
  virtual ~LanguageNet() = default;
  virtual nn::Module& module() = 0;
  virtual models::LanguageModel language_model() = 0;
  virtual void parallelize(const models::ParallelizeOptions& options) = 0;
  /// Elements of the parameters that one token is multiplied with: no table that is looked up in,
  /// and of experts those that it visits.
  virtual std::int64_t matmul_parameters() = 0;
};

/// Constant; any thread.
class LanguageFamily {
 public:
  virtual ~LanguageFamily() = default;
  virtual const std::string& name() const = 0;         ///< "gpt"
  virtual const std::string& description() const = 0;  ///< a sentence
  virtual std::vector<std::string> presets() const = 0;
  virtual const std::vector<SizeOption>& sizes() const = 0;
  // Of a preset. These throw InvalidArgument for an unknown one.
  virtual std::string description_of(const std::string& preset) const = 0;
  virtual Sizes sizes_of(const std::string& preset) const = 0;
  virtual std::int64_t length_of(const std::string& preset) const = 0;
  virtual double dropout_of(const std::string& preset) const = 0;
  /// Throws InvalidArgument as the model's constructor does, and for a size that is no option.
  virtual std::unique_ptr<LanguageNet> build(const LanguageNetOptions& options) const = 0;
};

/// transformer, gpt, llama, moe.
const std::vector<std::string>& language_family_names();
/// Throws InvalidArgument for another name, naming those there are.
const LanguageFamily& language_family(const std::string& name);

}  // namespace tessera::tools
