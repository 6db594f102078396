#include "tessera/distributed/gloo_rendezvous.h"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

template <class E>
[[noreturn]] void throw_cannot_connect(const GlooConnection::Options& options,
                                       const std::string& what) {
  CollectiveSite site;
  site.rank = options.rank;
  site.group = options.group;
  site.op = "connect";
  throw E(error_text("connect", fmt::format("group \"{}\": {}", options.group, what)), site);
}

std::string joined_key(int rank) { return fmt::format("joined-{}", rank); }

void wait_until_all_joined(const GlooConnection::Options& options) {
  if (!options.store->set(joined_key(options.rank), options.address)) {
    throw_cannot_connect<CollectiveError>(
        options, fmt::format("another rank {} has joined already", options.rank));
  }
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.size; ++rank) keys.push_back(joined_key(rank));
  const std::vector<std::string> absent = options.store->wait(keys, options.timeout);
  if (absent.empty()) return;
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (std::find(absent.begin(), absent.end(), joined_key(rank)) != absent.end())
      missing.push_back(rank);
  }
  throw_cannot_connect<CollectiveError>(
      options, fmt::format("{} did not come within {:g} s", ranks_text(missing),
                           std::chrono::duration<double>(options.timeout).count()));
}

// A store as Gloo wants it.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(distributed::Store& store, milliseconds timeout) : store_(store), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(gloo_key(key), {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    const std::string value = store_.get(gloo_key(key)).value();
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    std::vector<std::string> wanted;
    for (const std::string& key : keys) wanted.push_back(gloo_key(key));
    const std::vector<std::string> missing = store_.wait(wanted, timeout);
    TESSERA_CHECK_AS(TimeoutError, missing.empty(), "connect", "nobody said \"{}\" within {:g} s",
                     missing.front(), std::chrono::duration<double>(timeout).count());
  }

 private:
  static std::string gloo_key(const std::string& key) { return "gloo " + key; }

  distributed::Store& store_;
  milliseconds timeout_;
};

}  // namespace

std::shared_ptr<gloo::Context> connect_with_all(const GlooConnection::Options& options) {
  // Gloo waits five times as long as it is told for a connection.
  constexpr int kGlooFactor = 5;
  wait_until_all_joined(options);
  try {
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(std::max(milliseconds(1), options.timeout / kGlooFactor));
    GlooStore store(*options.store, options.timeout);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(options.address.c_str());
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    throw_cannot_connect<CollectiveAborted>(
        options, fmt::format("cannot connect with the other ranks from {}: {}", options.address,
                             error.what()));
  }
}

}  // namespace tessera::distributed
