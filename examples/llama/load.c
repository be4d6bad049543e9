/* The backend in a program of C: one call, before the model is loaded.
 *
 *   llama_load LIBRARY
 */
#include <stdio.h>

#include "ggml-backend.h"

int main(int count, char** values) {
  size_t i;
  if (count != 2) {
    fprintf(stderr, "usage: llama_load LIBRARY\n");
    return 2;
  }
  if (ggml_backend_load(values[1]) == NULL) {
    fprintf(stderr, "%s: ggml did not load it; its log says why\n", values[1]);
    return 1;
  }
  for (i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    printf("%s: %s\n", ggml_backend_dev_name(device), ggml_backend_dev_description(device));
  }
  return 0;
}
