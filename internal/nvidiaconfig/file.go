// Package nvidiaconfig reads the configuration file of NVIDIA's device plugin,
// so that a node can change over with the file that it has.
//
// Unknown keys are refused: a misspelt one would otherwise do nothing and say
// nothing. What is known and has no meaning here is ignored by name. The blocks
// resources, rename and devices, which NVIDIA's plugin reads and does not heed,
// are heeded. Format: github.com/NVIDIA/k8s-device-plugin, api/config/v1.
package nvidiaconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// File is the file. A pointer is nil for a key that is not there.
type File struct {
	Version   string     `yaml:"version"`
	Flags     Flags      `yaml:"flags"`
	Resources *Resources `yaml:"resources"`
	Sharing   Sharing    `yaml:"sharing"`
	IMEX      *IMEX      `yaml:"imex"`
}

// Flags are the values of command line flags.
type Flags struct {
	MIGStrategy             *string      `yaml:"migStrategy"`
	FailOnInitError         *bool        `yaml:"failOnInitError"`
	DriverRoot              *string      `yaml:"nvidiaDriverRoot"`
	DevRoot                 *string      `yaml:"nvidiaDevRoot"`
	GDRCopy                 *bool        `yaml:"gdrcopyEnabled"`
	GDS                     *bool        `yaml:"gdsEnabled"`
	MOFED                   *bool        `yaml:"mofedEnabled"`
	MPSRoot                 *string      `yaml:"mpsRoot"`
	DeviceDiscoveryStrategy *string      `yaml:"deviceDiscoveryStrategy"`
	UseNodeFeatureAPI       *bool        `yaml:"useNodeFeatureAPI"`
	Plugin                  *PluginFlags `yaml:"plugin"`
	GFD                     *GFDFlags    `yaml:"gfd"`
}

// PluginFlags are those of the device plugin alone.
type PluginFlags struct {
	PassDeviceSpecs        *bool   `yaml:"passDeviceSpecs"`
	DeviceListStrategy     *words  `yaml:"deviceListStrategy"`
	DeviceIDStrategy       *string `yaml:"deviceIDStrategy"`
	CDIAnnotationPrefix    *string `yaml:"cdiAnnotationPrefix"`
	NVIDIACTKPath          *string `yaml:"nvidiaCTKPath"`
	ContainerDriverRoot    *string `yaml:"containerDriverRoot"`
	SharedAllocationPolicy *string `yaml:"sharedDevicesAllocationPolicy"`
}

// GFDFlags are those of GPU feature discovery.
type GFDFlags struct {
	Oneshot         *bool   `yaml:"oneshot"`
	NoTimestamp     *bool   `yaml:"noTimestamp"`
	SleepInterval   *string `yaml:"sleepInterval"`
	OutputFile      *string `yaml:"outputFile"`
	MachineTypeFile *string `yaml:"machineTypeFile"`
	MachineType     *string `yaml:"machineType"`
}

// Resources gives devices resources by name.
type Resources struct {
	GPUs []Pattern `yaml:"gpus"`
	MIGs []Pattern `yaml:"mig"`
}

// Pattern is one of them.
type Pattern struct {
	Pattern string `yaml:"pattern"`
	Name    string `yaml:"name"`
}

// Sharing is how devices are shared; at most one of the two.
type Sharing struct {
	TimeSlicing *Replicated `yaml:"timeSlicing"`
	MPS         *Replicated `yaml:"mps"`
}

// Replicated is what is offered more than once.
type Replicated struct {
	RenameByDefault            bool                 `yaml:"renameByDefault"`
	FailRequestsGreaterThanOne *bool                `yaml:"failRequestsGreaterThanOne"`
	Resources                  []ReplicatedResource `yaml:"resources"`
}

// ReplicatedResource is one resource of it.
type ReplicatedResource struct {
	Name     string  `yaml:"name"`
	Rename   string  `yaml:"rename"`
	Devices  devices `yaml:"devices"`
	Replicas int     `yaml:"replicas"`
}

// IMEX are the IMEX channels.
type IMEX struct {
	ChannelIDs []int `yaml:"channelIDs"`
	Required   bool  `yaml:"required"`
}

// words is one word or a list of them.
type words []string

// UnmarshalYAML reads both forms.
func (w *words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

// devices is "all", a number, or a list of indices and UUIDs.
type devices struct {
	Count int
	List  []string
}

// UnmarshalYAML reads the three forms.
func (d *devices) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		if err := n.Decode(&d.List); err != nil {
			return err
		}
		if len(d.List) == 0 {
			return fmt.Errorf("line %d: devices: an empty list selects nothing; leave the key out to select all", n.Line)
		}
		return nil
	}
	if n.Value == "all" {
		return nil
	}
	count, err := strconv.Atoi(n.Value)
	if err != nil || count < 1 {
		return fmt.Errorf("line %d: devices: %q is neither \"all\", a positive number, nor a list", n.Line, n.Value)
	}
	d.Count = count
	return nil
}

// Decode reads a file strictly; an empty one is a file without a setting.
func Decode(data []byte) (*File, error) {
	f := &File{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w; unknown keys are refused, so that a misspelt one is not without effect", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; only one is read")
	}
	if f.Version != "" && f.Version != "v1" {
		return nil, fmt.Errorf("version %q is not known; this program reads %q", f.Version, "v1")
	}
	return f, nil
}
