// The C headers are valid C++ too, with C linkage: a second declaration that had another would not compile.
#include "seriatim_rule.h"

extern "C" const char* seriatim_version(void);
extern "C" int64_t seriatim_select_scratch_entries(int64_t groups);
