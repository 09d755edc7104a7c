#pragma once

#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace carveout {

// The member of an object, or null.
inline const rapidjson::Value* find_member(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value::ConstMemberIterator found = object.FindMember(name);
  const rapidjson::Value::ConstMemberIterator end = object.MemberEnd();
  return found != end ? &found->value : nullptr;
}

// A JSON writer that takes our own types. Text from outside (a command's name need not be UTF-8)
// is made printable first.
class JsonWriter {
 public:
  JsonWriter() : writer_(buffer_) {}

  JsonWriter& object() { return writer_.StartObject(), *this; }
  JsonWriter& object(std::string_view name) { return key(name), object(); }
  JsonWriter& end() { return writer_.EndObject(), *this; }
  JsonWriter& array(std::string_view name) { return key(name), writer_.StartArray(), *this; }
  JsonWriter& end_array() { return writer_.EndArray(), *this; }
  JsonWriter& string(std::string_view value) {
    const std::string safe = printable(value, kMaxText);
    writer_.String(safe.data(), static_cast<rapidjson::SizeType>(safe.size()));
    return *this;
  }
  JsonWriter& text(std::string_view name, std::string_view value) {
    return key(name), string(value);
  }
  JsonWriter& number(std::string_view name, std::uint64_t value) {
    return key(name), writer_.Uint64(value), *this;
  }
  JsonWriter& real(std::string_view name, double value) {
    return key(name), writer_.Double(value), *this;
  }
  JsonWriter& boolean(std::string_view name, bool value) {
    return key(name), writer_.Bool(value), *this;
  }

  [[nodiscard]] std::string take() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  static constexpr std::size_t kMaxText = 4096;

  void key(std::string_view name) {
    writer_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
  }

  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer> writer_;
};

}  // namespace carveout
