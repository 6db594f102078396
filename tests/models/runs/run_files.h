#pragma once

// Folders of runs for tests, written without the program.

#include <memory>
#include <string>

#include "tessera/models/runs/language_run.h"
#include "tessera/models/runs/train_options.h"

namespace tessera::testing {

// The smallest options of a model: a language model of 2 blocks, or an mlp of two layers. Without
// data.
models::runs::TrainOptions tiny_options(const std::string& model);

// Writes config.json and model.safetensors: of the language model with `seed`.
void write_language_run(const std::string& folder, const models::runs::TrainOptions& options);
// The model that write_language_run saves.
std::unique_ptr<models::runs::LanguageNet> tiny_net(const models::runs::TrainOptions& options);
// The same for the mlp.
void write_mlp_run(const std::string& folder, const models::runs::TrainOptions& options);

}  // namespace tessera::testing
