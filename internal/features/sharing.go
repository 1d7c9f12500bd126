package features

import (
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// strategyNone is what the label gpu.sharing-strategy says of no sharing.
const strategyNone = "none"

// DefaultResource is the resource name of whole GPUs.
const DefaultResource = "nvidia.com/gpu"

// Sharing is what the configuration says about sharing. Its zero value shares
// nothing.
type Sharing struct {
	// Strategy applies to every device with more than one replica.
	Strategy resources.Strategy
	// Replicas has the number of replicas by resource name ("nvidia.com/gpu",
	// "nvidia.com/mig-1g.5gb"); a resource that is not there has one.
	Replicas map[string]int
	// ReplicasOf has the number by UUID where it differs from the resource's.
	ReplicasOf map[string]int
	// Renamed says that shared devices are advertised under a name of their own
	// ("nvidia.com/gpu.shared"), so that the product need not tell.
	Renamed bool
	// MIGStrategy is empty for none.
	MIGStrategy resources.MIGStrategy
	// MPSConfigured says that the configuration has an MPS section.
	MPSConfigured bool
	// Resource is the name of whole GPUs; empty: DefaultResource. MIG devices
	// have its domain.
	Resource string
}

// replicas is the number of replicas of a device, at least one.
func (s *Sharing) replicas(uuid, resource string) int {
	if s.Strategy == "" {
		return 1
	}
	n, ok := s.ReplicasOf[uuid]
	if !ok {
		n = s.Replicas[resource]
	}
	return max(n, 1)
}

func (s *Sharing) gpuResource() string {
	if s.Resource == "" {
		return DefaultResource
	}
	return s.Resource
}

func (s *Sharing) migResource(profile string) string {
	domain, _, _ := strings.Cut(s.gpuResource(), "/")
	return domain + "/" + profile
}

// strategy is the label's value for devices with so many replicas.
func (s *Sharing) strategy(replicas int) string {
	if replicas > 1 {
		return string(s.Strategy)
	}
	return strategyNone
}

// suffix is what a product's name ends in when its devices are shared.
func (s *Sharing) suffix(replicas int) string {
	if replicas > 1 && !s.Renamed {
		return "-SHARED"
	}
	return ""
}
