package harness

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Allocated reads from the kubelet's checkpoint which device IDs the container
// of a pod was allocated, sorted; none when it has no entry.
func Allocated(podUID, container, resource string) ([]string, error) {
	all, err := Allocations(resource)
	return all[podUID+"/"+container], err
}

// Allocations reads what every container was allocated of a resource, by
// "<pod UID>/<container>", sorted.
func Allocations(resource string) (map[string][]string, error) {
	data, err := Checkpoint()
	if err != nil {
		return nil, err
	}
	var checkpoint struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				DeviceIDs                           map[string][]string
			}
		}
	}
	if err := json.Unmarshal(data, &checkpoint); err != nil {
		return nil, fmt.Errorf("the kubelet's checkpoint: %w", err)
	}
	out := map[string][]string{}
	for _, e := range checkpoint.Data.PodDeviceEntries {
		if e.ResourceName != resource {
			continue
		}
		key := e.PodUID + "/" + e.ContainerName
		for _, numa := range e.DeviceIDs {
			out[key] = append(out[key], numa...)
		}
		slices.Sort(out[key])
	}
	return out, nil
}
