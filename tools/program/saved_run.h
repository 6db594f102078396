#pragma once

/// A run that `tessera train --out` left: the input of `generate` and `eval`.

#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tools/program/language_run.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

struct SavedRun {
  std::string folder;
  TrainOptions options;  ///< of the run, except those of ranks
  std::unique_ptr<models::data::Tokenizer> tokenizer;
};

struct RunRanks {
  int ranks = 1;
  std::string device;  ///< "cpu", "cuda"; empty: the run's
};
/// Reads config.json and the tokenizer of a language-model run, to be used by rank threads. Throws
/// CannotStart for a folder without a run, a run of another kind of model or another version, and a
/// device that cannot be used; Error if the model's file is missing.
SavedRun open_run(const std::string& folder, const RunRanks& ranks);

/// The model with its saved parameters. Collective.
LanguageRun load_on_ranks(const distributed::World& world, const SavedRun& saved);

}  // namespace tessera::tools
