#pragma once

/// A language model on the ranks of a run: what training, evaluation and generation begin with.

#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/tools/program/options/language_family.h"
#include "tessera/tools/program/options/mesh_plan.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// The model that the options describe, on no device: for counts, and for build_on_ranks.
std::unique_ptr<LanguageNet> build_net(const TrainOptions& options, std::int64_t vocab_size);

struct LanguageRun {
  models::Precision precision;
  RunMeshes meshes;
  std::unique_ptr<LanguageNet> net;  ///< spread over the ranks; not initialised
};
/// Collective.
LanguageRun build_on_ranks(const distributed::World& world, const TrainOptions& options,
                           std::int64_t vocab_size);

/// Text that goes on behind the prompt, or begins a document where that is empty. `on_text` is told
/// each piece, which may end within a character. Collective.
struct TextRequest {
  std::string prompt;
  std::int64_t max_tokens = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;
  double top_p = 0.95;
  std::uint64_t seed = 1;
};
std::string generate_text(LanguageNet& net, const models::data::Tokenizer& tokenizer,
                          const TextRequest& request,
                          const std::function<void(const std::string&)>& on_text = {});

/// Elements of all parameters.
std::int64_t count_parameters(nn::Module& module);

}  // namespace tessera::tools
