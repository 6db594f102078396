// A store of one rank, in which leaving a value does something else.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

class WrappedStore final : public Store {
 public:
  // Replaces set(); the first argument is the store that is wrapped.
  using Set = std::function<bool(Store& store, const std::string& key, const std::string& value)>;

  WrappedStore(std::shared_ptr<Store> store, Set set)
      : store_(std::move(store)), set_(std::move(set)) {}
  bool set(const std::string& key, const std::string& value) override {
    return set_(*store_, key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                std::chrono::milliseconds timeout) override {
    return store_->wait(keys, timeout);
  }

 private:
  std::shared_ptr<Store> store_;
  Set set_;
};

}  // namespace tessera::distributed
