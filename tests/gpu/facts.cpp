#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/text.hpp"
#include "client/descriptor.hpp"
#include "cuda/mapping.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"
#include "source/cuda.hpp"
#include "source/memfd.hpp"

namespace carveout::test {
namespace {

constexpr Bytes kSize = kSliceBytes;

void observe(const std::string& what, const std::string& is) {
  std::printf("  %s: %s\n", what.c_str(), is.c_str());
}

const char* yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) >= 0;
}

Result<cuda::Mapping> map(DescriptorKind kind, int descriptor, MapStrategy strategy) {
  return cuda::map({kind, descriptor, kSize}, {.strategy = strategy});
}
Result<cuda::Mapping> map_by_vmm(int descriptor) {
  return map(DescriptorKind::kNvidiaFile, descriptor, MapStrategy::kVmm);
}

std::string text_of(const Result<std::optional<std::string>>& compared) {
  if (!compared) return compared.error().describe();
  return *compared ? cat("no, ", **compared) : "yes";
}

std::string text_of(const Result<client::LentFile>& file) {
  if (!file) return file.error().describe();
  switch (file->kind) {
    case DescriptorKind::kNvidiaFile:
      return "a file of NVIDIA's driver";
    case DescriptorKind::kDmaBuf:
      return "a dma-buf";
    case DescriptorKind::kMemfd:
      break;
  }
  return "a memfd";
}

void show_file(int descriptor) {
  struct stat status {};
  std::error_code ignored;
  const auto target = std::filesystem::read_symlink(cat("/proc/self/fd/", descriptor), ignored);
  std::string is = "cannot be examined";
  if (::fstat(descriptor, &status) == 0) {
    is = cat(S_ISCHR(status.st_mode)   ? "a character device "
             : S_ISREG(status.st_mode) ? "a regular file "
                                       : "something else ",
             major(status.st_rdev), ":", minor(status.st_rdev), ", length ", status.st_size);
  }
  observe("an exported descriptor is", cat(is, ", ", printable(target.native(), 100)));
  const bool seeks = ::lseek(descriptor, 0, SEEK_END) >= 0;
  observe("its lseek(SEEK_END) says", seeks ? "a length" : std::strerror(errno));
  observe("the client library takes it for", text_of(client::examine(descriptor)));
}

// Whether CUDA's own export is close-on-exec: the library makes it so, a moment later.
void show_export(const Gpu& gpu) {
  cuda::Finder find(*gpu.context().driver());
  auto* const create = find(cuda::kMemCreate);
  auto* const export_memory = find(cuda::kMemExport);
  auto* const release = find(cuda::kMemRelease);
  const cuda::Entered entered(gpu.context());
  const auto properties = cuda::shareable_memory(gpu.context().device());
  cuda::CUmemGenericAllocationHandle handle = 0;
  if (find.missing() || !entered ||
      create(&handle, kSize.count(), &properties, 0) != cuda::kSuccess) {
    return observe("CUDA's export", "cannot be tried");
  }
  int descriptor = -1;
  if (export_memory(&descriptor, handle, cuda::kHandlePosixDescriptor, 0) == cuda::kSuccess) {
    const UniqueFd file(descriptor);
    const int flags = ::fcntl(descriptor, F_GETFD);
    observe("CUDA exports close-on-exec", yes_or_no(flags >= 0 && (flags & FD_CLOEXEC) != 0));
  }
  (void)release(handle);
}

void show_second_import(const Gpu& gpu, int descriptor) {
  const auto first = map_by_vmm(descriptor);
  const auto second = map_by_vmm(descriptor);
  if (!first || !second) {
    const Error& error = first ? second.error() : first.error();
    return observe("one file imported twice in a process", cat("no, ", error.describe()));
  }
  if (auto written = gpu.write(first->device_pointer(), kSize, Pattern(21)); !written) {
    return observe("one file imported twice in a process", written.error().describe());
  }
  observe("one file imported twice in a process", "yes");
  observe("what is written by the first is read by the second",
          text_of(gpu.compare(second->device_pointer(), kSize, Pattern(21))));
}

// By hand, since the library trusts what is documented: on success the descriptor is CUDA's.
void show_given_descriptor(const Gpu& gpu, int descriptor) {
  const std::string what = "a descriptor given to cuImportExternalMemory(OPAQUE_FD)";
  cuda::Finder find(*gpu.context().driver());
  auto* const import_memory = find(cuda::kImportExternalMemory);
  auto* const destroy = find(cuda::kDestroyExternalMemory);
  if (find.missing()) return observe(what, find.missing()->describe());
  const cuda::Entered entered(gpu.context());
  const int given = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  cuda::ExternalMemoryHandleDesc wanted;
  wanted.type = cuda::kExternalOpaqueFd;
  wanted.handle.fd = given;
  wanted.size = kSize.count();
  cuda::CUexternalMemory memory = nullptr;
  const cuda::CUresult answer = import_memory(&memory, &wanted);
  const bool after_import = is_open(given);
  std::string text = cat("is ", after_import ? "open" : "closed", " after the import");
  if (answer == cuda::kSuccess) {
    (void)destroy(memory);
    text += cat(", ", is_open(given) ? "open" : "closed", " after the memory was destroyed");
  } else {
    text +=
        cat(", which was refused: ",
            gpu.context().driver()->failed(cuda::kImportExternalMemory.name, answer, "").message);
  }
  observe(what, text);
  if (is_open(given)) ::close(given);
}

void show_registered(const Gpu& gpu) {
  const auto source = make_memfd_source();
  const auto memory = source->allocate(kSize);
  if (!memory) return observe("ordinary memory", memory.error().describe());
  const auto mapping =
      map(DescriptorKind::kMemfd, memory->descriptor.get(), MapStrategy::kRegister);
  const auto said = gpu.attribute(cuda::kAttributeSameHostPointer);
  const std::string what = "registered memory has one pointer for both (the driver says ";
  observe(cat(what, said ? yes_or_no(*said != 0) : "nothing", ")"),
          !mapping ? mapping.error().describe()
                   : yes_or_no(mapping->device_pointer() ==
                               reinterpret_cast<std::uintptr_t>(mapping->host_pointer())));
}

// What the last one left is the next one's, unless somebody zeroes it.
void show_fresh_memory(const Gpu& gpu, Source& source) {
  for (const bool dirty : {true, false}) {
    const auto memory = source.allocate(kSize);
    if (!memory) return observe("fresh memory", memory.error().describe());
    const auto mapping = map_by_vmm(memory->descriptor.get());
    if (!mapping) return observe("fresh memory", mapping.error().describe());
    if (dirty) {
      (void)gpu.write(mapping->device_pointer(), kSize, Pattern(22));
    } else {
      observe("fresh memory is zero before the library zeroes it",
              text_of(gpu.compare(mapping->device_pointer(), kSize, Pattern::zero())));
    }
  }
}

}  // namespace

Result<void> show_facts() {
  auto gpu = Gpu::open();
  if (!gpu) return std::move(gpu).error();
  auto source = open_cuda_source({});
  if (!source) return std::move(source).error();
  show_export(*gpu);
  const auto memory = (*source)->allocate(kSize);
  if (!memory) return memory.error();
  // Of what was imported from an exported file, as the daemon does it.
  const auto shared = (*source)->share(*memory);
  observe("imported memory can be exported again",
          shared ? "yes" : cat("no, ", shared.error().describe()));
  const int descriptor = shared ? shared->get() : memory->descriptor.get();
  show_file(descriptor);
  show_second_import(*gpu, descriptor);
  show_given_descriptor(*gpu, descriptor);
  show_registered(*gpu);
  show_fresh_memory(*gpu, **source);
  return {};
}

}  // namespace carveout::test
