#pragma once

/// Data for tests: folders and files, small data sets of images, valid or not, and texts for
/// tokenizers and readers.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::testing {

// Writes small data sets for tests, valid or not.

// An empty folder of this test's own under TEST_TMPDIR.
std::string fresh_folder(const std::string& name);

// The bytes of an idx file: the given header, then `values` zeros or the given bytes.
std::string idx_header(std::uint32_t magic, const std::vector<std::uint32_t>& extents);

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);
void write_gzip(const std::string& path, const std::string& bytes);

// A data set that a model can learn: images of class k are bright in the rows around 2 k, with
// noise. `compressed`: by gzip.
struct SyntheticOptions {
  std::int64_t train = 96;
  std::int64_t test = 30;
  bool compressed = true;
};
void write_fashion_mnist(const std::string& folder, const SyntheticOptions& options = {});

// Texts for tests of tokenizers and readers.

// The UTF-8 of a code point.
std::string utf8_of(std::uint32_t code_point);

// English-like lines with indentation and empty lines, about `bytes` bytes; deterministic in the
// seed.
std::string plain_text(std::size_t bytes, unsigned seed = 1);

// For rapidcheck properties: any UTF-8 text. Runs of letters, spaces, line ends, control
// characters, characters that SentencePiece reserves, emoji, names of its pieces, and arbitrary
// code points. Sometimes empty, sometimes only spaces.
std::string random_text();

}  // namespace tessera::testing
