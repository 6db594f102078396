// Tokens for tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/models/data/token_file.h"

namespace tessera::testing {

inline std::vector<std::int64_t> all_of(const models::data::TokenSpan& tokens) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(tokens.size()));
  tokens.read(0, values);
  return values;
}

// Tokens as given.
class GivenTokens : public models::data::TokenSpan {
 public:
  explicit GivenTokens(std::vector<std::int64_t> tokens) : tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    for (std::int64_t& token : out) token = tokens_.at(static_cast<std::size_t>(begin++));
  }

 private:
  std::vector<std::int64_t> tokens_;
};

}  // namespace tessera::testing
