#pragma once

/// The model of a run's options: alone, or on the ranks of a world. Private to this folder and to
/// the program.

#include <functional>
#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/mesh_plan.h"
#include "tessera/models/runs/text_request.h"
#include "tessera/models/runs/train_options.h"

namespace tessera::models::runs {

/// The language model of these options, without memory: for counts, and for build_on_ranks.
std::unique_ptr<LanguageNet> build_net(const TrainOptions& options, std::int64_t vocab_size);

/// How the options shard a model over the meshes of a run.
ParallelizeOptions parallelize_options(const TrainOptions& options, const RunMeshes& meshes);

struct LanguageRun {
  Precision precision;
  RunMeshes meshes;
  std::unique_ptr<LanguageNet> net;  ///< sharded; not initialised
};
/// Collective.
LanguageRun build_on_ranks(const distributed::World& world, const TrainOptions& options,
                           std::int64_t vocab_size);

/// Text after the prompt. `on_text` gets each piece, which may end in the middle of a character.
/// Collective.
std::string generate_text(const LanguageModel& model, const data::Tokenizer& tokenizer,
                          const TextRequest& request,
                          const std::function<void(const std::string&)>& on_text = {});

/// The number of elements of all parameters, over all ranks.
std::int64_t count_parameters(nn::Module& module);

}  // namespace tessera::models::runs
