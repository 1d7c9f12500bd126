#define _GNU_SOURCE
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CONFIG_ENV "NRI_GPU_FAKE_NVML_CONFIG"
#define DRIVER_ENV "NRI_GPU_FAKE_NVML_DRIVER"
#define DEFAULT_CONFIG "/etc/nri-gpu/fake-nvml.json"
#define CHECK_NS (200LL * 1000 * 1000)

static struct model model;

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* load_attributes reads what a MIG device has. What is not said follows from
 * the slices of the profile, "1g.5gb" or "1c.3g.20gb". */
static void load_attributes(struct mig *mig, const struct json *a)
{
	int compute = 0, slices = 1;
	if (sscanf(mig->profile, "%dc.%dg", &compute, &slices) != 2)
		sscanf(mig->profile, "%dg", &slices);
	mig->gpu_slices = (int)json_number(a, "gpu_slices", slices);
	mig->compute_slices = (int)json_number(a, "compute_slices", compute ? compute : slices);
	mig->multiprocessors = (int)json_number(a, "multiprocessors", 14 * mig->compute_slices);
	mig->copy_engines = (int)json_number(a, "copy_engines", slices);
	mig->decoders = (int)json_number(a, "decoders", slices / 2);
	mig->encoders = (int)json_number(a, "encoders", 0);
	mig->jpegs = (int)json_number(a, "jpegs", slices == 7);
	mig->ofas = (int)json_number(a, "ofas", slices == 7);
}

static void load_fabric(struct card *c, const struct json *f)
{
	const char *hex = json_text(f, "cluster", "");
	memset(c->fabric_cluster, 0, sizeof c->fabric_cluster);
	for (int i = 0; i < 16 && *hex; i++, hex += 2) {
		unsigned int byte = 0;
		hex += *hex == '-';
		if (sscanf(hex, "%2x", &byte) != 1)
			break;
		c->fabric_cluster[i] = (unsigned char)byte;
	}
	c->fabric_clique = (int)json_number(f, "clique", 0);
	c->fabric_state = (int)json_number(f, "state", f ? 3 : 0);
}

static void load_mig(struct card *c, const struct json *list)
{
	c->mig_count = 0;
	for (const struct json *m = list ? list->child : NULL; m && c->mig_count < MAX_MIG; m = m->next) {
		struct mig *mig = &c->mig[c->mig_count];
		copy(mig->uuid, sizeof mig->uuid, json_text(m, "uuid", ""));
		copy(mig->profile, sizeof mig->profile, json_text(m, "profile", "1g.5gb"));
		mig->gi = (int)json_number(m, "gi", 0);
		mig->ci = (int)json_number(m, "ci", 0);
		mig->memory = (unsigned long long)json_number(m, "memory", 0);
		load_attributes(mig, json_get(m, "attributes"));
		mig->handle.card = c;
		mig->handle.mig = c->mig_count++;
	}
}

static void load_card(struct card *c, const struct json *d, int index)
{
	const char *health = json_text(d, "health", "ok");
	c->json = d;
	c->index = index;
	copy(c->uuid, sizeof c->uuid, json_text(d, "uuid", ""));
	copy(c->name, sizeof c->name, json_text(d, "name", "NVIDIA A100-SXM4-40GB"));
	copy(c->bus_id, sizeof c->bus_id, json_text(d, "bus_id", "00000000:00:00.0"));
	c->minor = (int)json_number(d, "minor", index);
	c->arch = (int)json_number(d, "arch", 7);
	c->cc_major = 8;
	c->cc_minor = 0;
	sscanf(json_text(d, "cc", "8.0"), "%d.%d", &c->cc_major, &c->cc_minor);
	c->numa = (int)json_number(d, "numa", 0);
	c->memory_total = (unsigned long long)json_number(d, "memory_total", 42949672960.0);
	c->memory_used = (unsigned long long)json_number(d, "memory_used", 0);
	c->util = (int)json_number(d, "util", 0);
	c->temperature = (int)json_number(d, "temperature", 30);
	c->power_mw = (int)json_number(d, "power_mw", 50000);
	c->switch_links = (int)json_number(d, "switch_links", 0);
	c->mig_capable = (int)json_number(d, "mig_capable", 0);
	c->mig_enabled = (int)json_number(d, "mig_enabled", 0);
	c->lost = strcmp(health, "lost") == 0;
	c->init_error = strcmp(health, "init_error") == 0;
	c->handle.card = c;
	c->handle.mig = -1;
	load_fabric(c, json_get(d, "fabric"));
	load_mig(c, json_get(d, "mig"));
}

static void apply(struct json *root)
{
	const struct json *devices = json_get(root, "devices");
	json_free(model.root);
	model.root = root;
	copy(model.driver_version, sizeof model.driver_version, json_text(root, "driver_version", "535.309.01"));
	model.cuda_version = (int)json_number(root, "cuda_version", 12020);
	model.devnodes = strcmp(json_text(root, "visibility", "all"), "devnodes") == 0;
	model.kernel = (int)json_number(root, "kernel", 0);
	model.count = 0;
	for (const struct json *d = devices ? devices->child : NULL; d && model.count < MAX_DEVICES; d = d->next) {
		load_card(&model.cards[model.count], d, model.count);
		model.count++;
	}
}

/* built_in is eight A100s, for a run without any configuration. */
static struct json *built_in(void)
{
	static const char card[] =
		"{\"uuid\":\"GPU-00000000-0000-4000-8000-00000000000%d\",\"bus_id\":\"00000000:%02X:00.0\",\"numa\":%d,\"switch_links\":12,\"mig_capable\":1}";
	static const int bus[] = {0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd};
	char text[4096];
	int n = snprintf(text, sizeof text, "{\"devices\":[");
	for (int i = 0; i < 8; i++) {
		n += snprintf(text + n, sizeof text - (size_t)n, i ? "," : "");
		n += snprintf(text + n, sizeof text - (size_t)n, card, i, bus[i], i / 4);
	}
	snprintf(text + n, sizeof text - (size_t)n, "]}");
	return json_parse(text);
}

static struct json *read_file(const char *path)
{
	struct json *root = NULL;
	char *text = NULL;
	size_t size = 0;
	FILE *f = fopen(path, "re");
	if (!f)
		return NULL;
	if (getdelim(&text, &size, '\0', f) >= 0)
		root = json_parse(text);
	free(text);
	fclose(f);
	return root;
}

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

struct model *model_refresh(void)
{
	static long long checked;
	static struct stat seen;
	const char *path = getenv(CONFIG_ENV), *driver = getenv(DRIVER_ENV);
	struct json *root = NULL;
	struct stat st;
	long long now = now_ns();

	if (!path || !*path)
		path = DEFAULT_CONFIG;
	if (!model.root || now - checked > CHECK_NS) {
		checked = now;
		if (stat(path, &st) == 0 && (st.st_mtim.tv_sec != seen.st_mtim.tv_sec || st.st_mtim.tv_nsec != seen.st_mtim.tv_nsec || st.st_ino != seen.st_ino)) {
			root = read_file(path);
			seen = st;
		}
		if (!root && !model.root)
			root = built_in();
		if (root)
			apply(root);
	}
	if (driver && *driver)
		copy(model.driver_version, sizeof model.driver_version, driver);
	return &model;
}

enum kernel model_kernel(const struct model *m)
{
	char line[256] = "", want[64];
	FILE *f;

	if (!m->kernel)
		return KERNEL_OK;
	f = fopen("/proc/driver/nvidia/version", "re");
	if (!f)
		return KERNEL_ABSENT;
	if (!fgets(line, sizeof line, f))
		line[0] = '\0';
	fclose(f);
	snprintf(want, sizeof want, " %s ", m->driver_version);
	return strstr(line, want) ? KERNEL_OK : KERNEL_OTHER_VERSION;
}
