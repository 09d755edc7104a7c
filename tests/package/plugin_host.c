/* Unloads a plugin (the first argument) whose memory is mapped, goes on using that, and has it
 * given back if the second argument is "close". */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int find(void* library, const char* name, void* place) {
  void* const found = dlsym(library, name);
  memcpy(place, &found, sizeof found);
  return found != NULL;
}

int main(int count, char** arguments) {
  void* (*open_memory)(void);
  void (*close_memory)(void);
  if (count != 3) return 2;
  void* const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  if (!find(plugin, "plugin_open", &open_memory) || !find(plugin, "plugin_close", &close_memory)) {
    return 1;
  }
  volatile char* const memory = open_memory();
  if (memory == NULL || dlclose(plugin) != 0) return 1;
  if (dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) == NULL) {
    puts("unloaded");
    return 0;
  }
  memory[0] = 1;
  if (strcmp(arguments[2], "close") == 0) close_memory();
  puts("still there");
  return 0;
}
