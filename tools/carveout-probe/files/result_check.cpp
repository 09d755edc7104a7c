#include "files/result_check.hpp"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/schema.h>

#include <algorithm>
#include <optional>

#include "base/text.hpp"
#include "files/result_schema.hpp"
#include "results.hpp"

namespace carveout::probe {
namespace {

// Full precision: a number that was written is read as the same number.
constexpr unsigned kParseFlags =
    rapidjson::kParseIterativeFlag | rapidjson::kParseFullPrecisionFlag;

using JsonValue = JsonDocument::ValueType;
using SchemaDocument = rapidjson::GenericSchemaDocument<JsonValue, ThrowingAllocator>;
using Validator = rapidjson::GenericSchemaValidator<
    SchemaDocument, rapidjson::BaseReaderHandler<rapidjson::UTF8<>>, ThrowingAllocator>;
using Pointer = SchemaDocument::PointerType;

std::string quoted(std::string_view text) {
  return cat("\"", printable(text, 100), "\"");
}

std::string_view text_of(const JsonValue& value) {
  return {value.GetString(), value.GetStringLength()};
}

std::string text_of(const Pointer& pointer) {
  JsonBuffer buffer;
  pointer.Stringify(buffer);
  return {buffer.GetString(), buffer.GetSize()};
}

// Goes over a text without keeping it: how deep and how much it is, and what it says it is.
class Outline : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Outline> {
 public:
  // RapidJSON's names. NOLINTBEGIN(readability-identifier-naming)
  bool Default() { return count(); }
  bool StartObject() { return enter(); }
  bool StartArray() { return enter(); }
  bool EndObject(rapidjson::SizeType /*members*/) { return leave(); }
  bool EndArray(rapidjson::SizeType /*elements*/) { return leave(); }
  bool Key(const char* name, rapidjson::SizeType length, bool /*copy*/) {
    if (depth_ == 1) names_schema_ = std::string_view(name, length) == "schema";
    return count();
  }
  bool String(const char* value, rapidjson::SizeType length, bool /*copy*/) {
    if (depth_ == 1 && names_schema_ && !schema_) schema_.emplace(value, length);
    return count();
  }
  // NOLINTEND(readability-identifier-naming)

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::optional<std::string>& schema() const { return schema_; }

 private:
  bool count() {
    if (++values_ <= kMaxResultValues) return true;
    problem_ = cat("holds more than ", kMaxResultValues, " values");
    return false;
  }
  bool enter() {
    if (++depth_ <= kMaxResultDepth) return count();
    problem_ = cat("is nested more than ", kMaxResultDepth, " deep");
    return false;
  }
  bool leave() { return --depth_, true; }

  std::size_t values_ = 0, depth_ = 0;
  bool names_schema_ = false;
  std::optional<std::string> schema_;
  std::string problem_;
};

Error no_result(const std::string& name, const std::string& what) {
  return Error{Code::kInvalid, 0, name, what};
}

Result<void> check_outline(const std::string& text, const std::string& name) {
  if (text.size() > kMaxResultBytes) {
    return no_result(name, cat("is larger than ", kMaxResultBytes >> 20U,
                               " MiB, so it is no result of carveout-probe's"));
  }
  Outline outline;
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, ThrowingAllocator> reader;
  const rapidjson::ParseResult parsed = reader.Parse<kParseFlags>(stream, outline);
  if (parsed.IsError()) {
    const auto end =
        text.begin() + static_cast<std::ptrdiff_t>(std::min(parsed.Offset(), text.size()));
    const auto line = 1 + std::count(text.begin(), end, '\n');
    const std::string what = outline.problem().empty()
                                 ? cat("is not JSON: ", rapidjson::GetParseError_En(parsed.Code()))
                                 : outline.problem();
    return no_result(name, cat("line ", line, ": ", what));
  }
  if (!outline.schema()) {
    return no_result(name, "names no schema, so it is no result of carveout-probe's");
  }
  if (*outline.schema() != kResultSchema) {
    Error other = no_result(name, cat("is of schema ", quoted(*outline.schema()), ", this reads ",
                                      quoted(kResultSchema)));
    other.code = Code::kRefused;
    return other;
  }
  return {};
}

JsonDocument parse(std::string_view text) {
  JsonDocument document;
  document.Parse<kParseFlags>(text.data(), text.size());
  return document;
}

const char* type_of(const JsonValue& value) {
  switch (value.GetType()) {
    case rapidjson::kNullType:
      return "null";
    case rapidjson::kFalseType:
    case rapidjson::kTrueType:
      return "a truth value";
    case rapidjson::kObjectType:
      return "an object";
    case rapidjson::kArrayType:
      return "an array";
    case rapidjson::kStringType:
      return "a string";
    case rapidjson::kNumberType:
      break;
  }
  return "a number";
}

std::string listed(const JsonValue& words) {
  std::string all;
  for (const JsonValue& word : words.GetArray())
    all += cat(all.empty() ? "" : ", ", text_of(word));
  return all;
}

// What `value` lacks or has that `schema` does not allow, by the keyword that it fails.
std::string complaint(const JsonValue& schema, std::string_view keyword, const JsonValue* value) {
  if (keyword == "additionalProperties") return "is not known here";
  const auto* rule = find_member(schema, std::string(keyword).c_str());
  if (rule == nullptr || value == nullptr) return cat("does not pass the schema's ", keyword);
  if (keyword == "type") {
    const bool fraction = value->IsNumber() && text_of(*rule) == "integer";
    return cat("is ", fraction ? "a number that is not whole" : type_of(*value), ", expected is ",
               fraction ? "a whole one" : text_of(*rule));
  }
  if (keyword == "enum") {
    return cat("is ", value->IsString() ? quoted(text_of(*value)) : type_of(*value),
               ", expected is one of: ", listed(*rule));
  }
  if (keyword == "required") {
    for (const JsonValue& name : rule->GetArray()) {
      if (find_member(*value, name.GetString()) == nullptr) return cat("has no ", text_of(name));
    }
  }
  if (keyword == "minimum" && rule->IsInt64()) return cat("is less than ", rule->GetInt64());
  if (keyword == "maximum" && rule->IsInt64()) return cat("is more than ", rule->GetInt64());
  if (keyword == "minLength") return "is empty";
  if (keyword == "maxItems") return cat("has more than ", rule->GetUint64(), " elements");
  return cat("does not pass the schema's ", keyword);
}

struct Fault {
  std::string where, what;
};

std::optional<Fault> find_fault(const JsonValue& value, const JsonValue& schema) {
  const SchemaDocument compiled(schema);
  Validator validator(compiled);
  value.Accept(validator);
  if (validator.IsValid()) return std::nullopt;
  const Pointer where = validator.GetInvalidDocumentPointer();
  const JsonValue* rule = validator.GetInvalidSchemaPointer().Get(schema);
  return Fault{text_of(where), complaint(rule == nullptr ? schema : *rule,
                                         validator.GetInvalidSchemaKeyword(), where.Get(value))};
}

// A series may be of any unit, and the schema says only that it is none of them. Its row tells
// which one was meant, so what is wrong with it as one of those.
std::optional<Fault> find_fault_in_series(const JsonValue& series, JsonDocument& schema) {
  if (!series.IsObject()) return Fault{"", cat("is ", type_of(series), ", expected is object")};
  const auto* row = find_member(series, "row");
  if (row == nullptr) return Fault{"", "has no row"};
  if (!row->IsString()) return Fault{"/row", cat("is ", type_of(*row), ", expected is string")};
  const auto known = row_named(text_of(*row));
  if (!known) return Fault{"/row", cat("is ", quoted(text_of(*row)), ", which is no row")};
  const std::string meant = cat("series_", field_suffix_of(facts(*known).unit));
  const JsonValue& definitions = *find_member(schema, "definitions");
  JsonPool& pool = schema.GetAllocator();
  JsonValue alone(*find_member(definitions, meant.c_str()), pool);
  alone.AddMember("definitions", JsonValue(definitions, pool), pool);
  return find_fault(series, alone);
}

}  // namespace

Error wrong(const std::string& name, std::string_view where, std::string_view what) {
  return Error{Code::kInvalid, 0, name,
               cat("at ", where.empty() ? "its top" : printable(where, 200), ": ", what)};
}

Result<JsonDocument> checked_json(const std::string& text, const std::string& name) {
  if (auto outline = check_outline(text, name); !outline) return outline.error();
  JsonDocument document = parse(text);
  JsonDocument schema = parse(result_schema());
  auto fault = find_fault(document, schema);
  if (!fault) return document;
  const Pointer place(fault->where.data(), fault->where.size());
  const JsonValue* value = place.Get(document);
  if (place.GetTokenCount() == 2 && value != nullptr &&
      std::string_view(place.GetTokens()[0].name) == "series") {
    if (auto closer = find_fault_in_series(*value, schema)) {
      return wrong(name, cat(fault->where, closer->where), closer->what);
    }
  }
  return wrong(name, fault->where, fault->what);
}

}  // namespace carveout::probe
