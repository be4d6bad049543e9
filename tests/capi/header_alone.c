/* The C headers are the first and only thing this file includes: seriatim_rule.h starts with seriatim.h. */
#include "seriatim_rule.h"

int header_alone(void);
int header_alone(void) { return (int)sizeof(seriatim_error); }
