// Module paths of a thread.
#include "tessera/tensor/scope_name.h"

#include <catch2/catch.hpp>
#include <thread>

namespace tessera {
namespace {

TEST_CASE("scope names: joined from the outermost part, also through parts that are not open") {
  const auto root = make_scope_name(), list = make_scope_name(), block = make_scope_name();
  block->set("3", list);
  list->set("blocks", root);  // after its child, as modules are registered
  CHECK(current_scope_text() == "outside modules");
  CHECK(current_scope() == nullptr);
  NamedScope in_root(*root);
  CHECK(current_scope_path().empty());
  CHECK(current_scope_text() == "in the root module");
  {
    NamedScope in_block(*block);
    CHECK(current_scope_path() == "blocks.3");
    CHECK(current_scope_text() == "in \"blocks.3\"");
    CHECK(current_scope() == block);
    std::string elsewhere = "?";
    std::thread([&] { elsewhere = current_scope_text(); }).join();
    CHECK(elsewhere == "outside modules");
  }
  CHECK(current_scope() == root);
}

TEST_CASE("scope names: exceptions close scopes, and a scope can be opened again later") {
  const auto root = make_scope_name(), part = make_scope_name();
  part->set("part", root);
  std::shared_ptr<const ScopeName> kept;
  try {
    NamedScope scope(*part);
    kept = current_scope();
    throw 1;
  } catch (int) {
  }
  CHECK(current_scope() == nullptr);
  {
    ScopeRestore again(kept);
    CHECK(current_scope_path() == "part");
    ScopeRestore outside(nullptr);
    CHECK(current_scope_text() == "outside modules");
  }
  CHECK(current_scope() == nullptr);
}

TEST_CASE("scope names: a part is never inside itself") {
  const auto a = make_scope_name(), b = make_scope_name();
  b->set("b", a);
  a->set("a", b);
  a->set("a", a);
  CHECK(b->path() == "b");
  CHECK(a->path().empty());
}

}  // namespace
}  // namespace tessera
