#pragma once

#include <rapidjson/document.h>

namespace carveout {

// The member of an object, or null.
inline const rapidjson::Value* find_member(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value::ConstMemberIterator found = object.FindMember(name);
  const rapidjson::Value::ConstMemberIterator end = object.MemberEnd();
  return found != end ? &found->value : nullptr;
}

}  // namespace carveout
