#include "tessera/tools/program/tokenize_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/figures_text.h"
#include "tessera/tools/program/option_checks.h"
#include "tessera/tools/program/run_folder.h"

namespace tessera::tools {
namespace {

using namespace models::data;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Beside the token file, which names it.
std::string train_tokenizer(const TokenizeCommandOptions& options,
                            const std::vector<Document>& documents) {
  const Clock::time_point start = Clock::now();
  std::vector<std::string> texts;
  for (const Document& document : documents) texts.push_back(document.text);
  const std::string path = options.out + ".model";
  train_sentence_piece(texts, path,
                       {.vocab_size = *options.train_tokenizer, .model_type = options.type});
  fmt::print("tokenizer  {}, {} of {} tokens, trained in {:.1f} s\n", path, options.type,
             with_commas(*options.train_tokenizer), seconds_since(start));
  return path;
}

void print_part(const char* name, std::int64_t documents, std::int64_t tokens, std::int64_t bytes) {
  fmt::print("{}  {} document{}, {}, {} tokens, {:.2f} bytes each\n", name, with_commas(documents),
             documents == 1 ? "" : "s", short_bytes(static_cast<double>(bytes)),
             with_commas(tokens),
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
  if (options.out.empty()) throw CannotStart("--out is needed: the token file to write");
  if (is_within(options.out, options.data))
    throw CannotStart(
        fmt::format("--out: {} is the text of --data, or lies in its folder; choose "
                    "another file",
                    options.out));
  const Clock::time_point start = Clock::now();
  const std::vector<Document> documents = read_documents(options.data);
  const auto tokenizer = open_tokenizer(
      options.train_tokenizer ? train_tokenizer(options, documents) : options.tokenizer);
  const TokenizedText text = tokenize(documents, *tokenizer, {.validation = options.validation});
  write_token_file(options.out, text, *tokenizer);
  print_part("training  ", text.train_documents, text.train->size(), text.train_bytes);
  print_part("validation", text.validation_documents, text.validation->size(),
             text.validation_bytes);
  fmt::print("{} written in {:.1f} s\n", options.out, seconds_since(start));
  return kDone;
}

}  // namespace tessera::tools
