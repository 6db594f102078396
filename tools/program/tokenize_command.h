#pragma once

/// `tessera tokenize`: trains a tokenizer, and writes text as a token file.

#include "tessera/tools/program/options/option_table.h"

namespace tessera::tools {

struct TokenizeCommandOptions {
  std::string data;
  std::string out;
  std::string tokenizer = "bytes";
  std::optional<std::int64_t> train_tokenizer;  ///< its vocabulary
  std::string type = "bpe";
  double validation = 0.05;
};
void fill_table(OptionTable& table, TokenizeCommandOptions& options);

/// Prints counts and seconds. Returns the exit code; throws as the functions of models/data.
int tokenize_text(const TokenizeCommandOptions& options);

}  // namespace tessera::tools
