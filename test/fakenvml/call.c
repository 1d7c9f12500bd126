/* What every function of the library does first and last. */
#define _GNU_SOURCE
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inits;

static void trace(const char *name)
{
	const char *path = getenv("NRI_GPU_FAKE_NVML_TRACE");
	int fd;
	if (!path || !*path || (fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
		return;
	dprintf(fd, "%s\n", name);
	close(fd);
}

static void pause_ms(double ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)((long long)ms % 1000 * 1000000)};
	while (ms > 0 && nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

/* enter is what every function does first: it is traced, delayed and failed as
 * configured, for the whole library or for one card. It returns with the lock
 * held when it returns NVML_SUCCESS. */
nvmlReturn_t enter(const char *name, const struct handle *h, int needs_init)
{
	const struct json *own;
	double delay, code;

	pthread_mutex_lock(&lock);
	struct model *m = model_refresh();
	trace(name);
	own = h ? h->card->json : NULL;
	delay = json_number(json_get(m->root, "delay_ms"), name, 0) + json_number(json_get(own, "delay_ms"), name, 0);
	code = json_number(json_get(m->root, "fail"), name, json_number(json_get(own, "fail"), name, 0));
	if (code == 0 && needs_init && inits == 0)
		code = NVML_ERROR_UNINITIALIZED;
	if (code == 0 && h && h->card->lost)
		code = NVML_ERROR_GPU_IS_LOST;
	if (delay > 0 || code != 0) {
		pthread_mutex_unlock(&lock);
		pause_ms(delay); /* not under the lock: other cards go on answering */
		if (code != 0)
			return (nvmlReturn_t)code;
		pthread_mutex_lock(&lock);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t leave(nvmlReturn_t r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

void users(int n)
{
	inits += n;
}

nvmlReturn_t fakenvml_stub(const char *name)
{
	nvmlReturn_t r = enter(name, NULL, 0);
	return r == NVML_SUCCESS ? leave(NVML_ERROR_NOT_SUPPORTED) : r;
}
