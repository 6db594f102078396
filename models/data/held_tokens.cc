#include "tessera/models/data/held_tokens.h"

#include <algorithm>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

template <class T>
class HeldTokens final : public TokenSpan {
 public:
  explicit HeldTokens(std::vector<std::vector<std::int32_t>>&& pieces) {
    std::size_t count = 0;
    for (const auto& piece : pieces) count += piece.size();
    tokens_.reserve(count);
    for (auto& piece : pieces) {
      const std::vector<std::int32_t> tokens = std::exchange(piece, {});
      std::transform(tokens.begin(), tokens.end(), std::back_inserter(tokens_),
                     [](std::int32_t token) { return static_cast<T>(token); });
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    check_token_range(begin, out.size(), size());
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<T> tokens_;
};

}  // namespace

std::shared_ptr<const TokenSpan> hold_tokens(std::vector<std::vector<std::int32_t>>&& pieces,
                                             std::int64_t vocab_size) {
  if (token_bytes_for(vocab_size) == 2)
    return std::make_shared<HeldTokens<std::uint16_t>>(std::move(pieces));
  return std::make_shared<HeldTokens<std::uint32_t>>(std::move(pieces));
}

void check_token_range(std::int64_t begin, std::size_t count, std::int64_t size) {
  TESSERA_CHECK(begin >= 0 && begin <= size && static_cast<std::uint64_t>(size - begin) >= count,
                "token_span", "{} tokens from {} are asked for, but there are {}", count, begin,
                size);
}

}  // namespace tessera::models::data
