#include "tessera/distributed/gloo_rendezvous.h"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

template <class E>
[[noreturn]] void throw_cannot_connect(const GlooConnection::Options& options,
                                       const std::string& what) {
  CollectiveSite site;
  site.rank = options.rank;
  site.group = options.group;
  site.op = "connect";
  throw E(error_text("connect", fmt::format("group \"{}\": {}", options.group, what)), site);
}

void wait_until_all_joined(const GlooConnection::Options& options) {
  const auto marker = [&](int rank) { return fmt::format("{}/joined-{}", options.folder, rank); };
  if (std::ofstream file(marker(options.rank)); !file.put('\n').flush()) {
    throw_cannot_connect<CollectiveError>(
        options, fmt::format("{} cannot be written: {}; make room there", marker(options.rank),
                             std::strerror(errno)));
  }
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  for (;;) {
    std::vector<int> missing;
    for (int rank = 0; rank < options.size; ++rank) {
      if (!std::filesystem::exists(marker(rank))) missing.push_back(rank);
    }
    if (missing.empty()) return;
    if (std::chrono::steady_clock::now() > deadline) {
      throw_cannot_connect<CollectiveError>(
          options, fmt::format("{} did not come within {:g} s", ranks_text(missing),
                               std::chrono::duration<double>(options.timeout).count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::shared_ptr<gloo::Context> connect_with_all(const GlooConnection::Options& options) {
  wait_until_all_joined(options);
  try {
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    gloo::rendezvous::FileStore store(options.folder);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice("127.0.0.1");
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    throw_cannot_connect<CollectiveAborted>(
        options, fmt::format("cannot connect with the other ranks: {}", error.what()));
  }
}

}  // namespace tessera::distributed
