// The C tests' own checks: each says where it failed, and a test that has checked nothing fails.
#ifndef SERIATIM_TESTS_CAPI_CHECK_H_
#define SERIATIM_TESTS_CAPI_CHECK_H_

#include <stdio.h>
#include <string.h>

#include "seriatim_rule.h"

extern int checks_done;
extern int checks_failed;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++checks_done;                                                            \
    if (!(condition)) {                                                       \
      ++checks_failed;                                                        \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

// `call` uses an error struct named `error`.
#define CHECK_OK(call)                                                                                              \
  do {                                                                                                              \
    const seriatim_status got_ = (call);                                                                            \
    ++checks_done;                                                                                                  \
    if (got_ != SERIATIM_OK || error.code != SERIATIM_OK || error.message[0] != '\0') {                             \
      ++checks_failed;                                                                                              \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, seriatim_status_name(got_), error.message); \
    }                                                                                                               \
  } while (0)

#define CHECK_FAILS(call, wanted_code, wanted_argument)                                                           \
  do {                                                                                                            \
    const seriatim_status got_ = (call);                                                                          \
    ++checks_done;                                                                                                \
    if (got_ != (wanted_code) || error.code != (wanted_code) || strcmp(error.argument, (wanted_argument)) != 0 || \
        error.message[0] == '\0') {                                                                               \
      ++checks_failed;                                                                                            \
      fprintf(stderr, "%s:%d: %s: gave %s about '%s' (%s), not %s about '%s'\n", __FILE__, __LINE__, #call,       \
              seriatim_status_name(got_), error.argument, error.message, seriatim_status_name(wanted_code),       \
              wanted_argument);                                                                                   \
    }                                                                                                             \
  } while (0)

// The exit status of a test.
int checks_end(void);

#endif  // SERIATIM_TESTS_CAPI_CHECK_H_
