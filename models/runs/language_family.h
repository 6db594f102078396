#pragma once

/// The families of language models that `tessera train` trains, behind one interface: presets, sizes
/// with an option each, and construction of the model. Private to this folder and to the program.
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

namespace tessera::models::runs {

/// A size of a family's models that has an option.
struct SizeOption {
  const char* name;  ///< of the option: "kv-heads"
  const char* meaning;
  std::uint64_t least = 1;
  bool is_whole = true;
};

/// Keyed by option name.
using Sizes = std::map<std::string, double>;

struct LanguageNetOptions {
  std::string preset;
  Sizes sizes = {};              ///< replaces the preset's
  std::int64_t vocab_size = 0;   ///< 0: the preset's
  std::int64_t max_seq_len = 0;  ///< 0: the preset's
  double dropout = 0;
  DType dtype = DType::kF32;
};

/// A model of any class. Construction allocates no memory.
class LanguageNet {
 public:
  virtual ~LanguageNet() = default;
  virtual nn::Module& module() = 0;
  virtual LanguageModel language_model() = 0;
  /// What the head computes logits from, norm included: [batch, length, dim]. Runs the model's hooks,
  /// so a sharded model works too.
  virtual Variable hidden(const Variable& tokens) = 0;
  virtual void parallelize(const ParallelizeOptions& options) = 0;
  /// Elements of the parameters that one token is multiplied with: without lookup tables, and only
  /// the experts that the token is sent to.
  virtual std::int64_t matmul_parameters() = 0;
};

/// Constant; any thread may use it.
class LanguageFamily {
 public:
  virtual ~LanguageFamily() = default;
  virtual const std::string& name() const = 0;         ///< "gpt"
  virtual const std::string& description() const = 0;  ///< a sentence
  virtual std::vector<std::string> presets() const = 0;
  virtual const std::vector<SizeOption>& sizes() const = 0;
  // Of a preset. These functions throw InvalidArgument for an unknown one.
  virtual std::string description_of(const std::string& preset) const = 0;
  virtual Sizes sizes_of(const std::string& preset) const = 0;
  virtual std::int64_t length_of(const std::string& preset) const = 0;
  virtual double dropout_of(const std::string& preset) const = 0;
  /// Throws InvalidArgument as the model's constructor does, and for a size without an option.
  virtual std::unique_ptr<LanguageNet> build(const LanguageNetOptions& options) const = 0;
};

/// transformer, gpt, llama, moe.
const std::vector<std::string>& language_family_names();
/// Throws InvalidArgument for another name, listing the valid ones.
const LanguageFamily& language_family(const std::string& name);

}  // namespace tessera::models::runs
