package harness

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Allocated reads from the kubelet's checkpoint which device IDs the container
// of a pod was allocated, sorted; none when it has no entry.
func Allocated(podUID, container, resource string) ([]string, error) {
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
	var ids []string
	for _, e := range checkpoint.Data.PodDeviceEntries {
		if e.PodUID == podUID && e.ContainerName == container && e.ResourceName == resource {
			for _, numa := range e.DeviceIDs {
				ids = append(ids, numa...)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}
