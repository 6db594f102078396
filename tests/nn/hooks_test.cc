// The call of a layer: hooks, exceptions, argument and result types.

#include <catch2/catch.hpp>
#include <memory>
#include <stdexcept>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Module;
using nn::VisitVariables;
using testing::thrown;

Variable number(double value) { return Variable(Tensor::scalar(value, {.dtype = DType::kF64})); }

struct Echo final : nn::Layer<Echo> {
  Variable forward(const Variable& x) {
    log.push_back("forward");
    if (fail) throw std::runtime_error("forward failed");
    return x;
  }
  Variable encode(const Variable& x, double factor) {
    return hooked(
        [this](const Variable& y, double f) { return number(y.item<double>() * f + bias); }, x,
        factor);
  }
  std::function<void(Module&, const VisitVariables&)> note_pre(std::string name) {
    return [this, name](Module&, const VisitVariables&) { log.push_back(name); };
  }
  std::function<void(Module&, const VisitVariables*)> note(std::string name) {
    return [this, name](Module&, const VisitVariables* results) {
      log.push_back(results != nullptr ? name : name + "(null)");
    };
  }
  std::function<void(Module&, const VisitVariables*)> fail_with(std::string text) {
    return [text](Module&, const VisitVariables*) { throw std::runtime_error(text); };
  }
  std::vector<std::string> log;
  bool fail = false;
  double bias = 1;
};

using Log = std::vector<std::string>;

TEST_CASE("hooks run in order around forward; first goes before the others; handles remove") {
  Echo echo;
  echo.register_forward_pre_hook(echo.note_pre("pre a"));
  auto b = echo.register_forward_pre_hook(echo.note_pre("pre b"), {.first = true});
  echo.register_forward_hook(echo.note("post a"));
  auto post_b = echo.register_forward_hook(echo.note("post b"), {.first = true, .always = true});
  echo(number(1));
  CHECK(echo.log == Log{"pre b", "pre a", "forward", "post b", "post a"});
  echo.log.clear();
  b.remove();
  b.remove();
  post_b.remove();
  echo(number(1));
  CHECK(echo.log == Log{"pre a", "forward", "post a"});
}

TEST_CASE("a hook may remove itself and add others, from the next call on") {
  Echo echo;
  HookHandle once;
  once = echo.register_forward_pre_hook([&](Module&, const VisitVariables&) {
    echo.log.push_back("once");
    once.remove();
    echo.register_forward_pre_hook(echo.note_pre("later"));
  });
  echo(number(1));
  CHECK(echo.log == Log{"once", "forward"});
  echo.log.clear();
  echo(number(1));
  CHECK(echo.log == Log{"later", "forward"});
}

TEST_CASE("hooks see the module, and rewrite arguments and results") {
  Echo echo;
  Module* seen = nullptr;
  echo.register_forward_pre_hook([&](Module& module, const VisitVariables& arguments) {
    seen = &module;
    arguments([](Variable& v) { v = number(v.item<double>() + 10); });
  });
  echo.register_forward_hook([](Module&, const VisitVariables* results) {
    (*results)([](Variable& v) { v = number(v.item<double>() * 2); });
  });
  const Variable x = number(1);
  CHECK(echo(x).item<double>() == 22);
  CHECK(x.item<double>() == 1);  // the caller's own handle is untouched
  CHECK(seen == &echo);
  CHECK(echo.encode(x, 3).item<double>() == 2 * (11 * 3 + 1));
}

// Three arguments of which only `scale` is a Tensor by declaration.
struct Scaled final : nn::Layer<Scaled> {
  Variable forward(const Variable& x, const Tensor& scale, const Variable& offset) {
    return x * scale + offset;
  }
};

TEST_CASE("a tensor where forward takes a variable arrives as a constant, hooks included") {
  Echo echo;
  const Tensor x = Tensor::scalar(3.0, {.dtype = DType::kF64});
  int variables = 0;
  echo.register_forward_pre_hook([&](Module&, const VisitVariables& arguments) {
    arguments([&](Variable& v) {
      ++variables;
      CHECK_FALSE(v.requires_grad());
      v = v * 2;
    });
  });
  CHECK(echo(x).item<double>() == 6);
  CHECK(variables == 1);
  CHECK(x.item<double>() == 3);

  // The least number of leading tensors becomes variables: the scale stays a tensor.
  Scaled scaled;
  const Variable offset = Variable(Tensor::scalar(1.0, {.dtype = DType::kF64}), true);
  const Variable y = scaled(x, x, offset);
  CHECK(y.item<double>() == 10);
  backward(y);
  CHECK(offset.grad().item<double>() == 1);
  CHECK(scaled(Variable(x), x, offset).item<double>() == 10);
}

TEST_CASE("after a failure the always-hooks run with null results, and the first exception wins") {
  Echo echo;
  echo.fail = true;
  echo.register_forward_hook(echo.note("plain"));
  echo.register_forward_hook(echo.fail_with("hook failed"), {.always = true});
  echo.register_forward_hook(echo.note("always"), {.always = true});
  CHECK(thrown<std::runtime_error>([&] { echo(number(1)); }) == "forward failed");
  CHECK(echo.log == Log{"forward", "always(null)"});

  echo.log.clear();
  auto pre = echo.register_forward_pre_hook(
      [](Module&, const VisitVariables&) { throw std::runtime_error("pre failed"); });
  CHECK(thrown<std::runtime_error>([&] { echo(number(1)); }) == "pre failed");
  CHECK(echo.log == Log{"always(null)"});
}

TEST_CASE("a forward hook that throws leaves the earlier ones alone and tells the later ones") {
  Echo echo;
  echo.register_forward_hook(echo.note("before"), {.always = true});
  echo.register_forward_hook(echo.fail_with("first"));
  echo.register_forward_hook(echo.note("plain"));
  echo.register_forward_hook(echo.fail_with("second"), {.always = true});
  echo.register_forward_hook(echo.note("always"), {.always = true});
  CHECK(thrown<std::runtime_error>([&] { echo(number(1)); }) == "first");
  CHECK(echo.log == Log{"forward", "before", "always(null)"});
}

TEST_CASE("empty hooks are refused") {
  Echo echo;
  CHECK(thrown<InvalidArgument>([&] { echo.register_forward_pre_hook({}); }) ==
        "[nn.register_forward_pre_hook] the hook is empty");
  CHECK(thrown<InvalidArgument>([&] { echo.register_forward_hook({}); }) ==
        "[nn.register_forward_hook] the hook is empty");
}

struct Batch {
  Variable x;
  std::vector<Variable> more;
  int label = 0;
  template <class F>
  void visit_tensors(F&& f) {
    f(x, more);
    f(label);
  }
};
struct Settings {  // never holds a Variable
  double factor = 2;
};
struct Cache {
  int calls = 0;
  Variable last;
  template <class F>
  void visit_tensors(F&& f) {
    f(last);
  }
};

}  // namespace
}  // namespace tessera

template <>
inline constexpr bool tessera::nn::holds_no_tensors<tessera::Settings> = true;

namespace tessera {
namespace {

using Pieces = std::tuple<Batch, std::optional<Variable>, std::map<std::string, Variable>>;

struct Wide final : nn::Layer<Wide> {
  Pieces forward(Batch batch, const Settings& settings, Cache& cache, std::optional<Variable> mask,
                 const char* name, std::pair<int, Variable> pair, std::array<Variable, 2> two,
                 std::variant<std::monostate, Variable> either, const std::string& text,
                 Tensor targets, std::unordered_map<int, Variable> table, std::vector<bool> flags) {
    ++cache.calls;
    total = batch.x.item<double>() + batch.more.at(0).item<double>() + pair.second.item<double>() +
            two[0].item<double>() + two[1].item<double>() + std::get<1>(either).item<double>() +
            table.at(0).item<double>() + cache.last.item<double>();
    CHECK_FALSE(mask.has_value());
    CHECK(settings.factor == 2);
    CHECK(std::string(name) + text == "nametext");
    CHECK(targets.numel() == 1);
    CHECK(flags.size() == 2);
    return {std::move(batch), number(100), {{"a", number(200)}}};
  }
  double total = 0;
};

TEST_CASE("any signature: Variables are found in containers, structs and references") {
  Wide wide;
  int arguments = 0, results = 0;
  wide.register_forward_pre_hook([&](Module&, const VisitVariables& visit) {
    visit([&](Variable& v) {
      ++arguments;
      v = number(v.item<double>() * 10);
    });
  });
  wide.register_forward_hook([&](Module&, const VisitVariables* visit) {
    (*visit)([&](Variable& v) {
      ++results;
      v = number(v.item<double>() + 1);
    });
  });
  Cache cache{.calls = 0, .last = number(7)};
  Batch batch{.x = number(1), .more = {number(2), Variable()}, .label = 3};
  auto [out, optional, table] = wide(
      batch, Settings{}, std::ref(cache), std::optional<Variable>(), "name",
      std::pair(1, number(3)), std::array{number(4), number(5)},
      std::variant<std::monostate, Variable>(number(6)), std::string("text"), Tensor::scalar(1),
      std::unordered_map<int, Variable>{{0, number(8)}}, std::vector<bool>{true, false});
  CHECK(arguments == 8);  // the undefined one is passed over
  CHECK(wide.total == 10 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
  CHECK(cache.calls == 1);
  CHECK(cache.last.item<double>() == 70);  // std::ref: the hook reached the caller's object
  CHECK(batch.x.item<double>() == 1);
  CHECK(results == 4);
  CHECK(out.x.item<double>() == 11);
  CHECK(out.more.size() == 2);
  CHECK(optional->item<double>() == 101);
  CHECK(table.at("a").item<double>() == 201);
}

struct Odd final : nn::Layer<Odd> {
  void forward() { ++calls; }
  const Variable& forward(int) { return kept; }
  std::unique_ptr<int> forward(std::unique_ptr<int> p) { return p; }
  std::tuple<int, Variable> forward(std::tuple<int, Variable> t) { return t; }
  int calls = 0;
  Variable kept = number(5);
};

}  // namespace
}  // namespace tessera

template <>
inline constexpr bool tessera::nn::holds_no_tensors<std::unique_ptr<int>> = true;

namespace tessera {
namespace {

TEST_CASE("results may be nothing, a reference, a tuple or something that only moves") {
  Odd odd;
  int hooks = 0;
  odd.register_forward_hook([&](Module&, const VisitVariables* results) {
    ++hooks;
    (*results)([](Variable& v) { v = number(6); });
  });
  odd();
  CHECK(odd.calls == 1);
  static_assert(std::is_same_v<decltype(odd(1)), Variable>);
  CHECK(odd(1).item<double>() == 6);
  CHECK(odd.kept.item<double>() == 5);
  CHECK(*odd(std::make_unique<int>(4)) == 4);
  CHECK(std::get<1>(odd(std::tuple(1, number(2)))).item<double>() == 6);
  CHECK(hooks == 4);
}

TEST_CASE("arguments are moved into forward, not copied again") {
  struct Take final : nn::Layer<Take> {
    std::size_t forward(std::vector<Variable> xs) {
      return reinterpret_cast<std::size_t>(xs.data());
    }
  };
  Take take;
  std::vector<Variable> xs{number(1)};
  const auto address = reinterpret_cast<std::size_t>(xs.data());
  CHECK(take(std::move(xs)) == address);
}

struct Where final : nn::Layer<Where> {
  Variable forward(const Variable& x) {
    seen.push_back(current_scope_text());
    return fails ? log(x) : x;
  }
  std::vector<std::string> seen;
  bool fails = false;
};

// `list` is never called itself.
struct Holder final : nn::Layer<Holder> {
  struct List final : nn::Layer<List> {
    List() { register_module("0", layers); }
    nn::Sequential layers;
    Variable forward(const Variable& x) { return x; }
  };
  Holder() {
    last = &list.layers.add<Where>();
    register_module("list", list);
    register_module("own", own);
  }
  Variable forward(const Variable& x) {
    const Variable y = own(list.layers(x));
    seen = current_scope_text();
    return y;
  }
  List list;
  Where own;
  Where* last;
  std::string seen;
};

TEST_CASE("a call knows its module's path, through containers and after exceptions") {
  Holder holder;
  holder(number(1));
  CHECK(holder.last->seen == Log{"in \"list.0.0\""});
  CHECK(holder.own.seen == Log{"in \"own\""});
  CHECK(holder.seen == "in the root module");
  holder.last->fails = true;
  AnomalyGuard anomaly;
  CHECK_THAT(thrown<AnomalyError>([&] { holder(number(-1)); }),
             Catch::Contains("result 0 of \"log\" in \"list.0.0\" holds 1 NaN"));
  CHECK(current_scope_text() == "outside modules");
  std::vector<std::string> in_hook;
  holder.own.register_forward_pre_hook(
      [&](Module&, const VisitVariables&) { in_hook.push_back(current_scope_path()); });
  holder.own(number(1));
  CHECK(in_hook == Log{"own"});
}

}  // namespace
}  // namespace tessera
