package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestMedian(t *testing.T) {
	t.Parallel()
	require.Zero(t, median(nil))
	require.InDelta(t, 3.0, median([]float64{9, 1, 3}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
}

func TestTheIntervalHoldsTheMedianAndNarrowsWithMoreRounds(t *testing.T) {
	t.Parallel()
	r := random()
	sample := func(n int) estimate {
		values := make([]float64, n)
		for i := range values {
			values[i] = 10 + r.NormFloat64()
		}
		return estimateOf(values, r)
	}
	few, many := sample(20), sample(2000)
	for _, e := range []estimate{few, many} {
		require.LessOrEqual(t, e.Low, e.Median)
		require.GreaterOrEqual(t, e.High, e.Median)
	}
	require.Less(t, many.High-many.Low, few.High-few.Low)
	require.Equal(t, estimate{Median: 7, Low: 7, High: 7}, estimateOf([]float64{7, 7, 7}, r))
}

func TestFiguresArePairedByRound(t *testing.T) {
	t.Parallel()
	all := times{}
	for i := range 50 {
		noise := float64(i * i % 37) // the same for all of a round
		for name, added := range map[string]float64{plain: 0, control: 0.1, "nri": 4, "nri_all": 8, "cdi": 10, peer: 80, "floor_nodes": 1} {
			all[name] = append(all[name], 60+noise+added)
		}
	}
	f := figuresOf(all, random())
	require.NoError(t, f.void())
	require.InDelta(t, 4, f.AddedMS["nri"], 1e-9)
	require.InDelta(t, 0.05, f.Ratio["nri"], 1e-9)
	require.InDelta(t, 0.125, f.Ratio["cdi"], 1e-9)
	require.NotContains(t, f.Ratio, "floor_nodes")
	require.Contains(t, f.table([]mode{{name: plain}, {name: "nri", what: "ours"}}), "ours")
}

func TestARestlessRunIsVoid(t *testing.T) {
	t.Parallel()
	for _, differs := range []float64{1.5, -1.5} {
		f := figuresOf(times{plain: {60, 61, 62}, control: {60 + differs, 61 + differs, 62 + differs}, peer: {100, 101, 102}}, random())
		require.ErrorContains(t, f.void(), "void")
	}
}
