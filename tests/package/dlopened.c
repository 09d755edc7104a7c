/* Finds the library at run time, twice. */
#include <dlfcn.h>
#include <string.h>

#include "consumer.h"

/* POSIX has it that a pointer to data can hold one to a function; ISO C has not. */
static int find(void* library, const char* name, void* place) {
  void* const found = dlsym(library, name);
  memcpy(place, &found, sizeof found);
  return found != NULL;
}

static int load_and_consume(void) {
  void* const library = dlopen("libcarveout.so.0", RTLD_NOW | RTLD_LOCAL);
  struct calls call;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (!find(library, "carveout_open", &call.open) ||
      !find(library, "carveout_get_info", &call.get_info) ||
      !find(library, "carveout_close", &call.close) ||
      !find(library, "carveout_watch_fd", &call.watch_fd) ||
      !find(library, "carveout_is_lender_gone", &call.is_lender_gone) ||
      !find(library, "carveout_status_name", &call.status_name)) {
    return 1;
  }
  const int result = consume(&call);
  return dlclose(library) == 0 ? result : 1;
}

int main(void) {
  if (load_and_consume() != 0) return 1;
  if (freopen("/dev/null", "w", stdout) == NULL) return 1;
  return load_and_consume();
}
