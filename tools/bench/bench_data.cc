// How fast text becomes batches of tokens, on the default corpus:
//
//     tools/bazel run //tools/bench:bench_data
//
// Every figure is the best of three, except learning a tokenizer, which runs once. Times are
// wall-clock times; threads are those that encode. The loader reads batches of 16 sequences of 256
// tokens from a token file, in the random order of a step.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/models/data/packed_sequences.h"
#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/nn/data/data_loader.h"

namespace tessera::models::data {
namespace {

constexpr int kRounds = 3;
constexpr std::int64_t kSteps = 500, kBatch = 16, kLength = 256;

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Body>
double best(const Body& body) {
  double least = seconds(body);
  for (int round = 1; round < kRounds; ++round) least = std::min(least, seconds(body));
  return least;
}

void measure_encoding(const std::vector<Document>& documents, const Tokenizer& tokenizer) {
  for (const int threads : {1, 2}) {
    TokenizedText text;
    const double took = best([&] { text = tokenize(documents, tokenizer, {.threads = threads}); });
    const auto tokens = static_cast<double>(text.train->size() + text.validation->size());
    const auto bytes = static_cast<double>(text.train_bytes + text.validation_bytes);
    std::printf("encode, %d thread%s  %7.2f s  %6.2f million tokens/s, %.2f bytes a token\n",
                threads, threads == 1 ? " " : "s", took, tokens / took / 1e6, bytes / tokens);
  }
}

void measure_file(const std::vector<Document>& documents, const Tokenizer& tokenizer,
                  const std::string& path) {
  const TokenizedText text = tokenize(documents, tokenizer);
  const double write = best([&] { write_token_file(path, text, tokenizer); });
  const double open = best([&] { open_token_file(path, &tokenizer); });
  std::printf("write a token file  %7.3f s\nopen it             %7.3f ms\n", write, open * 1e3);
  const PackedSequences sequences(open_token_file(path, &tokenizer).train, kLength);
  for (const int prefetch : {0, 2}) {
    const double took = best([&] {
      nn::data::DataLoader loader(sequences, {.batch_size = kBatch,
                                              .shuffle = true,
                                              .workers = prefetch > 0 ? 1 : 0,
                                              .prefetch = std::max(prefetch, 1)});
      for (std::int64_t step = 1; step <= kSteps; ++step) loader.load(step);
    });
    std::printf("load, prefetch %d    %7.3f s  %6.1f million tokens/s\n", prefetch, took,
                static_cast<double>(kSteps * kBatch * kLength) / took / 1e6);
  }
}

void measure_all(const std::string& folder) {
  std::vector<Document> documents;
  const double read = best([&] { documents = read_documents(kDefaultCorpus); });
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const Document& document : documents) {
    texts.push_back(document.text);
    bytes += document.text.size();
  }
  std::printf("read %zu files     %7.3f s  %6.1f MB/s\n", documents.size(), read,
              static_cast<double>(bytes) / read / 1e6);
  std::printf("-- bytes\n");
  measure_encoding(documents, *byte_tokenizer());
  measure_file(documents, *byte_tokenizer(), folder + "/bytes.tokens");
  for (const char* type : {"bpe", "unigram"})
    for (const std::int64_t most : {2'000'000, 10'000'000}) {
      const std::string path = folder + "/" + type + ".model";
      std::printf("-- SentencePiece, %s, 4096 tokens, of %lld MB\n", type,
                  static_cast<long long>(most / 1'000'000));
      std::printf("learn               %7.2f s\n", seconds([&] {
                    train_sentence_piece(texts, path, {.model_type = type, .max_bytes = most});
                  }));
      measure_encoding(documents, *sentence_piece_tokenizer(path));
    }
}

}  // namespace
}  // namespace tessera::models::data

int main() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "tessera_bench_data";
  try {
    std::filesystem::create_directories(folder);
    tessera::models::data::measure_all(folder.string());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::filesystem::remove_all(folder);
  return 0;
}
