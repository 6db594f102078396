#include "tessera/models/data/packed_sequences.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <xxhash.h>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "packed_sequences";
constexpr std::int64_t kHashedAtOnce = std::int64_t{1} << 17;  // tokens

}  // namespace

PackedSequences::PackedSequences(std::shared_ptr<const TokenSpan> tokens, std::int64_t length)
    : tokens_(std::move(tokens)), length_(length) {
  TESSERA_CHECK(length >= 1, kWhere, "sequences of {} tokens; at least 1 is needed", length);
  TESSERA_CHECK_AS(DataError, tokens_->size() > 0, kWhere,
                   "there are no tokens: a part without text, as the validation part is where a "
                   "token file was made with validation 0; make it with a part above 0");
  TESSERA_CHECK_AS(DataError, tokens_->size() > length, kWhere,
                   "the text has {} tokens, a sequence of {} needs {} with its last target; give "
                   "more text, or shorter sequences",
                   tokens_->size(), length, length + 1);
  count_ = (tokens_->size() - 1) / length;
}

void PackedSequences::read(std::int64_t index, std::span<std::int64_t> out) const {
  TESSERA_CHECK(index >= 0 && index < count_, kWhere, "sequence {} of {}", index, count_);
  TESSERA_CHECK(static_cast<std::int64_t>(out.size()) == length_ + 1, kWhere,
                "room for {} tokens, a sequence with its last target has {}", out.size(),
                length_ + 1);
  tokens_->read(index * length_, out);
}

std::pair<Tensor, Tensor> PackedSequences::get(std::int64_t index) const {
  std::vector<std::int64_t> sequence(static_cast<std::size_t>(length_ + 1));
  read(index, sequence);
  const Tensor all = Tensor::from_vector(sequence, {length_ + 1}, kCpu);
  return {all.narrow(0, 0, length_), all.narrow(0, 1, length_)};
}

std::uint64_t PackedSequences::fingerprint() const {
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(),
                                                                         &XXH64_freeState);
  XXH64_reset(state.get(), 0);
  std::vector<std::int64_t> piece;
  for (std::int64_t begin = 0; begin < tokens_->size(); begin += kHashedAtOnce) {
    piece.resize(static_cast<std::size_t>(std::min(kHashedAtOnce, tokens_->size() - begin)));
    tokens_->read(begin, piece);
    XXH64_update(state.get(), piece.data(), piece.size() * sizeof(std::int64_t));
  }
  return XXH64_digest(state.get());
}

}  // namespace tessera::models::data
