/* What each consumer does and prints, whatever way it has found the library: `call` has its calls.
 */
#ifndef CONSUMER_H
#define CONSUMER_H

#include <carveout/carveout.h>
#include <stdint.h>
#include <stdio.h>

struct calls {
  carveout_status_t (*open)(const carveout_options_t*, carveout_t**, carveout_error_t*);
  carveout_status_t (*get_info)(const carveout_t*, carveout_info_t*);
  carveout_status_t (*close)(carveout_t*, carveout_error_t*);
  int (*watch_fd)(const carveout_t*);
  int (*is_lender_gone)(const carveout_t*);
  const char* (*status_name)(int32_t);
};

static int use_memory(const struct calls* call, carveout_t* memory) {
  carveout_info_t info;
  info.struct_size = sizeof info;
  if (call->get_info(memory, &info) != CARVEOUT_OK || info.host_pointer == NULL) return 1;
  volatile uint64_t* const words = (volatile uint64_t*)info.host_pointer;
  const uint64_t count = info.bytes / sizeof *words;
  for (uint64_t i = 0; i < count; ++i) {
    if (words[i] != 0) return 1;
    words[i] = i;
  }
  const int lent = info.source == CARVEOUT_SOURCE_DAEMON;
  if ((call->watch_fd(memory) >= 0) != lent || call->is_lender_gone(memory) != 0) return 1;
  printf("%llu bytes of %s by %s, all zero\n", (unsigned long long)info.bytes, info.source_name,
         info.map_name);
  return call->close(memory, NULL) == CARVEOUT_OK ? 0 : 1;
}

static int consume(const struct calls* call) {
  carveout_t* memory = NULL;
  carveout_error_t error;
  error.struct_size = sizeof error;
  const carveout_status_t status = call->open(NULL, &memory, &error);
  if (status == CARVEOUT_OK) return use_memory(call, memory);
  if (memory != NULL || error.status != status) return 1;
  if (status == CARVEOUT_OFF) {
    puts("off");
  } else {
    printf("refused: %s (%s) %s\n", call->status_name(status), error.setting, error.message);
  }
  return 0;
}

#endif
