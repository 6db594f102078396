#include "tessera/distributed/transports/gloo_peer.h"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tessera::distributed {
namespace {

// Tags of collectives leave the highest bit free.
constexpr std::uint64_t kControlTag = 1ULL << 63;
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

}  // namespace

GlooPeer::GlooPeer(gloo::Context& context, int rank)
    : rank_(rank), receiving_(context.createUnboundBuffer(&incoming_, sizeof(incoming_))) {
  try {
    receiving_->recv(rank, kControlTag);
  } catch (const std::exception&) {  // it was connected before this rank, and has left since
    state_ = State::kLeft;
  }
}

GlooPeer::~GlooPeer() = default;

std::optional<std::string> GlooPeer::look() {
  if (state_ != State::kPresent) return std::nullopt;
  const bool broken = heard() == GlooWord::kNone && is_broken();
  switch (heard()) {  // again: the word may have come just before the end
    case GlooWord::kLeaving:
      state_ = State::kLeft;
      return std::nullopt;
    case GlooWord::kAborted:
      state_ = State::kLeft;
      return fmt::format(
          "rank {} failed: {}", rank_,
          std::string(incoming_.text, strnlen(incoming_.text, sizeof(incoming_.text))));
    case GlooWord::kNone:
      break;
  }
  if (!broken) return std::nullopt;
  state_ = State::kLost;
  return fmt::format("rank {} is gone (its connection closed)", rank_);
}

GlooWord GlooPeer::heard() {
  return static_cast<GlooWord>(std::atomic_ref(incoming_.word).load(std::memory_order_acquire));
}

// A wait that is interrupted before it begins returns at once, but still reports a broken
// connection.
bool GlooPeer::is_broken() {
  try {
    receiving_->abortWaitRecv();
    receiving_->waitRecv(kNever);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

void GlooPeer::say(gloo::Context& context, GlooWord word, const std::string& text) noexcept {
  if (state_ != State::kPresent || sending_) return;
  const std::size_t length = std::min(text.size(), sizeof(outgoing_.text) - 1);
  std::memcpy(outgoing_.text, text.data(), length);
  outgoing_.word = static_cast<std::uint32_t>(word);
  try {
    sending_ = context.createUnboundBuffer(&outgoing_, sizeof(outgoing_));
    sending_->send(rank_, kControlTag);
  } catch (const std::exception&) {
    sending_.reset();
  }
}

}  // namespace tessera::distributed
