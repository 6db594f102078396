// Writes small data sets for tests, valid or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::testing {

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

}  // namespace tessera::testing
