#pragma once

/// A language model on the ranks of a run: the start of training, evaluation and generation.

#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/tools/program/options/language_family.h"
#include "tessera/tools/program/options/mesh_plan.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// The model of these options, without memory: for counts, and for build_on_ranks.
std::unique_ptr<LanguageNet> build_net(const TrainOptions& options, std::int64_t vocab_size);

struct LanguageRun {
  models::Precision precision;
  RunMeshes meshes;
  std::unique_ptr<LanguageNet> net;  ///< sharded; not initialised
};
/// Collective.
LanguageRun build_on_ranks(const distributed::World& world, const TrainOptions& options,
                           std::int64_t vocab_size);

/// Text to generate after the prompt, or from the beginning of a document if the prompt is empty.
/// `on_text` gets each piece, which may end in the middle of a character. Collective.
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

/// The number of elements of all parameters, over all ranks.
std::int64_t count_parameters(nn::Module& module);

}  // namespace tessera::tools
