#pragma once

/// `tessera eval`: the loss of a run on its validation text, or on another text.

#include "tessera/tools/program/options/option_table.h"

namespace tessera::tools {

struct EvalOptions {
  std::string run;
  std::string data;        ///< empty: the validation part of the run's own text
  std::int64_t batch = 0;  ///< 0: the run's
  std::string device;      ///< empty: the run's
  int ranks = 2;
};
void fill_table(OptionTable& table, EvalOptions& options);

/// Prints the same line as the end of the run, for the chosen text. Returns the exit code. Throws
/// as open_run does, and DataError.
int evaluate(const EvalOptions& options, int argc, char** argv);

}  // namespace tessera::tools
