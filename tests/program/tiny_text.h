// Text for tests of language models, and short runs on it.
#pragma once

#include <string>
#include <vector>

#include "tessera/tests/program/run_program.h"

namespace tessera::testing {

// A folder of about forty short documents of simple sentences, created once.
std::string text_folder();

// `train MODEL --preset tiny` on that text, with more words.
std::vector<std::string> train_tiny(const std::string& model,
                                    const std::vector<std::string>& more = {});

// Runs it into a new folder and requires success.
struct TinyRun {
  ProgramResult result;
  std::string folder;

  std::string file(const std::string& name) const;
  // Lines of metrics.jsonl without fields that depend on time.
  std::vector<std::string> metrics() const;
  std::vector<double> losses() const;
};
TinyRun run_tiny(const std::string& model, const std::vector<std::string>& more = {},
                 const ProgramOptions& options = {});

// Records of an event file: 8 bytes of length, 4 of its checksum, the event, 4 of its checksum.
// Returns their number, or -1 if the file does not end with a complete one.
int count_events(const std::string& path);

}  // namespace tessera::testing
