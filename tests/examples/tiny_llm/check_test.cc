// SPDX-License-Identifier: Apache-2.0
//
// The answers do not change, in every configuration of the check; and each planted fault is found.
#include "tiny_llm/check.h"

#include "support/paths.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace tiercel::tiny {

void PrintTo(const CheckCase& check_case, std::ostream* out) { *out << check_case.name; }

namespace {

struct Shape {
  KvType kv_type;
  uint32_t rank_count;
  uint32_t window_layers;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << to_string(shape.kv_type) << ", ranks: " << shape.rank_count
       << ", layers with a window: " << shape.window_layers;
}

std::unique_ptr<CheckWorld> make_world(const Shape& shape, PlantedFault fault,
                                       const CheckCase& check_case, const std::string& folder) {
  static const SystemClock clock;
  CheckWorld::Options options;
  options.config.kv_type = shape.kv_type;
  options.config.rank_count = shape.rank_count;
  options.config.window_layers = shape.window_layers;
  options.fault = fault;
  options.disk_folder = folder;
  options.new_weights = check_case.has_new_weights();
  auto world = CheckWorld::create(options, clock);
  EXPECT_TRUE(world) << world.error().message();
  return *std::move(world);
}

std::string complaints(const CaseOutcome& outcome) {
  std::string text;
  for (const auto& list : {outcome.findings.complaints, outcome.complaints, outcome.unproven}) {
    for (const std::string& complaint : list) text += complaint + "\n";
  }
  return text;
}

class CheckTest : public ::testing::TestWithParam<std::tuple<Shape, CheckCase>> {};

TEST_P(CheckTest, LogitsTokensAndBytesAreThoseWithoutACache) {
  const testing::TempFolder folder;
  const auto& [shape, check_case] = GetParam();
  const auto world = make_world(shape, PlantedFault::kNone, check_case, folder.path(""));
  const auto outcome = run_case(check_case, *world);
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_TRUE(outcome->ok()) << complaints(*outcome);
  EXPECT_GE(outcome->requests, 16u);
}

std::string test_name(const ::testing::TestParamInfo<CheckTest::ParamType>& info) {
  const auto& [shape, check_case] = info.param;
  std::string name;
  for (const char c : check_case.name) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  }
  return name + "_" + std::string(to_string(shape.kv_type)) + "_" +
         std::to_string(shape.rank_count);
}

// The other combinations differ in nothing that a tier could notice; the program runs them.
INSTANTIATE_TEST_SUITE_P(
    All, CheckTest,
    ::testing::Combine(::testing::Values(Shape{KvType::kFp32, 1, 0}, Shape{KvType::kBf16, 2, 1}),
                       ::testing::ValuesIn(check_cases().begin(), check_cases().end())),
    test_name);

class PlantedFaultTest
    : public ::testing::TestWithParam<std::pair<PlantedFault, std::string_view>> {};

TEST_P(PlantedFaultTest, IsFoundByTheComparisonOfBytes) {
  const testing::TempFolder folder;
  const PlantedFault fault = GetParam().first;
  const std::string_view name = GetParam().second;
  const auto check_case = std::find_if(check_cases().begin(), check_cases().end(),
                                       [&](const CheckCase& some) { return some.name == name; });
  ASSERT_NE(check_case, check_cases().end()) << "no case is called " << name;
  const auto world = make_world({KvType::kBf16, 2, 0}, fault, *check_case, folder.path(""));
  const auto outcome = run_case(*check_case, *world);
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_GT(outcome->findings.planted_faults, 0u);
  EXPECT_GT(outcome->findings.wrong_blocks, 0u);
  EXPECT_FALSE(outcome->ok());
}

INSTANTIATE_TEST_SUITE_P(
    Faults, PlantedFaultTest,
    ::testing::Values(std::pair(PlantedFault::kByteFlip, "+ host, preemption"),
                      std::pair(PlantedFault::kByteFlip, "+ store, two engines"),
                      std::pair(PlantedFault::kSwapBlocks, "+ host, preemption"),
                      std::pair(PlantedFault::kSwapBlocks, "+ disk, restart"),
                      std::pair(PlantedFault::kShareUncomputed, "device, odd chunks"),
                      std::pair(PlantedFault::kStaleWeights, "new weights"),
                      std::pair(PlantedFault::kStaleWeights, "+ disk, new weights")));

TEST(CheckProgramTest, ExitsByWhatItFinds) {
  const std::string program = testing::binary_path("tiercel-tiny");
  const auto right =
      testing::run_shell(program + " --check --attention full --kv fp32 --ranks 1 --only device");
  EXPECT_EQ(right.status, 0) << right.text;
  EXPECT_NE(right.text.find("the cache changes nothing"), std::string::npos) << right.text;
  const auto wrong = testing::run_shell(program +
                                        " --check --attention full --kv fp32 --ranks 1 --only "
                                        "'device, odd' --plant share-uncomputed");
  EXPECT_EQ(wrong.status, 1) << wrong.text;
  EXPECT_NE(wrong.text.find("WRONG"), std::string::npos) << wrong.text;
}

TEST(CheckProgramTest, RefusesWhatItCannotDo) {
  const std::string program = testing::binary_path("tiercel-tiny");
  for (const auto& [arguments, message] :
       {std::pair("--check --plant nonsense", "plant is \"nonsense\"; allowed: none, byte-flip"),
        std::pair("--check --only nonsense", "only is 'nonsense', which no configuration has"),
        std::pair("--check --attention full --kv fp32 --ranks 1 --only 'device, pre' --plant "
                  "stale-weights",
                  "no configuration had a place for it"),
        std::pair("--check --store nonsense:x --only device", "unknown store 'nonsense'"),
        std::pair("--check --disk-path /proc/nothing --only disk",
                  "disk_path: \"/proc/nothing\" cannot be used: "),
        std::pair("--check --layers 0", "layers is \"0\"; allowed: 2 to 64")}) {
    const auto outcome = testing::run_shell(program + " " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_NE(outcome.text.find(message), std::string::npos) << outcome.text;
    // Whether a fault has a place only the configurations can tell.
    const bool is_late = std::string_view(arguments).find("stale-weights") != std::string::npos;
    EXPECT_EQ(outcome.text.find("configuration  ") != std::string::npos, is_late) << outcome.text;
  }
}

TEST(CheckProgramTest, SaysNotProvenWhereNothingDiffersAndNotAllWasSeen) {
  // Everything that is asked of this store fails at once.
  const auto outcome = testing::run_shell(
      testing::binary_path("tiercel-tiny") +
      " --check --attention full --kv fp32 --ranks 1 --only '+ store, two' --store "
      "'faulty+memory:none?fault_error=1'");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("not proven: saw no block from the store"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("NOT PROVEN"), std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("WRONG"), std::string::npos) << outcome.text;
}

TEST(CheckProgramTest, StoppedItLeavesNoFolderBehind) {
  const testing::TempFolder folder;
  // Far more than it comes to before the signal; it is stopped as soon as its folder is there.
  const auto outcome = testing::run_shell(
      "export TMPDIR=" + folder.path("") + "; " + testing::binary_path("tiercel-tiny") +
      " --check --more-requests 200 & pid=$!; until ls " + folder.path("") +
      "tiercel-tiny-* >/dev/null 2>&1; do kill -0 $pid || exit 99; done; kill -TERM $pid; wait "
      "$pid; "
      "echo status $?; ls " +
      folder.path(""));
  EXPECT_NE(outcome.text.find("status 130"), std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("tiercel-tiny-"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace tiercel::tiny
