package main

import (
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/config"
)

// compatFlag is a flag of NVIDIA's device plugin that has no meaning here: it is
// accepted, so that a command line can be taken over as it is, and named in the
// log when it is set.
type compatFlag struct {
	name, env string
	isBool    bool
	why       string
}

const (
	whyNames    = "devices always travel as CDI names, whichever way the runtime takes"
	whyUUID     = "a card is named by its UUID, which no reboot changes"
	whyHook     = "gpu-hook takes its place"
	whyAsked    = "a container asks for it with NVIDIA_GDS, NVIDIA_GDRCOPY or NVIDIA_MOFED set to \"enabled\""
	whyNeverEnd = "a node whose driver is not ready is looked at until it is"
	whyIMEX     = "IMEX channels are not injected"
)

// compatFlags are those of k8s-device-plugin v0.20 that are ignored.
func compatFlags() []compatFlag {
	return []compatFlag{
		{"fail-on-init-error", "FAIL_ON_INIT_ERROR", true, whyNeverEnd},
		{"pass-device-specs", "PASS_DEVICE_SPECS", true, whyNames},
		{"device-list-strategy", "DEVICE_LIST_STRATEGY", false, whyNames},
		{"device-id-strategy", "DEVICE_ID_STRATEGY", false, whyUUID},
		{"gdrcopy-enabled", "GDRCOPY_ENABLED", true, whyAsked},
		{"gds-enabled", "GDS_ENABLED", true, whyAsked},
		{"mofed-enabled", "MOFED_ENABLED", true, whyAsked},
		{"cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", false, whyNames},
		{"nvidia-cdi-hook-path", "NVIDIA_CDI_HOOK_PATH", false, whyHook},
		{"nvidia-ctk-path", "NVIDIA_CTK_PATH", false, whyHook},
		{"device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY", false, "NVML is asked"},
		{"imex-channel-ids", "IMEX_CHANNEL_IDS", false, whyIMEX},
		{"imex-required", "IMEX_REQUIRED", true, whyIMEX},
		{"cdi-feature-flags", "", false, "the specs have no optional features"},
		{"cdi-disable-hooks", "", false, "there is one hook, and a container needs it"},
	}
}

// compat are NVIDIA's flags that have a meaning here under another name.
type compat struct {
	NVIDIADriverRoot, NVIDIADevRoot, ContainerDriverRoot string
	KubeletSocket                                        string
	DisableHealthChecks, EnableHealthChecks              string
}

func (c *compat) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.NVIDIADriverRoot, "nvidia-driver-root", "", "NVIDIA's name: the driver root on the host")
	fs.StringVar(&c.NVIDIADevRoot, "nvidia-dev-root", "", "NVIDIA's name for --dev-root")
	fs.StringVar(&c.ContainerDriverRoot, "container-driver-root", "", "NVIDIA's name: where --nvidia-driver-root is mounted in this container")
	fs.StringVar(&c.ContainerDriverRoot, "driver-root-ctr-path", "", "NVIDIA's name: where --nvidia-driver-root is mounted in this container")
	fs.StringVar(&c.KubeletSocket, "kubelet-socket", "", "NVIDIA's name: the kubelet's socket, whose directory is --kubelet-dir")
	fs.StringVar(&c.DisableHealthChecks, "dp-disable-healthchecks", "", "NVIDIA's DP_DISABLE_HEALTHCHECKS: XIDs to ignore, \"all\" or \"xids\" for every one")
	fs.StringVar(&c.EnableHealthChecks, "dp-enable-healthchecks", "", "NVIDIA's DP_ENABLE_HEALTHCHECKS: XIDs that make a card unhealthy")
	for flag, env := range map[string][]string{
		"nvidia-driver-root": {"NVIDIA_DRIVER_ROOT"}, "nvidia-dev-root": {"NVIDIA_DEV_ROOT"}, "container-driver-root": {"CONTAINER_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH"},
		"kubelet-socket": {"KUBELET_SOCKET"}, "dp-disable-healthchecks": {"DP_DISABLE_HEALTHCHECKS"}, "dp-enable-healthchecks": {"DP_ENABLE_HEALTHCHECKS"},
	} {
		config.AddEnvAlias(fs, flag, env...)
	}
	for _, f := range compatFlags() {
		if f.isBool {
			fs.Bool(f.name, false, "NVIDIA's; ignored: "+f.why)
		} else {
			fs.StringSlice(f.name, nil, "NVIDIA's; ignored: "+f.why)
		}
		if f.env != "" {
			config.AddEnvAlias(fs, f.name, f.env)
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Usage, "NVIDIA's") {
			f.Hidden = true
		}
	})
}

// translate sets what NVIDIA's flags mean, where our own were not set.
func (s *settings) translate(fs *pflag.FlagSet) {
	c := &s.compat
	set := func(ours string, to *string, value string) {
		if value != "" && !config.IsSet(fs, ours) {
			*to = value
		}
	}
	set("dev-root", &s.DevRoot, c.NVIDIADevRoot)
	set("driver-root", &s.DriverRoot, c.NVIDIADriverRoot)
	if c.ContainerDriverRoot != "" && c.NVIDIADriverRoot != "" && !config.IsSet(fs, "driver-root") {
		s.DriverRoot = c.ContainerDriverRoot
		s.HostPathMap = append(s.HostPathMap, c.ContainerDriverRoot+"="+c.NVIDIADriverRoot)
	}
	if c.KubeletSocket != "" {
		set("kubelet-dir", &s.KubeletDir, filepath.Dir(c.KubeletSocket))
	}
	s.XIDPolicy = append(c.xidPolicy(), s.XIDPolicy...)
}

// xidPolicy are the entries that NVIDIA's two variables stand for.
func (c *compat) xidPolicy() []string {
	var out []string
	each := func(list, action string) {
		for word := range strings.SplitSeq(list, ",") {
			switch word = strings.ToLower(strings.TrimSpace(word)); word {
			case "":
			case "all", "xids":
				out = append(out, "all="+action, "default="+action)
			default:
				out = append(out, word+"="+action)
			}
		}
	}
	each(c.DisableHealthChecks, "ignore")
	each(c.EnableHealthChecks, "reset")
	return out
}

// logIgnored names the flags of NVIDIA's that were set and mean nothing.
func logIgnored(fs *pflag.FlagSet, log logrus.FieldLogger) {
	for _, f := range compatFlags() {
		if config.IsSet(fs, f.name) {
			log.Warnf("--%s is ignored: %s", f.name, f.why)
		}
	}
}
