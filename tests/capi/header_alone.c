/* The C header is the first and only thing this file includes. */
#include "seriatim.h"

int header_alone(void);
int header_alone(void) { return (int)sizeof(seriatim_error); }
