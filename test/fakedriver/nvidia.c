// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A kernel module that plays the NVIDIA driver, for tests in a virtual machine:
 * its character devices open and do nothing, and /proc/driver/nvidia says what
 * the real one would. Like the real one it makes no device nodes.
 */
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>

#define MAJOR_NVIDIA 195
#define MINOR_MODESET 254
#define MINOR_CONTROL 255
#define MAX_GPUS 8
#define MAX_MIG 16

static char *version = "535.309.01";
module_param(version, charp, 0444);
MODULE_PARM_DESC(version, "version of the driver");

static int gpus = MAX_GPUS;
module_param(gpus, int, 0444);
MODULE_PARM_DESC(gpus, "number of cards, at most 8; they are those of the fake NVML's a100x8");

static int uvm_major;
module_param(uvm_major, int, 0444);
MODULE_PARM_DESC(uvm_major, "major of nvidia-uvm; 0: any that is free");

static char *mig[MAX_MIG];
static int migs;
module_param_array(mig, charp, &migs, 0444);
MODULE_PARM_DESC(mig, "MIG instances that exist: GPU:GI:CI,...");

static int caps_major;
static struct proc_dir_entry *top, *caps_top;

/* ---- character devices ---- */

static int card_open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);

	if (minor < gpus || minor == MINOR_MODESET || minor == MINOR_CONTROL)
		return 0;
	return -ENODEV;
}

static int any_open(struct inode *inode, struct file *file)
{
	return 0;
}

static const struct file_operations card_fops = { .owner = THIS_MODULE, .open = card_open };
static const struct file_operations any_fops = { .owner = THIS_MODULE, .open = any_open };

/* ---- /proc ---- */

static const int bus[MAX_GPUS] = { 0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd };

static int version_show(struct seq_file *m, void *v)
{
	seq_printf(m, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Mon Jan  1 00:00:00 UTC 2024\n", version);
	return 0;
}

static int information_show(struct seq_file *m, void *v)
{
	long i = (long)m->private;

	seq_printf(m, "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t %ld\n", 40 + i);
	seq_printf(m, "GPU UUID: \t GPU-a1000000-0000-4000-8000-%012ld\n", i);
	seq_printf(m, "Bus Type: \t PCIe\nBus Location: \t 0000:%02x:00.0\n", bus[i]);
	seq_printf(m, "Device Minor: \t %ld\nGPU Excluded:\t No\n", i);
	return 0;
}

/* The real driver numbers every instance that there could be, 9 for each GPU
 * instance (itself and its compute instances), 15 of those for each card. */
static int gi_minor(int gpu, int gi)
{
	return 3 + gpu * 135 + gi * 9;
}

static int minors_show(struct seq_file *m, void *v)
{
	int gpu, gi, ci;

	seq_puts(m, "config 1\nmonitor 2\n");
	for (gpu = 0; gpu < gpus; gpu++)
		for (gi = 0; gi < 15; gi++) {
			seq_printf(m, "gpu%d/gi%d/access %d\n", gpu, gi, gi_minor(gpu, gi));
			for (ci = 0; ci < 8; ci++)
				seq_printf(m, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, gi_minor(gpu, gi) + 1 + ci);
		}
	return 0;
}

static int access_show(struct seq_file *m, void *v)
{
	seq_printf(m, "DeviceFileMinor: %ld\nDeviceFileMode: 292\nDeviceFileModify: 1\n", (long)m->private);
	return 0;
}

static bool access(struct proc_dir_entry *dir, long minor)
{
	return dir && proc_create_single_data("access", 0444, dir, access_show, (void *)minor);
}

/* Each GPU instance has one compute instance. */
static bool make_mig(struct proc_dir_entry *caps)
{
	struct proc_dir_entry *dirs[MAX_GPUS] = { NULL };
	int i, gpu, gi, ci;
	char name[16];

	for (i = 0; i < migs; i++) {
		struct proc_dir_entry *instance;

		if (sscanf(mig[i], "%d:%d:%d", &gpu, &gi, &ci) != 3 || gpu < 0 || gpu >= gpus || gi < 0 || gi > 14 || ci < 0 || ci > 7)
			return false;
		if (!dirs[gpu]) {
			snprintf(name, sizeof(name), "gpu%d", gpu);
			instance = proc_mkdir(name, caps);
			dirs[gpu] = instance ? proc_mkdir("mig", instance) : NULL;
		}
		snprintf(name, sizeof(name), "gi%d", gi);
		instance = dirs[gpu] ? proc_mkdir(name, dirs[gpu]) : NULL;
		if (!access(instance, gi_minor(gpu, gi)))
			return false;
		snprintf(name, sizeof(name), "ci%d", ci);
		if (!access(proc_mkdir(name, instance), gi_minor(gpu, gi) + 1 + ci))
			return false;
	}
	return true;
}

static bool make_proc(void)
{
	struct proc_dir_entry *dir, *card;
	char name[16];
	long i;

	top = proc_mkdir("driver/nvidia", NULL);
	caps_top = proc_mkdir("driver/nvidia-caps", NULL);
	if (!top || !caps_top || !proc_create_single("version", 0444, top, version_show) ||
	    !proc_create_single("mig-minors", 0444, caps_top, minors_show))
		return false;
	dir = proc_mkdir("gpus", top);
	for (i = 0; dir && i < gpus; i++) {
		snprintf(name, sizeof(name), "0000:%02x:00.0", bus[i]);
		card = proc_mkdir(name, dir);
		if (!card || !proc_create_single_data("information", 0444, card, information_show, (void *)i))
			return false;
	}
	if (!dir)
		return false;
	dir = proc_mkdir("capabilities", top);
	return dir && make_mig(dir);
}

/* ---- /sys/module/nvidia/version: MODULE_VERSION could not be chosen at load ---- */

static ssize_t version_show_sys(struct module_attribute *a, struct module_kobject *k, char *buf)
{
	return sysfs_emit(buf, "%s\n", version);
}

static struct module_attribute version_attr = { .attr = { .name = "version", .mode = 0444 }, .show = version_show_sys };

/* ---- loading and unloading ---- */

static void take_down(void)
{
	sysfs_remove_file(&THIS_MODULE->mkobj.kobj, &version_attr.attr);
	proc_remove(caps_top);
	proc_remove(top);
	if (caps_major > 0)
		unregister_chrdev(caps_major, "nvidia-caps");
	if (uvm_major > 0)
		unregister_chrdev(uvm_major, "nvidia-uvm");
	unregister_chrdev(MAJOR_NVIDIA, "nvidia");
}

static int __init nvidia_init(void)
{
	int err, major;

	if (gpus < 0 || gpus > MAX_GPUS)
		return -EINVAL;
	err = register_chrdev(MAJOR_NVIDIA, "nvidia", &card_fops);
	if (err < 0)
		return err;
	major = register_chrdev(uvm_major, "nvidia-uvm", &any_fops);
	if (major < 0) {
		unregister_chrdev(MAJOR_NVIDIA, "nvidia");
		return major;
	}
	if (major > 0)
		uvm_major = major; /* a major that was asked for is answered with 0 */
	caps_major = register_chrdev(0, "nvidia-caps", &any_fops);
	err = caps_major < 0 ? caps_major : 0;
	if (!err && !make_proc())
		err = -EINVAL;
	if (!err)
		err = sysfs_create_file(&THIS_MODULE->mkobj.kobj, &version_attr.attr);
	if (err)
		take_down();
	return err;
}

static void __exit nvidia_exit(void)
{
	take_down();
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("plays the NVIDIA driver in tests");
