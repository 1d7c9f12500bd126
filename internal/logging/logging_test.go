package logging_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/logging"
)

func TestJSONLogsAreOneObjectALine(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	logging.New(&buf, "info", "json").WithField("pod", "p").Info("injected")
	var line map[string]any
	require.NoError(t, json.Unmarshal(buf.Bytes(), &line))
	require.Equal(t, "injected", line["msg"])
	require.Equal(t, "p", line["pod"])
}

func TestLevelsBelowTheChosenOneAreNotWritten(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	log := logging.New(&buf, "warn", "text")
	log.Info("quiet")
	require.Empty(t, buf.String())
	log.Warn("loud")
	require.Contains(t, buf.String(), "loud")
	require.Equal(t, logrus.WarnLevel, log.GetLevel())
}
