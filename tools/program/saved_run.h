#pragma once

/// A run that `tessera train --out` left behind: what `generate` and `eval` read.

#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tools/program/language_run.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

struct SavedRun {
  std::string folder;
  TrainOptions options;  ///< of the run, but for those of ranks
  std::unique_ptr<models::data::Tokenizer> tokenizer;
};

struct RunRanks {
  int ranks = 1;
  std::string device;  ///< "cpu", "cuda"; empty: the run's
};
/// Reads config.json and the tokenizer of a run of a language model, to be used by ranks that are
/// threads. Throws CannotStart for a folder that is none of a run, a run of another kind of model
/// or of another version, and a device that cannot be used; Error where the model's file is
/// missing.
SavedRun open_run(const std::string& folder, const RunRanks& ranks);

/// The model with its saved parameters. Collective.
LanguageRun load_on_ranks(const distributed::World& world, const SavedRun& saved);

}  // namespace tessera::tools
