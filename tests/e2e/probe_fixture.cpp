#include "probe_fixture.hpp"

namespace carveout::test {

rapidjson::Document parse(const std::string& text) {
  rapidjson::Document document;
  document.Parse(text.c_str());
  EXPECT_FALSE(document.HasParseError()) << text.substr(0, 1000);
  return document;
}

const rapidjson::Value& arm_of(const rapidjson::Document& result, const std::string& name) {
  for (const auto& arm : result["arms"].GetArray()) {
    if (arm["name"].GetString() == name) return arm;
  }
  ADD_FAILURE() << "no arm " << name;
  return result["arms"][0];
}

std::vector<std::size_t> batches_of(const rapidjson::Document& result, const std::string& name) {
  std::vector<std::size_t> counts;
  for (const auto& series : result["series"].GetArray()) {
    if (series["arm"].GetString() == name) counts.push_back(series["batches"].Size());
  }
  return counts;
}

}  // namespace carveout::test
