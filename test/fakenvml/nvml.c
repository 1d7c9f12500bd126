/* A libnvidia-ml.so.1 without a GPU. Its answers come from a JSON file (see
 * README.md); what it does not implement answers NVML_ERROR_NOT_SUPPORTED
 * through the generated stubs.
 *
 * Types come from the nvml.h that go-nvml carries; nothing of it is kept. */
#define _GNU_SOURCE
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "call.h"

static nvmlReturn_t put(char *to, unsigned int size, const char *from)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(from) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, strlen(from) + 1);
	return NVML_SUCCESS;
}

/* ---- library and system ---- */

static nvmlReturn_t init(const char *name)
{
	nvmlReturn_t r = enter(name, NULL, 0);
	if (r != NVML_SUCCESS)
		return r;
	switch (model_kernel(model_refresh())) {
	case KERNEL_ABSENT: return leave(NVML_ERROR_DRIVER_NOT_LOADED);
	case KERNEL_OTHER_VERSION: return leave(NVML_ERROR_LIB_RM_VERSION_MISMATCH);
	case KERNEL_OK: break;
	}
	users(+1);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }
nvmlReturn_t nvmlInit(void) { return init(__func__); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; return init("nvmlInit_v2"); }

nvmlReturn_t nvmlShutdown(void)
{
	ENTER(NULL);
	users(-1);
	return leave(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t r)
{
	switch (r) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	ENTER(NULL);
	return leave(put(version, length, model_refresh()->driver_version));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[64];
	ENTER(NULL);
	snprintf(text, sizeof text, "12.%s", model_refresh()->driver_version);
	return leave(put(version, length, text));
}

static nvmlReturn_t cuda(int *version)
{
	if (!version)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*version = model_refresh()->cuda_version;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { ENTER(NULL); return cuda(version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER(NULL); return cuda(version); }

/* ---- finding devices ---- */

static int visible(const struct model *m, const struct card *c)
{
	char path[64];
	int fd;
	if (!m->devnodes)
		return 1;
	snprintf(path, sizeof path, "/dev/nvidia%d", c->minor);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		return 1;
	}
	return errno == ENXIO; /* allowed, and no driver behind the node */
}

static struct card *nth(struct model *m, unsigned int index)
{
	for (int i = 0; i < m->count; i++)
		if (visible(m, &m->cards[i]) && index-- == 0)
			return &m->cards[i];
	return NULL;
}

static nvmlReturn_t count(unsigned int *n)
{
	struct model *m = model_refresh();
	if (!n)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*n = 0;
	for (int i = 0; i < m->count; i++)
		*n += (unsigned)visible(m, &m->cards[i]);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { ENTER(NULL); return count(n); }
nvmlReturn_t nvmlDeviceGetCount(unsigned int *n) { ENTER(NULL); return count(n); }

static nvmlReturn_t give(struct card *c, nvmlDevice_t *d)
{
	if (!d)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	if (!c)
		return leave(NVML_ERROR_NOT_FOUND);
	if (c->lost)
		return leave(NVML_ERROR_GPU_IS_LOST);
	if (c->init_error)
		return leave(NVML_ERROR_UNKNOWN);
	*d = to(&c->handle);
	return leave(NVML_SUCCESS);
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *d)
{
	struct card *c = nth(model_refresh(), index);
	return c ? give(c, d) : leave(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d) { ENTER(NULL); return by_index(i, d); }
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int i, nvmlDevice_t *d) { ENTER(NULL); return by_index(i, d); }

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d)
{
	struct model *m;
	ENTER(NULL);
	m = model_refresh();
	for (int i = 0; uuid && d && i < m->count; i++) {
		struct card *c = &m->cards[i];
		if (!visible(m, c))
			continue;
		if (strcmp(c->uuid, uuid) == 0)
			return give(c, d);
		for (int j = 0; j < c->mig_count; j++)
			if (c->mig_enabled && strcmp(c->mig[j].uuid, uuid) == 0) {
				*d = to(&c->mig[j].handle);
				return leave(NVML_SUCCESS);
			}
	}
	return leave(NVML_ERROR_NOT_FOUND);
}

static nvmlReturn_t by_bus(const char *bus, nvmlDevice_t *d)
{
	struct model *m = model_refresh();
	for (int i = 0; bus && i < m->count; i++) {
		size_t skip = strlen(m->cards[i].bus_id) - strlen("00:00.0");
		if (visible(m, &m->cards[i]) && strlen(bus) >= 7 && strcasecmp(m->cards[i].bus_id + skip, bus + strlen(bus) - 7) == 0)
			return give(&m->cards[i], d);
	}
	return leave(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *d) { ENTER(NULL); return by_bus(bus, d); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *d) { ENTER(NULL); return by_bus(bus, d); }

/* ---- what a device is ---- */

#define NUMBER_OF(function, type, expression)          \
	nvmlReturn_t function(nvmlDevice_t d, type *v) \
	{                                              \
		const struct card *c;                  \
		ENTER_GPU(d);                          \
		c = of(d)->card;                       \
		(void)c;                               \
		if (!v)                                \
			return leave(NVML_ERROR_INVALID_ARGUMENT); \
		*v = (type)(expression);               \
		return leave(NVML_SUCCESS);            \
	}

NUMBER_OF(nvmlDeviceGetIndex, unsigned int, c->index)
NUMBER_OF(nvmlDeviceGetMinorNumber, unsigned int, c->minor)
NUMBER_OF(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, c->arch)
NUMBER_OF(nvmlDeviceGetNumaNodeId, unsigned int, c->numa)
NUMBER_OF(nvmlDeviceGetPowerUsage, unsigned int, c->power_mw)
NUMBER_OF(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 400000)
NUMBER_OF(nvmlDeviceGetFanSpeed, unsigned int, 0)
NUMBER_OF(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int length)
{
	const struct handle *h = of(d);
	ENTER_GPU(d);
	return leave(put(uuid, length, h->mig < 0 ? h->card->uuid : h->card->mig[h->mig].uuid));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned int length)
{
	const struct handle *h = of(d);
	char text[160];
	ENTER_GPU(d);
	if (h->mig < 0)
		snprintf(text, sizeof text, "%s", h->card->name);
	else
		snprintf(text, sizeof text, "%s MIG %s", h->card->name, h->card->mig[h->mig].profile);
	return leave(put(name, length, text));
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
	ENTER_GPU(d);
	*major = of(d)->card->cc_major;
	*minor = of(d)->card->cc_minor;
	return leave(NVML_SUCCESS);
}

static void pci(const struct card *c, nvmlPciInfo_t *info)
{
	unsigned int domain = 0, bus = 0, dev = 0;
	memset(info, 0, sizeof *info);
	sscanf(c->bus_id, "%x:%x:%x", &domain, &bus, &dev);
	info->domain = domain;
	info->bus = bus;
	info->device = dev;
	info->pciDeviceId = 0x20b010de;
	snprintf(info->busId, sizeof info->busId, "%.31s", c->bus_id);
	snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, dev & 0xff);
}

static nvmlReturn_t pci_of(nvmlDevice_t d, nvmlPciInfo_t *info)
{
	if (!info)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	pci(of(d)->card, info);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *info) { ENTER_GPU(d); return pci_of(d, info); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *info) { ENTER_GPU(d); return pci_of(d, info); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *info) { ENTER_GPU(d); return pci_of(d, info); }

static unsigned long long memory_of(const struct handle *h)
{
	return h->mig < 0 ? h->card->memory_total : h->card->mig[h->mig].memory;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	ENTER_GPU(d);
	m->total = memory_of(of(d));
	m->used = of(d)->mig < 0 ? of(d)->card->memory_used : 0;
	m->free = m->total - m->used;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
	ENTER_GPU(d);
	m->total = memory_of(of(d));
	m->reserved = 0;
	m->used = of(d)->mig < 0 ? of(d)->card->memory_used : 0;
	m->free = m->total - m->used;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	ENTER_GPU(d);
	u->gpu = (unsigned)of(d)->card->util;
	u->memory = 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned int *t)
{
	(void)sensor;
	ENTER_GPU(d);
	*t = (unsigned)of(d)->card->temperature;
	return leave(NVML_SUCCESS);
}

#define NO_PROCESSES(function, type)                                     \
	nvmlReturn_t function(nvmlDevice_t d, unsigned int *n, type *infos) \
	{                                                                \
		(void)infos;                                             \
		ENTER_GPU(d);                                            \
		*n = 0;                                                  \
		return leave(NVML_SUCCESS);                              \
	}

NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)

/* ---- MIG ---- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *current, unsigned int *pending)
{
	const struct card *c;
	ENTER_GPU(d);
	c = of(d)->card;
	if (!c->mig_capable)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*current = *pending = (unsigned)c->mig_enabled;
	return leave(NVML_SUCCESS);
}

NUMBER_OF(nvmlDeviceGetMaxMigDeviceCount, unsigned int, c->mig_capable ? 7 : 0)
NUMBER_OF(nvmlDeviceIsMigDeviceHandle, unsigned int, c && of(d)->mig >= 0)

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int index, nvmlDevice_t *mig)
{
	struct card *c;
	ENTER_GPU(d);
	c = of(d)->card;
	if (!c->mig_enabled || index >= (unsigned)c->mig_count)
		return leave(NVML_ERROR_NOT_FOUND);
	*mig = to(&c->mig[index].handle);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *gpu)
{
	ENTER_GPU(d);
	*gpu = to(&of(d)->card->handle);
	return leave(NVML_SUCCESS);
}

#define NUMBER_OF_MIG(function, expression)                     \
	nvmlReturn_t function(nvmlDevice_t d, unsigned int *id) \
	{                                                       \
		const struct mig *m;                            \
		ENTER_GPU(d);                                   \
		if (of(d)->mig < 0)                             \
			return leave(NVML_ERROR_NOT_FOUND);     \
		m = &of(d)->card->mig[of(d)->mig];              \
		*id = (unsigned)(expression);                   \
		return leave(NVML_SUCCESS);                     \
	}

NUMBER_OF_MIG(nvmlDeviceGetGpuInstanceId, m->gi)
NUMBER_OF_MIG(nvmlDeviceGetComputeInstanceId, m->ci)

static nvmlReturn_t attributes(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	const struct mig *m;
	if (!a)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	if (of(d)->mig < 0) /* only MIG devices have them */
		return leave(NVML_ERROR_NOT_SUPPORTED);
	m = &of(d)->card->mig[of(d)->mig];
	memset(a, 0, sizeof *a);
	a->multiprocessorCount = (unsigned)m->multiprocessors;
	a->sharedCopyEngineCount = (unsigned)m->copy_engines;
	a->sharedDecoderCount = (unsigned)m->decoders;
	a->sharedEncoderCount = (unsigned)m->encoders;
	a->sharedJpegCount = (unsigned)m->jpegs;
	a->sharedOfaCount = (unsigned)m->ofas;
	a->gpuInstanceSliceCount = (unsigned)m->gpu_slices;
	a->computeInstanceSliceCount = (unsigned)m->compute_slices;
	a->memorySizeMB = m->memory >> 20;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) { ENTER_GPU(d); return attributes(d, a); }
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *a) { ENTER_GPU(d); return attributes(d, a); }

/* ---- topology ---- */

#define FABRIC(info)                                                                              \
	do {                                                                                      \
		const struct card *c_ = of(d)->card;                                              \
		if (c_->fabric_state == NVML_GPU_FABRIC_STATE_NOT_SUPPORTED)                      \
			return leave(NVML_ERROR_NOT_SUPPORTED);                                   \
		memcpy((info)->clusterUuid, c_->fabric_cluster, sizeof (info)->clusterUuid);      \
		(info)->status = (nvmlReturn_t)json_number(json_get(c_->json, "fabric"), "status", NVML_SUCCESS); \
		(info)->cliqueId = (unsigned)c_->fabric_clique;                                   \
		(info)->state = (nvmlGpuFabricState_t)c_->fabric_state;                           \
	} while (0)

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *info)
{
	ENTER_GPU(d);
	if (!info)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	FABRIC(info);
	return leave(NVML_SUCCESS);
}

/* The caller says by the version which structure it passes. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *info)
{
	ENTER_GPU(d);
	if (!info)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	if (info->version == nvmlGpuFabricInfo_v2) {
		nvmlGpuFabricInfo_v2_t *v2 = (nvmlGpuFabricInfo_v2_t *)(void *)info;
		FABRIC(v2);
		v2->healthMask = 0;
		return leave(NVML_SUCCESS);
	}
	if (info->version != nvmlGpuFabricInfo_v3)
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	FABRIC(info);
	info->healthMask = 0;
	info->healthSummary = 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
	ENTER_GPU(a);
	*level = of(a)->card->numa == of(b)->card->numa ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, nvmlEnableState_t *active)
{
	ENTER_GPU(d);
	if (link >= 18 || of(d)->card->switch_links == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*active = (int)link < of(d)->card->switch_links ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
	ENTER_GPU(d);
	if ((int)link >= of(d)->card->switch_links)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
	return leave(NVML_SUCCESS);
}

static nvmlReturn_t remote(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *info)
{
	if ((int)link >= of(d)->card->switch_links)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	memset(info, 0, sizeof *info);
	snprintf(info->busId, sizeof info->busId, "00000000:C%u:00.0", link % 6);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int l, nvmlPciInfo_t *i) { ENTER_GPU(d); return remote(d, l, i); }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t d, unsigned int l, nvmlPciInfo_t *i) { ENTER_GPU(d); return remote(d, l, i); }
