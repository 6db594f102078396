#include "tessera/tools/program/command_line.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/runs/option_table.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/io/file_lock.h"
#include "tessera/tensor/io/staging_folder.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/texts.h"
#include "tessera/tools/program/output_paths.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

using namespace models::data;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr const char* kWhere = "tokenize";

// The model is beside the token file, which names it.
std::string model_path(const TokenizeCommandOptions& options) { return options.out + ".model"; }

// An empty file may be replaced: mktemp creates one.
bool has_bytes(const std::string& path) {
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  return !none && bytes > 0;
}

// A SentencePiece model has no mark of ours; the token file beside it shows that we wrote it.
bool names_model(const std::string& token_file, const std::string& model) {
  if (!is_token_file(token_file)) return false;
  try {
    return is_same_file(tokenizer_of_token_file(token_file), model);
  } catch (const DataError&) {
    return false;
  }
}

void check_replaced(const std::string& path, bool is_ours) {
  const std::string other = irregular_file(path);
  if (!other.empty())
    throw CannotStart(fmt::format(
        "--out: {} is {}, and only a regular file is replaced; choose another file", path, other));
  if (has_bytes(path) && !is_ours)
    throw CannotStart(fmt::format(
        "--out: {} was not written by tessera tokenize, and would be replaced; choose another file",
        path));
}

// Only checks; changes nothing.
void check_files(const TokenizeCommandOptions& options) {
  if (options.out.empty()) throw CannotStart("--out is needed: the token file to write");
  std::vector<Input> inputs = {{"--data", options.data}};
  if (options.tokenizer != "bytes") inputs.push_back({"--tokenizer", options.tokenizer});
  check_output(options.out, inputs);
  check_replaced(options.out, is_token_file(options.out));
  if (!options.train_tokenizer) return;
  const std::string model = model_path(options);
  check_output(model, inputs);
  check_replaced(model, names_model(options.out, model));
}

std::unique_ptr<Tokenizer> train_tokenizer(const TokenizeCommandOptions& options,
                                           const std::vector<Document>& documents,
                                           const std::string& path) {
  const Clock::time_point start = Clock::now();
  std::vector<std::string> texts;
  for (const Document& document : documents) texts.push_back(document.text);
  train_sentence_piece(texts, path,
                       {.vocab_size = *options.train_tokenizer, .model_type = options.type});
  print_output("tokenizer  {}, {} of {} tokens, trained in {:.1f} s\n",
               printable(model_path(options)), options.type, with_commas(*options.train_tokenizer),
               seconds_since(start));
  return open_tokenizer(path);
}

FileLock lock_output(const std::string& out) {
  try {
    return lock_file(kWhere, file_lock_path(out), out);
  } catch (const StateError& error) {
    throw CannotStart(error.what());
  }
}

void print_part(const char* name, std::int64_t documents, std::int64_t tokens, std::int64_t bytes) {
  print_output("{}  {} document{}, {}, {} tokens, {:.2f} bytes each\n", name,
               with_commas(documents), documents == 1 ? "" : "s",
               short_bytes(static_cast<double>(bytes)), with_commas(tokens),
               tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0);
}

}  // namespace

void fill_table(OptionTable& table, TokenizeCommandOptions& options) {
  table.group("Options");
  options.data = kDefaultCorpus;
  table.path("data", options.data, "text: a file or a folder");
  table.path("out", options.out, "token file to write, for tessera train --data; needed");
  Option& tokenizer = table.path("tokenizer", options.tokenizer, "bytes, or a SentencePiece model");
  tokenizer.value = "bytes|PATH";
  tokenizer.set = [&options](const std::string& word) {
    options.tokenizer = word == "bytes" ? word : absolute_path(word);
  };
  Option& train =
      table.whole("train-tokenizer", options.train_tokenizer, {.least = 260, .most = 1'000'000},
                  "learn a SentencePiece model of so many tokens from the text, and "
                  "write it beside the token file, as OUT.model");
  train.excludes = "tokenizer";
  table.choice("type", options.type, {"bpe", "unigram"}, "of the model that is learned");
  table.number("validation", options.validation, fraction(),
               "part of the text that is kept for validation");
}

int tokenize_text(const TokenizeCommandOptions& options) {
  check_files(options);
  const FileLock lock = lock_output(options.out);
  const std::filesystem::path out(options.out);
  const std::string folder = out.parent_path().string(), name = out.filename().string();
  const Clock::time_point start = Clock::now();
  const std::vector<Document> documents = read_documents(options.data);
  // The token file and the model are published together.
  const StagingFolder next(kWhere, fmt::format("{}/.{}.tessera-next", folder, name));
  const std::string file = next.path() + "/" + name;
  const auto tokenizer = options.train_tokenizer
                             ? train_tokenizer(options, documents, file + ".model")
                             : open_tokenizer(options.tokenizer);
  TokenizedText text = tokenize(documents, *tokenizer, {.validation = options.validation});
  if (options.train_tokenizer) text.tokenizer = model_path(options);
  write_token_file(file, text, *tokenizer);
  publish_files(kWhere, next.path(), folder, [](std::string_view) { return false; });
  print_part("training  ", text.train_documents, text.train->size(), text.train_bytes);
  print_part("validation", text.validation_documents, text.validation->size(),
             text.validation_bytes);
  print_output("{} written in {:.1f} s\n", printable(options.out), seconds_since(start));
  return kDone;
}

}  // namespace tessera::tools
