/* For programs that load no backend by themselves, such as llama-cli and llama-server in an ordinary build:
 *
 *   LD_PRELOAD=libseriatim-llama-preload.so llama-server ...
 *
 * loads libggml-seriatim.so, which must stand beside it or be named by SERIATIM_GGML_LIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not linked: a program without ggml (a shell that starts the server, say) is left alone. */
typedef void* (*LoadBackend)(const char* path);
typedef size_t (*CountBackends)(void);

__attribute__((constructor)) static void load_seriatim(void) {
  static const char kName[] = "libggml-seriatim.so";
  const char* named = getenv("SERIATIM_GGML_LIBRARY");
  LoadBackend load = NULL;
  CountBackends count = NULL;
  void* found = dlsym(RTLD_DEFAULT, "ggml_backend_load");
  void* found_count = dlsym(RTLD_DEFAULT, "ggml_backend_reg_count");
  char path[4096];
  Dl_info here;
  if (found == NULL || found_count == NULL) return;
  memcpy(&load, &found, sizeof load);
  memcpy(&count, &found_count, sizeof count);
  if (named == NULL) {
    const char* slash;
    size_t folder;
    if (dladdr((const void*)kName, &here) == 0 || here.dli_fname == NULL) return;
    slash = strrchr(here.dli_fname, '/');
    folder = slash == NULL ? 0 : (size_t)(slash - here.dli_fname) + 1;
    if (folder + sizeof kName > sizeof path) return;
    memcpy(path, here.dli_fname, folder);
    memcpy(path + folder, kName, sizeof kName);
    named = path;
  }
  /* No backend is built in: llama.cpp loads the CPU's and all others itself, but only as long as there is none. */
  if (count() == 0) {
    setenv("GGML_BACKEND_PATH", named, 0);
    return;
  }
  if (load(named) == NULL) fprintf(stderr, "seriatim: %s was not loaded; llama.cpp runs without it\n", named);
}
