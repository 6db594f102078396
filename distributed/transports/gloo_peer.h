#pragma once

/// What a rank hears from one peer outside collectives: a last word, or that its connection broke.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}
}  // namespace gloo

namespace tessera::distributed {

enum class GlooWord : std::uint32_t {
  kNone,
  kLeaving,  ///< takes part in no further collective; all went well
  kAborted,  ///< the group has failed; the text says why
};

/// Not thread-safe.
class GlooPeer {
 public:
  enum class State : std::uint8_t { kPresent, kLeft, kLost };

  GlooPeer(gloo::Context& context, int rank);
  ~GlooPeer();
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  int rank() const { return rank_; }
  State state() const { return state_; }

  /// Checks for news without waiting. Returns the reason of a failure of the group, if the news is
  /// one.
  std::optional<std::string> look();
  /// Sends the last word; once. A peer that has gone already does not matter.
  void say(gloo::Context& context, GlooWord word, const std::string& text) noexcept;
  /// What is being sent, to wait for; null when nothing is.
  gloo::transport::UnboundBuffer* said() const { return sending_.get(); }

 private:
  // `word` comes last: when it has arrived, so has the text.
  struct Message {
    char text[1020] = {};
    std::uint32_t word = 0;
  };
  GlooWord heard();
  bool is_broken();

  int rank_;
  State state_ = State::kPresent;
  Message incoming_;
  Message outgoing_;
  std::unique_ptr<gloo::transport::UnboundBuffer> receiving_;
  std::unique_ptr<gloo::transport::UnboundBuffer> sending_;
};

}  // namespace tessera::distributed
