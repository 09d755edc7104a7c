/* Borrows memory as the environment says, takes blocks of it, writes to them, gives it back. */
#include <carveout/carveout.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 * 1024, PAGE = 4096 }; /* what is borrowed begins at a page */

static int failed(const carveout_error_t* error) {
  fprintf(stderr, "borrow: %s\n", error->message);
  return 1;
}

int main(void) {
  carveout_t* memory = NULL;
  carveout_blocks_t* blocks = NULL;
  carveout_error_t error = {.struct_size = sizeof error};
  const carveout_status_t status = carveout_open(NULL, &memory, &error);
  if (status == CARVEOUT_OFF) return puts("off: nobody has asked for it") < 0;
  if (status != CARVEOUT_OK) return failed(&error); /* a program can go on without: see README.md */

  carveout_info_t info = {.struct_size = sizeof info};
  carveout_get_info(memory, &info);
  int result = 1;
  printf("%u MiB of %s by %s", (unsigned)(info.bytes >> 20), info.source_name, info.map_name);
  if (info.host_pointer == NULL) { /* device_pointer is all there is: for a GPU's blocks */
    puts(": not for the processor");
  } else if (carveout_blocks_create((uintptr_t)info.host_pointer, info.bytes, BLOCK, PAGE, &blocks,
                                    &error) != CARVEOUT_OK) {
    failed(&error);
  } else {
    uint32_t index, taken = 0;
    for (uint64_t at; carveout_blocks_take(blocks, &index, &at) == CARVEOUT_OK; ++taken)
      memset((void*)(uintptr_t)at, 1, BLOCK);
    printf(": wrote to %u blocks\n", taken);
    carveout_blocks_destroy(blocks); /* before the memory that it counts */
    result = fflush(stdout) != 0;
  }
  return carveout_close(memory, &error) == CARVEOUT_OK ? result : failed(&error);
}
