#pragma once

/// The commands of the program: the one of a command line, and those besides `train`.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/models/runs/option_table.h"
#include "tessera/models/runs/text_request.h"

namespace tessera::tools {

/// The commands of the program.

/// Runs the command of a command line and returns the exit code. Throws CannotStart for an invalid
/// command line, suggesting the closest valid word, and the errors of the command.
int run_command_line(int argc, char** argv);

/// The commands of `tessera` besides `train`.

/// `tessera eval`: the loss of a run on its validation text, or on another text.
struct EvalOptions {
  std::string run;
  std::string data;        ///< empty: the validation part of the run's own text
  std::int64_t batch = 0;  ///< 0: the run's
  std::string device;      ///< empty: the run's
  int ranks = 2;
};
void fill_table(models::runs::OptionTable& table, EvalOptions& options);

/// Prints the same line as the end of the run, for the chosen text. Returns the exit code. Throws
/// as open_run does, and DataError.
int evaluate(const EvalOptions& options, int argc, char** argv);

/// `tessera generate`: generates text with the model of a run.
struct GenerateOptions {
  std::string run;
  models::TextRequest request;
  std::string device;  ///< empty: the run's
  int ranks = 1;
};
void fill_table(models::runs::OptionTable& table, GenerateOptions& options);

/// Prints the prompt and the generated text, token by token. Returns the exit code. Throws as
/// open_run does.
int generate(GenerateOptions options, int argc, char** argv);

/// `tessera tokenize`: trains a tokenizer, and writes text as a token file.
struct TokenizeCommandOptions {
  std::string data;
  std::string out;
  std::string tokenizer = "bytes";
  std::optional<std::int64_t> train_tokenizer;  ///< its vocabulary
  std::string type = "bpe";
  double validation = 0.05;
};
void fill_table(models::runs::OptionTable& table, TokenizeCommandOptions& options);

/// Prints counts and seconds. Returns the exit code; throws as the functions of models/data.
int tokenize_text(const TokenizeCommandOptions& options);

/// `tessera inspect PATH`: what is in a checkpoint or a safetensors file, and whether all bytes are as they
/// were written. `path` is a checkpoint, the newest of a run is taken, or a file. Returns kRunFailed if
/// something is damaged, after printing it. Throws CannotStart if there is nothing to look into.
int inspect(const std::string& path);

/// `tessera convert PATH --out FILE`: the model of a checkpoint as one safetensors file.
struct ConvertOptions {
  std::string path;
  std::string out;
};
void fill_table(models::runs::OptionTable& table, ConvertOptions& options);
int convert(const ConvertOptions& options);

}  // namespace tessera::tools
