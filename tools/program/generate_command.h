#pragma once

/// `tessera generate`: generates text with the model of a run.

#include "tessera/tools/program/language_run.h"
#include "tessera/tools/program/options/option_table.h"

namespace tessera::tools {

struct GenerateOptions {
  std::string run;
  TextRequest request;
  std::string device;  ///< empty: the run's
  int ranks = 1;
};
void fill_table(OptionTable& table, GenerateOptions& options);

/// Prints the prompt and the generated text, token by token. Returns the exit code. Throws as
/// open_run does.
int generate(GenerateOptions options, int argc, char** argv);

}  // namespace tessera::tools
