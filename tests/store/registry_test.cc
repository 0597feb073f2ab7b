// SPDX-License-Identifier: Apache-2.0
#include "store/registry.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "store/store_harness.h"

namespace tiercel {
namespace {

using ::testing::Test;

Option text_option(std::string name, std::string default_value = "") {
  Option option;
  option.name = std::move(name);
  option.help = "Text";
  option.default_value = std::move(default_value);
  return option;
}

// A registry whose backend and wrappers only note what they were given.
class StoreRegistryTest : public Test {
 protected:
  StoreRegistryTest() {
    register_all_stores(registry_);
    registry_.add(noting_store("noting"));
    registry_.add_wrapper(noting_wrapper("outer"));
    registry_.add_wrapper(noting_wrapper("inner"));
  }

  StoreInfo noting_store(const std::string& scheme) {
    StoreInfo info;
    info.scheme = scheme;
    info.summary = "Notes its URL";
    info.options.add(text_option("text"));
    Option size;
    size.name = "size_bytes";
    size.type = OptionType::kBytes;
    size.help = "A size";
    size.default_value = "1KiB";
    info.options.add(size);
    info.open = [this](const StoreUrl& url,
                       const StoreContext& context) -> Result<std::unique_ptr<Store>> {
      notes_.push_back("open " + url.path);
      store_url_ = url;
      StoreRegistry memory;
      register_all_stores(memory);
      return memory.open("memory:", context);
    };
    return info;
  }

  StoreWrapperInfo noting_wrapper(const std::string& name) {
    StoreWrapperInfo info;
    info.name = name;
    info.summary = "Notes its turn";
    info.options.add(text_option(name + "_text", "none"));
    info.wrap = [this, name](std::unique_ptr<Store> inner, const StoreUrl& url,
                             const StoreContext&) -> Result<std::unique_ptr<Store>> {
      notes_.push_back(name + " " + url.options.get_string(name + "_text") + " " + url.scheme);
      return inner;
    };
    return info;
  }

  Result<std::unique_ptr<Store>> open(std::string_view url) {
    return registry_.open(url, {clock_});
  }

  // The message of the refusal, which must be kInvalid and name the URL.
  std::string refusal(const std::string& url) {
    const Result<std::unique_ptr<Store>> store = open(url);
    EXPECT_EQ(store.code(), Code::kInvalid) << url;
    if (store) return "";
    EXPECT_NE(store.error().message().find("'" + escaped_path(url) + "'"), std::string::npos)
        << store.error().message();
    return store.error().message();
  }

  ManualClock clock_;
  StoreRegistry registry_;
  std::vector<std::string> notes_;
  StoreUrl store_url_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(StoreRegistryTest, HandsPathAndOptionsToTheBackend) {
  ASSERT_TRUE(open("noting:///some/path:with?text=a=b?c&size-bytes=2MiB"));
  EXPECT_EQ(store_url_.scheme, "noting");
  EXPECT_EQ(store_url_.path, "///some/path:with");
  EXPECT_EQ(store_url_.options.get_string("text"), "a=b?c");
  EXPECT_EQ(store_url_.options.get_integer("size_bytes"), 2 << 20);
  EXPECT_EQ(store_url_.text, "noting:///some/path:with?text=a=b?c&size-bytes=2MiB");
}

TEST_F(StoreRegistryTest, LeavesOptionsThatAreNotGivenAtTheirDefaults) {
  for (const char* url : {"noting:", "noting:?"}) {
    ASSERT_TRUE(open(url));
    EXPECT_EQ(store_url_.path, "");
    EXPECT_FALSE(store_url_.options.is_set("text"));
    EXPECT_EQ(store_url_.options.get_integer("size_bytes"), 1024);
    EXPECT_EQ(store_url_.options.source("size_bytes"), OptionSource::kDefault);
  }
}

TEST_F(StoreRegistryTest, DecodesPercentSequencesInPathAndOptions) {
  ASSERT_TRUE(open("noting:a%20b%3fc?t%65xt=100%25%26%3D%7e"));
  EXPECT_EQ(store_url_.path, "a b?c");
  EXPECT_EQ(store_url_.options.get_string("text"), "100%&=~");
  ASSERT_TRUE(open("noting:?text=a+b"));
  EXPECT_EQ(store_url_.options.get_string("text"), "a+b") << "a plus is a plus";
}

TEST_F(StoreRegistryTest, AppliesTheWrappersFromTheInsideOut) {
  ASSERT_TRUE(open("outer+inner+noting:p?inner_text=x&text=y"));
  EXPECT_EQ(notes_, (std::vector<std::string>{"open p", "inner x noting", "outer none noting"}));
  EXPECT_EQ(store_url_.options.get_string("text"), "y");
}

TEST_F(StoreRegistryTest, NamesTheNearestStoreAndAllOfThem) {
  const std::string text = refusal("memry:");
  EXPECT_TRUE(contains(text, "'memry'")) << text;
  EXPECT_TRUE(contains(text, "did you mean 'memory'?")) << text;
  EXPECT_TRUE(contains(text, "noting")) << text;
  EXPECT_FALSE(contains(refusal("zzzzzzzz:"), "did you mean"));
}

TEST_F(StoreRegistryTest, NamesTheNearestWrapperAndAllOfThem) {
  const std::string text = refusal("fauly+memory:");
  EXPECT_TRUE(contains(text, "did you mean 'faulty'?")) << text;
  EXPECT_TRUE(contains(text, "outer, inner")) << text;
  EXPECT_TRUE(contains(refusal("faulty:"), "faulty+scheme:"));
}

TEST_F(StoreRegistryTest, NamesTheNearestOptionAndAllOfThem) {
  const std::string text = refusal("outer+noting:?txt=1");
  EXPECT_TRUE(contains(text, "'txt'")) << text;
  EXPECT_TRUE(contains(text, "did you mean 'text'?")) << text;
  EXPECT_TRUE(contains(text, "text, size_bytes, outer_text")) << text;
  EXPECT_TRUE(contains(refusal("noting:?outer_text=1"), "unknown option"))
      << "an option of a wrapper that is not in the URL";
}

TEST_F(StoreRegistryTest, RefusesABadValueWithTheNameOfItsOption) {
  const std::string text = refusal("noting:?size_bytes=lots");
  EXPECT_TRUE(contains(text, "size_bytes")) << text;
  EXPECT_TRUE(contains(text, "lots")) << text;
  EXPECT_FALSE(contains(text, "size_bytes: size_bytes")) << text;
}

TEST_F(StoreRegistryTest, AnOuterWrapperIsAddedUnlessTheUrlHasItAndNotNamedInErrors) {
  ASSERT_TRUE(registry_.open("noting:", {clock_}, "outer"));
  const std::vector<std::string> added = notes_;
  notes_.clear();
  ASSERT_TRUE(registry_.open("outer+noting:", {clock_}, "outer"));
  EXPECT_EQ(notes_, added);
  notes_.clear();
  ASSERT_TRUE(open("noting:"));
  EXPECT_NE(notes_, added);
  const auto refused = registry_.open("notin:", {clock_}, "outer");
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().message(), "'notin:'")) << refused.error().message();
}

TEST_F(StoreRegistryTest, ControlCharactersDoNotReachTheTerminal) {
  for (const std::string url :
       {"a\x1b[31m:", "noting:?%1b[31m=1", "noting:%1b[31m?x", "memory:%1b[31m"}) {
    const auto refused = open(url);
    ASSERT_FALSE(refused) << url;
    for (const char letter : refused.error().message()) {
      EXPECT_GE(letter, ' ') << refused.error().message();
    }
  }
}

TEST_F(StoreRegistryTest, RefusesEveryMalformedUrl) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no ':'"},
      {"memory", "no ':'"},
      {":", "the scheme ''"},
      {":path", "the scheme ''"},
      {"Memory:", "lower-case"},
      {"1memory:", "lower-case"},
      {"mem-ory:", "lower-case"},
      {"+memory:", "the wrapper ''"},
      {"faulty++memory:", "the wrapper ''"},
      {"faulty+:", "the scheme ''"},
      {"outer+outer+noting:", "stands twice"},
      {"noting:?text", "name=value"},
      {"noting:?=x", "name=value"},
      {"noting:?text=x&", "after the last '&'"},
      {"noting:?&text=x", "name=value"},
      {"noting:?text=x&&size_bytes=1", "name=value"},
      {"noting:?text=x&text=y", "stands twice"},
      {"noting:?size-bytes=1&size_bytes=1", "stands twice"},
      {"noting:?text=%", "hexadecimal"},
      {"noting:?text=%4", "hexadecimal"},
      {"noting:?text=%4g", "hexadecimal"},
      {"noting:%zz", "hexadecimal"},
      {"noting:?text=%00", "%00"},
      {"noting: ?text=x", "percent-encoded"},
      {"noting:?text=a\nb", "percent-encoded"},
      {"noting:?text=a\x7f", "percent-encoded"},
  };
  for (const auto& [url, part] : cases) {
    const std::string text = refusal(url);
    EXPECT_TRUE(contains(text, part)) << text;
  }
}

TEST_F(StoreRegistryTest, AnswersEveryDamagedUrlWithAStoreOrARefusal) {
  const std::string url = "outer+noting:/a%20b?text=x%3dy&size_bytes=4KiB";
  ASSERT_TRUE(open(url));
  const auto check = [&](const std::string& damaged) {
    const Result<std::unique_ptr<Store>> store = open(damaged);
    if (store) return;
    EXPECT_EQ(store.code(), Code::kInvalid);
    EXPECT_TRUE(contains(store.error().message(), "'" + escaped_path(damaged) + "'"))
        << store.error().message();
    for (const char letter : store.error().message()) EXPECT_GE(letter, ' ');
  };
  for (size_t length = 0; length < url.size(); ++length) check(url.substr(0, length));
  for (size_t bit = 0; bit < url.size() * 8; ++bit) {
    std::string damaged = url;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    check(damaged);
  }
}

TEST_F(StoreRegistryTest, RefusesTheSameNameTwice) {
  EXPECT_DEATH(registry_.add(noting_store("memory")), "same scheme");
  EXPECT_DEATH(registry_.add_wrapper(noting_wrapper("outer")), "same name");
}

TEST_F(StoreRegistryTest, RefusesOptionsThatClash) {
  StoreInfo store = noting_store("other");
  store.options.add(text_option("inner_text"));
  EXPECT_DEATH(registry_.add(store), "option of the same name");
  StoreWrapperInfo wrapper = noting_wrapper("third");
  wrapper.options.add(text_option("text"));
  EXPECT_DEATH(registry_.add_wrapper(wrapper), "option of the same name");
}

TEST_F(StoreRegistryTest, EveryFolderRegistersItself) {
  std::vector<std::string> names;
  for (const StoreInfo& store : registry_.stores()) names.push_back(store.scheme);
  for (const StoreWrapperInfo& wrapper : registry_.wrappers()) names.push_back(wrapper.name);
  for (const char* name : {"memory", "faulty"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

}  // namespace
}  // namespace tiercel
