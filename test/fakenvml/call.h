/* Calls into the library: the lock, and what may be configured for each. */
#ifndef FAKENVML_CALL_H
#define FAKENVML_CALL_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "model.h"

/* enter takes the lock when it returns NVML_SUCCESS, and leave gives it back. */
nvmlReturn_t enter(const char *name, const struct handle *h, int needs_init);
nvmlReturn_t leave(nvmlReturn_t r);

/* users counts nvmlInit and nvmlShutdown; the caller holds the lock. */
void users(int n);

nvmlReturn_t fakenvml_stub(const char *name);

/* A device is a struct around one pointer in go-nvml's nvml.h, which is the
 * same as NVIDIA's bare pointer to a caller. */
static inline struct handle *of(nvmlDevice_t d)
{
	return (struct handle *)d.handle;
}

static inline nvmlDevice_t to(struct handle *h)
{
	nvmlDevice_t d = {(void *)h};
	return d;
}

#define ENTER(h)                                           \
	do {                                               \
		nvmlReturn_t r_ = enter(__func__, (h), 1); \
		if (r_ != NVML_SUCCESS)                    \
			return r_;                         \
	} while (0)
#define ENTER_GPU(d)                                                \
	do {                                                        \
		if (!of(d))                                         \
			return NVML_ERROR_INVALID_ARGUMENT;         \
		ENTER(of(d));                                       \
	} while (0)

#endif
