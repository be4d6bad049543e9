// The C header is valid C++ too, with C linkage: a second declaration that had another would not compile.
#include "seriatim.h"

extern "C" const char* seriatim_version(void);
