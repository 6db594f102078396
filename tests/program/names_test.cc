// Texts of the program without running it: figures, columns of --help, meshes.

#include <catch2/catch.hpp>

#include "tessera/models/runs/mesh_plan.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/training_presets.h"
#include "tessera/models/runs/words.h"
#include "tessera/tools/program/options/texts.h"

namespace tessera::tools {
namespace {

using namespace models::runs;
using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

TEST_CASE("figures as people read them") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1000) == "1,000");
  CHECK(with_commas(-1234567) == "-1,234,567");
  CHECK(with_commas(-123) == "-123");
  CHECK(short_count(812) == "812");
  CHECK(short_count(10'770) == "10.8 k");
  CHECK(short_count(999'960) == "1.0 M");
  CHECK(short_count(6.74e9) == "6.7 B");
  CHECK(short_bytes(0) == "0 B");
  CHECK(short_bytes(43'100'000) == "43.1 MB");
  CHECK(short_bytes(2.5e18) == "2500.0 PB");
  CHECK(short_time(0.2) == "0:01");
  CHECK(short_time(61) == "1:01");
  CHECK(short_time(3723) == "1:02:03");
}

TEST_CASE("columns of help fit, and wide names stand alone") {
  CHECK(wrapped("", 10) == Names{""});
  CHECK(wrapped("one two three", 7) == Names{"one two", "three"});
  CHECK(wrapped("a-very-long-word b", 4) == Names{"a-very-long-word", "b"});
  const std::string narrow = two_columns("--lr X", "rate");
  CHECK(narrow == "  --lr X                      rate\n");
  const std::string wide = two_columns(std::string(40, 'x'), "meaning");
  CHECK(wide == "  " + std::string(40, 'x') + "\n" + std::string(30, ' ') + "meaning\n");
  for (const std::string& line : wrapped(std::string(300, 'y') + " z", 70)) CHECK(line.size() > 0);
}

TrainOptions options_for(int ranks, const std::string& shard, const std::string& mesh = "") {
  TrainOptions options = default_options("gpt");
  options.ranks = ranks;
  options.shard = shard;
  options.mesh = mesh;
  return options;
}

TEST_CASE("a mesh is chosen by the mode, or as it is asked for") {
  CHECK(plan_mesh(options_for(6, "full")).str() == "6");
  CHECK(plan_mesh(options_for(6, "hybrid")).str() == "2 x 3");
  CHECK(plan_mesh(options_for(3, "hybrid")).str() == "1 x 3");
  CHECK(plan_mesh(options_for(6, "hybrid", "3x2")).str() == "3 x 2");
  TrainOptions cut = options_for(6, "full", "3");
  cut.tensor_parallel = 2;
  CHECK(plan_mesh(cut).str() == "3, tensor parallel 2");
  CHECK(plan_mesh(cut).data_ranks() == 3);
  TrainOptions hosts = options_for(4, "hybrid");
  hosts.nnodes = 3;
  CHECK(plan_mesh(hosts).str() == "3 x 4");
}

TEST_CASE("a mesh that does not fit is refused with both numbers") {
  const auto refused = [](const TrainOptions& options, const std::string& text) {
    CHECK_THROWS_AS(plan_mesh(options), OptionError);
    CHECK_THROWS_WITH(plan_mesh(options), Contains(text));
  };
  refused(options_for(4, "full", "3"), "3 is 3 ranks, but 4 share a batch");
  refused(options_for(4, "full", "2x2"), "--shard full needs one number");
  refused(options_for(4, "hybrid", "4"), "--shard hybrid needs groups x ranks");
  refused(options_for(4, "hybrid", "2x3"), "2x3 is 6 ranks, but 4 share a batch");
  TrainOptions cut = options_for(5, "full");
  cut.tensor_parallel = 2;
  refused(cut, "5 ranks are no multiple of 2");
  for (const char* good : {"1", "4", "2x3", "1024"}) CHECK(mesh_problem(good).empty());
  for (const char* bad : {"", "x", "2x", "x2", "2x2x2", "2,2", "0", "2x0", "1025", "two", "-1"})
    CHECK_THAT(mesh_problem(bad), Contains("is not a mesh"));
}

TEST_CASE("every preset has a row that says how it is trained") {
  CHECK(std::string(training_preset("moe", "small").model) ==
        "moe");  // before the row of any model
  CHECK(std::string(training_preset("gpt", "small").model).empty());
  CHECK(std::string(training_preset("gpt", "small").preset) == "small");
  CHECK(std::string(training_preset("llama", "tiny").preset) == "tiny");
  CHECK(std::string(training_preset("llama", "llama-7b").model).empty());
  CHECK(training_preset("moe", "unheard of").steps > 0);
}

TEST_CASE("lists are what stands between commas, and are put together again") {
  CHECK(parts_of("") == Names{""});
  CHECK(parts_of("1,,2") == Names{"1", "", "2"});
  CHECK(joined(Names{}, ", ").empty());
  CHECK(joined(Names{"", "a", ""}, ", ") == ", a, ");
}

}  // namespace
}  // namespace tessera::tools
