#pragma once

#include <string>

#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

/// For ranks of one host: a file for each key, in a folder that all of them may write.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder);

  bool set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                std::chrono::milliseconds timeout) override;

 private:
  std::string path(const std::string& key) const;

  std::string folder_;
};

}  // namespace tessera::distributed
