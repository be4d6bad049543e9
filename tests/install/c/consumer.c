/* What an installed Seriatim must offer to C: its headers, clean under a user's warnings, and the shared library alone.
 */
#include <seriatim.h>
#include <seriatim_rule.h>
#include <stdio.h>

int main(void) {
  const float scores[5] = {1.0f, 3.0f, 2.0f, 3.0f, 3.0f};
  int32_t scratch[5];
  int32_t chosen[2];
  int64_t count = 0;
  seriatim_error error;
  seriatim_error_init(&error);
  if (seriatim_select(scores, 5, 2, SERIATIM_NAN_REFUSE, scratch, 5, chosen, 2, NULL, -1, &count, &error) !=
      SERIATIM_OK) {
    printf("consumer: %s\n", error.message);
    return 1;
  }
  if (count != 2 || chosen[0] != 1 || chosen[1] != 3) {
    puts("consumer: wrong answer");
    return 1;
  }
  printf("consumer: seriatim %s answered\n", seriatim_version());
  return 0;
}
