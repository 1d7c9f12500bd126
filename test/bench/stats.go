package main

import (
	"math/rand/v2"
	"slices"
)

// estimate is a median with the interval that holds it with 95 % confidence, by
// bootstrap.
type estimate struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// resamples is how often the bootstrap draws.
const resamples = 2000

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// differences are those of two modes within each round.
func differences(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

func estimateOf(values []float64, random *rand.Rand) estimate {
	if len(values) == 0 {
		return estimate{}
	}
	medians := make([]float64, resamples)
	drawn := make([]float64, len(values))
	for i := range medians {
		for k := range drawn {
			drawn[k] = values[random.IntN(len(values))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return estimate{Median: median(values), Low: medians[resamples*25/1000], High: medians[resamples*975/1000]}
}
