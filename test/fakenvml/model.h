/* What the library pretends: read from JSON, re-read when the file changes. */
#ifndef FAKENVML_MODEL_H
#define FAKENVML_MODEL_H

#include "json.h"

#define MAX_DEVICES 64
#define MAX_MIG 8

struct card;

/* One handle stands for a GPU, or for a MIG device when parent is set. */
struct handle {
	struct card *card;
	int mig; /* index into card->mig, or -1 */
};

struct mig {
	char uuid[96];
	char profile[32];
	int gi, ci;
	unsigned long long memory;
	int multiprocessors, gpu_slices, compute_slices;
	int copy_engines, decoders, encoders, jpegs, ofas;
	struct handle handle;
};

struct card {
	char uuid[96];
	char name[96];
	char bus_id[32];
	int index, minor, arch, cc_major, cc_minor, numa;
	unsigned long long memory_total, memory_used;
	int util, temperature, power_mw;
	int switch_links;
	int mig_capable, mig_enabled, mig_count;
	int lost, init_error;
	int fabric_state, fabric_clique;    /* state 0: on no fabric */
	unsigned char fabric_cluster[16];
	struct mig mig[MAX_MIG];
	struct handle handle;
	const struct json *json; /* delay_ms and fail of this card */
};

struct model {
	struct json *root;
	char driver_version[32];
	int cuda_version;
	int devnodes; /* only cards that this process may open are visible */
	int kernel;   /* the kernel module must be loaded, and of this version */
	int count;
	struct card cards[MAX_DEVICES];
};

/* model_refresh reads the configuration again when it changed; the caller
 * holds the lock. */
struct model *model_refresh(void);

enum kernel { KERNEL_OK, KERNEL_ABSENT, KERNEL_OTHER_VERSION };

/* model_kernel compares the library with the module that is loaded. */
enum kernel model_kernel(const struct model *m);

#endif
