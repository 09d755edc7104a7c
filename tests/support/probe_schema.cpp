#include "support/probe_schema.hpp"

#include <rapidjson/document.h>
#include <rapidjson/error/en.h>
#include <rapidjson/schema.h>
#include <rapidjson/stringbuffer.h>

#include <fstream>
#include <iterator>

namespace carveout::test {
namespace {

std::string text_of(const rapidjson::Pointer& pointer) {
  rapidjson::StringBuffer buffer;
  pointer.Stringify(buffer);
  return buffer.GetString();
}

}  // namespace

std::string validate_against_schema(std::string_view text, const std::string& schema) {
  std::ifstream file(std::string(CARVEOUT_SOURCE_DIR "/tools/carveout-probe/files/") + schema);
  const std::string rules{std::istreambuf_iterator<char>(file), {}};
  rapidjson::Document rule_document;
  rule_document.Parse(rules.c_str());
  if (rule_document.HasParseError() || !rule_document.IsObject()) return schema + " is no schema";
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  if (document.HasParseError()) {
    return std::string("not JSON: ") + rapidjson::GetParseError_En(document.GetParseError());
  }
  const rapidjson::SchemaDocument compiled(rule_document);
  rapidjson::SchemaValidator validator(compiled);
  if (document.Accept(validator)) return {};
  return text_of(validator.GetInvalidDocumentPointer()) + " fails " +
         validator.GetInvalidSchemaKeyword() + " of " +
         text_of(validator.GetInvalidSchemaPointer());
}

}  // namespace carveout::test
