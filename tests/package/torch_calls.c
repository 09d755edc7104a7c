/* PyTorch's part: finds the allocator by a path and two names, as CUDAPluggableAllocator does, and
 * calls it as a pool does: 1,000 random sequences of requests, each of which gets its memory from
 * the carveout or from one cuMemAlloc(), counted by the fake driver.
 * Usage: torch_calls LIBRARY [LIMIT]     LIMIT: the most that the driver allocates, in bytes */

#include <carveout/carveout.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CUstream_st* stream_t;
typedef void* (*alloc_t)(size_t, int, stream_t);
typedef void (*free_t)(void*, size_t, int, stream_t);
typedef carveout_status_t (*state_t)(carveout_torch_state_t*, carveout_error_t*);
typedef int (*calls_t)(const char*);
typedef void (*set_t)(const char*, long);
typedef const char* (*text_t)(void);

enum { SEQUENCES = 1000, STEPS = 40, MOST = 16 };

static alloc_t allocate;
static free_t give_back;
static state_t get_state;
static calls_t calls;

static struct {
  unsigned char* at;
  size_t bytes;
  unsigned char mark;
} held[MOST];
static int count;
static unsigned long long requests, carved, by_driver, failed, freed_by_driver;
static unsigned random_state = 1;

static unsigned next(unsigned below) {
  random_state = random_state * 1664525u + 1013904223u;
  return (random_state >> 8) % below;
}

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "request %llu: %s\n", requests, what);
  exit(1);
}

static void* symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == NULL) fprintf(stderr, "%s\n", dlerror()), exit(1);
  return found;
}

static carveout_torch_state_t state(void) {
  carveout_torch_state_t now;
  now.struct_size = sizeof now;
  check(get_state(&now, NULL) == CARVEOUT_OK, "no state");
  return now;
}

/* What PyTorch asks for: 2 MiB for the small, 20 MiB or a multiple of 2 MiB for the large; and what
 * others might. */
static size_t some_size(void) {
  switch (next(4)) {
    case 0:
      return (size_t)2 << 20;
    case 1:
      return (size_t)20 << 20;
    case 2:
      return ((size_t)1 + next(8)) * ((size_t)2 << 20);
    default:
      return (size_t)1 + next(3000000);
  }
}

static void request(void) {
  const size_t bytes = some_size();
  const int before = calls("cuMemAlloc");
  const carveout_torch_state_t was = state();
  unsigned char* const got = allocate(bytes, 0, NULL);
  const carveout_torch_state_t now = state();
  const int asked = calls("cuMemAlloc") - before;
  ++requests;
  if (now.carved > was.carved) {
    ++carved;
    check(got != NULL && asked == 0, "the driver was asked for what was carved");
    check((size_t)got % 512 == 0, "a piece that is not aligned");
  } else if (got != NULL) {
    ++by_driver;
    check(asked == 1 && now.fell_back == was.fell_back + 1, "not exactly one fall-back");
  } else {
    ++failed;
    check(asked == 1 && now.failed == was.failed + 1, "nothing, and not for the driver's answer");
    return;
  }
  held[count].at = got;
  held[count].bytes = bytes;
  held[count].mark = (unsigned char)requests;
  got[0] = got[bytes - 1] = held[count].mark;
  ++count;
}

static void end(int which) {
  const int before = calls("cuMemFree");
  const carveout_torch_state_t was = state();
  const size_t bytes = held[which].bytes;
  check(held[which].at[0] == held[which].mark && held[which].at[bytes - 1] == held[which].mark,
        "two have had the same memory");
  give_back(held[which].at, bytes, 0, NULL);
  const int freed = calls("cuMemFree") - before;
  const carveout_torch_state_t now = state();
  check(freed == (now.in_use == was.in_use ? 1 : 0), "not given back to where it is from, once");
  freed_by_driver += (unsigned long long)freed;
  held[which] = held[--count];
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL || driver == NULL) fprintf(stderr, "%s\n", dlerror()), exit(1);
  *(void**)&allocate = symbol(library, "carveout_torch_alloc");
  *(void**)&give_back = symbol(library, "carveout_torch_free");
  *(void**)&get_state = symbol(library, "carveout_torch_get_state");
  *(void**)&calls = symbol(driver, "fake_cuda_calls");
  set_t set;
  text_t broken_rules;
  *(void**)&set = symbol(driver, "fake_cuda_set");
  *(void**)&broken_rules = symbol(driver, "fake_cuda_broken_rules");
  /* The carveout before the limit. */
  allocate(1, 0, NULL);
  ++requests;
  carveout_torch_state_t now = state();
  carved = now.carved, by_driver = now.fell_back, failed = now.failed;
  check(carved + by_driver == 1, "the first request got nothing");
  if (argc > 2) set("limit", atol(argv[2]));
  for (int sequence = 0; sequence < SEQUENCES; ++sequence) {
    for (int step = 0; step < STEPS; ++step) {
      if (count < MOST && next(3) != 0) {
        request();
      } else if (count > 0) {
        end((int)next((unsigned)count));
      }
    }
    while (count > 0)
      end(count - 1);
    now = state();
    check(now.in_use == (carved > 0 ? 512 : 0), "the carveout is not as it was");
  }
  check(now.carved == carved && now.fell_back == by_driver && now.failed == failed, "not counted");
  check(now.carved + now.fell_back + now.failed == requests, "the counts are not all requests");
  check((unsigned long long)calls("cuMemAlloc") == by_driver + failed,
        "more calls than fall-backs");
  check(now.refused == 0 && now.waiting == 0, "something was refused");
  check(strcmp(broken_rules(), "") == 0, broken_rules());
  fprintf(stderr,
          "%s: %llu carved, %llu by the driver, %llu not at all, of %llu; %d calls of cuMemAlloc\n",
          now.status == CARVEOUT_OK    ? "on"
          : now.status == CARVEOUT_OFF ? "off"
                                       : "refused",
          carved, by_driver, failed, requests, calls("cuMemAlloc"));
  printf("%s, %s carved, %s by the driver, %s failed\n",
         now.status == CARVEOUT_OK    ? "on"
         : now.status == CARVEOUT_OFF ? "off"
                                      : "refused",
         carved > 1 ? "some" : "none", by_driver > 1 ? "some" : "none",
         failed > 0 ? "some" : "none");
  return 0;
}
