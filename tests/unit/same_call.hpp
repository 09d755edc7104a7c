#pragma once

// Whether a function that we declare is called as NVIDIA's header has it.

#include <type_traits>

namespace carveout::test {

// Whether two types are passed alike: enumerations as the integers below them, all pointers as
// pointers.
template <typename Ours, typename Theirs>
constexpr bool passed_alike() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    if constexpr (!std::is_pointer_v<Ours> || !std::is_pointer_v<Theirs>) {
      return false;
    } else {
      using A = std::remove_pointer_t<Ours>;
      using B = std::remove_pointer_t<Theirs>;
      // What is behind it as well, where it is no opaque thing.
      if constexpr (std::is_const_v<A> != std::is_const_v<B>) return false;
      if constexpr (std::is_pointer_v<A> || std::is_arithmetic_v<A> || std::is_enum_v<A>) {
        return passed_alike<std::remove_const_t<A>, std::remove_const_t<B>>();
      }
      return std::is_class_v<A> == std::is_class_v<B> && std::is_void_v<A> == std::is_void_v<B>;
    }
  } else if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>) {
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  } else if constexpr (std::is_floating_point_v<Ours> || std::is_floating_point_v<Theirs>) {
    return std::is_same_v<Ours, Theirs>;
  } else {
    // An enumeration's underlying type may be unsigned: its values here are small and positive.
    constexpr bool kSameSign =
        std::is_enum_v<Theirs> || std::is_unsigned_v<Ours> == std::is_unsigned_v<Theirs>;
    return std::is_integral_v<Ours> &&
           (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>)&&sizeof(Ours) == sizeof(Theirs) &&
           kSameSign;
  }
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct SameCall<R(A...), S(B...)> {
  static constexpr bool kSame = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return passed_alike<R, S>() && (passed_alike<A, B>() && ...);
    }
  }();
};

// That the trait tells.
static_assert(SameCall<int(int, char*), int(int, char*)>::kSame);
static_assert(!SameCall<int(int), int(long)>::kSame);
static_assert(!SameCall<int(int), int(unsigned)>::kSame);
static_assert(!SameCall<int(int*), int(long*)>::kSame);
static_assert(!SameCall<int(int*), int(const int*)>::kSame);
static_assert(!SameCall<int(int), int(int, int)>::kSame);
static_assert(!SameCall<int(int*), int(long)>::kSame);
static_assert(SameCall<int(float*), int(float*)>::kSame);
static_assert(!SameCall<int(float*), int(double*)>::kSame);
static_assert(!SameCall<int(float), int(int)>::kSame);

}  // namespace carveout::test
