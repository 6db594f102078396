// The language models in sizes that train in milliseconds, with dropout, behind one interface: for
// tests that apply to all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/nets/language_model.h"
#include "tessera/models/parallelize/parallelize.h"

namespace tessera::testing {

constexpr std::int64_t kTinyLength = 7;  // positions

class TinyModel {
 public:
  virtual ~TinyModel() = default;
  virtual nn::Module& module() = 0;
  virtual models::LanguageModel language_model() = 0;
  virtual void parallelize(const models::ParallelizeOptions& options) = 0;
};

struct TinyModelOptions {
  DType dtype = DType::kF32;
  double dropout = 0.1;
};

// "transformer", "gpt", "llama", "moe": the last with a capacity that drops no token.
const std::vector<std::string>& tiny_model_names();
// Not initialised. Throws std::invalid_argument for an unknown name.
std::unique_ptr<TinyModel> tiny_model(const std::string& name, const TinyModelOptions& options);

}  // namespace tessera::testing
