/* What says how a card is: events, ECC, row remapping, recovery action. */
#define _GNU_SOURCE
#include "call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double number(const struct handle *h, const char *key, double absent)
{
	return json_number(h->card->json, key, absent);
}

/* ---- conditions ---- */

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *n)
{
	(void)counter;
	ENTER_GPU(d);
	if (number(of(d), "ecc_uncorrected", -1) < 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*n = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? (unsigned long long)number(of(d), "ecc_uncorrected", 0) : 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending, unsigned int *failure)
{
	ENTER_GPU(d);
	if (number(of(d), "remap_failure", -1) < 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*correctable = *uncorrectable = 0;
	*pending = (unsigned)number(of(d), "remap_pending", 0);
	*failure = (unsigned)number(of(d), "remap_failure", 0);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *values)
{
	ENTER_GPU(d);
	for (int i = 0; i < n; i++) {
		double action = number(of(d), "recovery_action", -1);
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || action < 0)
			continue;
		values[i].nvmlReturn = NVML_SUCCESS;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = (unsigned)action;
	}
	return leave(NVML_SUCCESS);
}

/* ---- events ---- */

/* An event set remembers which of its file's "xids" it has told: each has a
 * number, "seq", and a set tells those that are greater than all that were in
 * the file when it was made. */
struct set {
	double seen;
	int count;
	char uuids[MAX_DEVICES][96];
};

static struct set *set_of(nvmlEventSet_t s)
{
	return (struct set *)s.handle;
}

static const struct json *xids(const struct model *m)
{
	const struct json *list = json_get(m->root, "xids");
	return list ? list->child : NULL;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
	struct set *s;
	ENTER(NULL);
	if (!(s = calloc(1, sizeof *s)))
		return leave(NVML_ERROR_MEMORY);
	for (const struct json *x = xids(model_refresh()); x; x = x->next)
		if (json_number(x, "seq", 0) > s->seen)
			s->seen = json_number(x, "seq", 0);
	out->handle = (void *)s;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s)
{
	ENTER(NULL);
	free(set_of(s));
	return leave(NVML_SUCCESS);
}

static int reports(const struct handle *h)
{
	return number(h, "events", 1) != 0;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types)
{
	ENTER_GPU(d);
	*types = reports(of(d)) ? nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError : 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	struct set *s = set_of(set);
	(void)types;
	ENTER_GPU(d);
	if (!reports(of(d)))
		return leave(NVML_ERROR_NOT_SUPPORTED);
	if (s->count < MAX_DEVICES)
		strcpy(s->uuids[s->count++], of(d)->card->uuid);
	return leave(NVML_SUCCESS);
}

static struct card *registered(struct model *m, const struct set *s, const char *uuid)
{
	for (int i = 0; i < s->count; i++)
		for (int j = 0; j < m->count && strcmp(s->uuids[i], uuid) == 0; j++)
			if (strcmp(m->cards[j].uuid, uuid) == 0)
				return &m->cards[j];
	return NULL;
}

/* next takes the event with the least number that was not told yet. */
static int next(struct model *m, struct set *s, nvmlEventData_t *data)
{
	const struct json *first = NULL;
	for (const struct json *x = xids(m); x; x = x->next) {
		double seq = json_number(x, "seq", 0);
		if (seq > s->seen && registered(m, s, json_text(x, "gpu", "")) && (!first || seq < json_number(first, "seq", 0)))
			first = x;
	}
	if (!first)
		return 0;
	s->seen = json_number(first, "seq", 0);
	data->device = to(&registered(m, s, json_text(first, "gpu", ""))->handle);
	data->eventType = nvmlEventTypeXidCriticalError;
	data->eventData = (unsigned long long)json_number(first, "xid", 0);
	data->gpuInstanceId = (unsigned)json_number(first, "gi", 4294967295.0);
	data->computeInstanceId = (unsigned)json_number(first, "ci", 4294967295.0);
	return 1;
}

static nvmlReturn_t wait_for(const char *name, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int ms)
{
	struct timespec step = {0, 20 * 1000 * 1000};
	for (unsigned int waited = 0;; waited += 20) {
		int told;
		nvmlReturn_t r = enter(name, NULL, 1);
		if (r != NVML_SUCCESS)
			return r;
		told = next(model_refresh(), set_of(set), data);
		leave(NVML_SUCCESS);
		if (told)
			return NVML_SUCCESS;
		if (waited >= ms)
			return NVML_ERROR_TIMEOUT;
		nanosleep(&step, NULL);
	}
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *d, unsigned int ms) { return wait_for(__func__, s, d, ms); }
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t s, nvmlEventData_t *d, unsigned int ms) { return wait_for(__func__, s, d, ms); }
