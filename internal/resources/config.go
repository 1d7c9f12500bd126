package resources

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MIGStrategy says how GPUs in MIG mode are offered, in NVIDIA's words.
type MIGStrategy string

// The strategies.
const (
	// MIGNone offers a GPU in MIG mode as a whole card, with all its instances.
	MIGNone MIGStrategy = "none"
	// MIGSingle offers the MIG devices of one profile under the resource of
	// whole GPUs.
	MIGSingle MIGStrategy = "single"
	// MIGMixed offers each profile under a resource of its own, mig-<profile>.
	MIGMixed MIGStrategy = "mixed"
)

// Strategy is how replicas of one device are kept apart.
type Strategy string

// The strategies. The empty one means that nothing is shared.
const (
	TimeSlicing Strategy = "time-slicing"
	MPS         Strategy = "mps"
)

// Config is what an administrator decides. The zero value of everything but
// Whole and MIG is the usual one.
type Config struct {
	// Whole is the resource of whole GPUs, "nvidia.com/gpu".
	Whole string
	MIG   MIGStrategy
	// GPUs and MIGs give devices other resources by name: the first pattern that
	// fits the model or the MIG profile counts.
	GPUs, MIGs []Pattern
	Shares     []Share
	// Packed gives a container replicas of cards that are in use already; else
	// they are spread.
	Packed bool
}

// Pattern maps names to a resource. "*" stands for any characters, the whole
// name must fit.
type Pattern struct{ Pattern, Resource string }

// Share offers devices of a resource more than once.
type Share struct {
	// Resource is the one whose devices are shared.
	Resource string
	Strategy Strategy
	// Replicas is how often each is offered, 2 or more.
	Replicas int
	// Rename is the resource of the replicas; empty: that of the devices.
	Rename string
	// Devices selects; the zero value selects all.
	Devices Selector
	// FailMultiple refuses a request for more than one replica: it would not
	// get more of a card, and may get two replicas of the same.
	FailMultiple bool
}

// Selector chooses devices. At most one field is set.
type Selector struct {
	// Count takes the first devices in order of index.
	Count int
	// List takes those with an index ("0", "0:1"), a UUID, or a model or profile
	// that fits a pattern after "model=".
	List []string
}

// MaxMPSReplicas is what an MPS daemon serves per card (CUDA MPS documentation:
// 48 clients from Volta on).
const MaxMPSReplicas = 48

// Validate reports all faults at once.
func (c *Config) Validate() error {
	var errs []error
	if !slices.Contains([]MIGStrategy{MIGNone, MIGSingle, MIGMixed}, c.MIG) {
		errs = append(errs, fmt.Errorf("MIG strategy %q is not %q, %q or %q", c.MIG, MIGNone, MIGSingle, MIGMixed))
	}
	for _, p := range append(slices.Clone(c.GPUs), c.MIGs...) {
		if p.Pattern == "" {
			errs = append(errs, fmt.Errorf("the pattern for resource %q is empty; %q fits every name", p.Resource, "*"))
		}
		errs = append(errs, ValidName(p.Resource))
	}
	for i := range c.Shares {
		errs = append(errs, c.Shares[i].validate(c.MIG))
	}
	return errors.Join(errs...)
}

func (s *Share) validate(mig MIGStrategy) error {
	errs := []error{ValidName(s.Resource)}
	if s.Rename != "" {
		errs = append(errs, ValidName(s.Rename))
	}
	if s.Replicas < 2 {
		errs = append(errs, fmt.Errorf("sharing of %q: %d replicas; 2 is the least", s.Resource, s.Replicas))
	}
	if s.Devices.Count < 0 {
		errs = append(errs, fmt.Errorf("sharing of %q: %d devices; give a positive number, a list, or \"all\"", s.Resource, s.Devices.Count))
	}
	if s.Strategy == MPS && s.Replicas > MaxMPSReplicas {
		errs = append(errs, fmt.Errorf("sharing of %q: MPS serves at most %d clients of a card, not %d", s.Resource, MaxMPSReplicas, s.Replicas))
	}
	if s.Strategy == MPS && mig == MIGMixed {
		errs = append(errs, fmt.Errorf("sharing of %q: MPS is not possible with the MIG strategy %q", s.Resource, mig))
	}
	return errors.Join(errs...)
}

// ValidName checks what the kubelet requires of an extended resource: a
// qualified name with a domain that is not kubernetes.io's.
func ValidName(name string) error {
	domain, _, hasDomain := strings.Cut(name, "/")
	switch {
	case name == "":
		return errors.New("must not be empty; the usual name is nvidia.com/gpu")
	case !hasDomain:
		return fmt.Errorf("%q has no domain; an extended resource is named domain/name", name)
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		return fmt.Errorf("%q is in Kubernetes' own domain", name)
	case strings.HasPrefix(name, "requests."):
		return fmt.Errorf("%q starts with \"requests.\", which Kubernetes keeps for quotas", name)
	}
	// The kubelet also requires that "requests." and the name be qualified,
	// which bounds the domain's length.
	if msgs := validation.IsQualifiedName("requests." + name); len(msgs) > 0 {
		return fmt.Errorf("%q is not a name that Kubernetes accepts: %s", name, strings.Join(msgs, "; "))
	}
	return nil
}

// fits tells whether a name is of a pattern's form.
func fits(pattern, name string) bool {
	// Model names hold no slash, which path.Match would not let "*" stand for.
	// Everything but "*" stands for itself.
	quoted := strings.NewReplacer(`\`, `\\`, "?", `\?`, "[", `\[`).Replace(pattern)
	ok, err := path.Match(quoted, strings.ReplaceAll(name, "/", " "))
	return err == nil && ok
}
