// Any bytes as a request, and as either reply.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/text.hpp"
#include "wire/codec.hpp"

namespace {

void must(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carveout;        // NOLINT(google-build-using-namespace)
  using namespace carveout::wire;  // NOLINT(google-build-using-namespace)
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);

  if (const auto request = parse_request(bytes)) {
    must(size <= kMaxDatagram && is_utf8(bytes));
    // What was understood is understood again when we say it ourselves.
    const std::string again = request->op == Op::kAlloc && request->size
                                  ? encode_alloc_request(request->key, *request->size)
                                  : encode_info_request(request->key);
    // Escapes can make our own words longer than a datagram may be.
    if (again.size() <= kMaxDatagram && is_utf8(request->key)) {
      const auto second = parse_request(again);
      must(second && second->key == request->key);
      if (request->op == Op::kAlloc) must(!request->size || second->size == request->size);
    }
  }
  if (const auto info = parse_info_reply(bytes)) must(size <= kMaxDatagram);
  if (const auto grant = parse_grant_reply(bytes); !grant) {
    // A reason is bounded and fit for a terminal, whatever the peer sent.
    const std::string text = grant.error().describe();
    must(text.size() < 2000 && printable(text, 4000) == text);
  }
  return 0;
}
