#pragma once

#include <rapidjson/document.h>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace carveout {

// By operator new, which throws: RapidJSON's own takes the null of a failed malloc() for memory.
class ThrowingAllocator {
 public:
  // RapidJSON's names. NOLINTBEGIN(readability-identifier-naming)
  static constexpr bool kNeedFree = true;

  static void* Malloc(std::size_t size) { return size == 0 ? nullptr : ::operator new(size); }
  static void* Realloc(void* place, std::size_t had, std::size_t size) {
    void* const moved = Malloc(size);
    if (moved != nullptr && place != nullptr) std::memcpy(moved, place, std::min(had, size));
    Free(place);
    return moved;
  }
  static void Free(void* place) { ::operator delete(place); }
  // NOLINTEND(readability-identifier-naming)
};

using JsonPool = rapidjson::MemoryPoolAllocator<ThrowingAllocator>;
using JsonDocument = rapidjson::GenericDocument<rapidjson::UTF8<>, JsonPool, ThrowingAllocator>;
using JsonBuffer = rapidjson::GenericStringBuffer<rapidjson::UTF8<>, ThrowingAllocator>;
using JsonTextWriter =
    rapidjson::Writer<JsonBuffer, rapidjson::UTF8<>, rapidjson::UTF8<>, ThrowingAllocator>;
using IndentingJsonTextWriter =
    rapidjson::PrettyWriter<JsonBuffer, rapidjson::UTF8<>, rapidjson::UTF8<>, ThrowingAllocator>;

// The member of an object, or null.
template <typename Encoding, typename Allocator>
const rapidjson::GenericValue<Encoding, Allocator>* find_member(
    const rapidjson::GenericValue<Encoding, Allocator>& object, const char* name) {
  const auto found = object.FindMember(name);
  return found != object.MemberEnd() ? &found->value : nullptr;
}

// A JSON writer that takes our own types. Text from outside (a command's name need not be UTF-8)
// is made printable first; real numbers must be finite, JSON has no others.
template <typename TextWriter>
class BasicJsonWriter {
 public:
  BasicJsonWriter() : writer_(buffer_) {}

  BasicJsonWriter& object() { return writer_.StartObject(), *this; }
  BasicJsonWriter& object(std::string_view name) { return key(name), object(); }
  BasicJsonWriter& end() { return writer_.EndObject(), *this; }
  BasicJsonWriter& array(std::string_view name) { return key(name), writer_.StartArray(), *this; }
  BasicJsonWriter& end_array() { return writer_.EndArray(), *this; }
  BasicJsonWriter& string(std::string_view value) {
    const std::string safe = printable(value, kMaxText);
    writer_.String(safe.data(), static_cast<rapidjson::SizeType>(safe.size()));
    return *this;
  }
  BasicJsonWriter& text(std::string_view name, std::string_view value) {
    return key(name), string(value);
  }
  BasicJsonWriter& number(std::uint64_t value) { return writer_.Uint64(value), *this; }
  BasicJsonWriter& number(std::string_view name, std::uint64_t value) {
    return key(name), writer_.Uint64(value), *this;
  }
  BasicJsonWriter& real(std::string_view name, double value) {
    return key(name), writer_.Double(value), *this;
  }
  BasicJsonWriter& boolean(std::string_view name, bool value) {
    return key(name), writer_.Bool(value), *this;
  }

  [[nodiscard]] std::string take() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  static constexpr std::size_t kMaxText = 4096;

  void key(std::string_view name) {
    writer_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
  }

  JsonBuffer buffer_;
  TextWriter writer_;
};

// All on one line; and for people, too, in lines that are indented.
using JsonWriter = BasicJsonWriter<JsonTextWriter>;
using IndentingJsonWriter = BasicJsonWriter<IndentingJsonTextWriter>;

}  // namespace carveout
