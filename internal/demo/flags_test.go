package demo

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFlagsHaveTheDefaultsThatTheHelpNames(t *testing.T) {
	s, err := parse(nil, nil)
	require.NoError(t, err)
	require.Equal(t, settings{workers: 4, goroutines: 4, duration: 5 * time.Second}, s)

	s, err = parse([]string{"-url", "valkeys://u:p@host:7000/3", "-workers=64", "-goroutines", "1", "-duration", "1m", "-no-lock"}, nil)
	require.NoError(t, err)
	require.Equal(t, settings{url: "valkeys://u:p@host:7000/3", workers: 64, goroutines: 1, duration: time.Minute, noLock: true}, s)

	var help bytes.Buffer
	_, err = parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{"-url", "-workers", "-goroutines", "-duration", "-no-lock"} {
		require.Contains(t, help.String(), name)
	}
}

func TestABadFlagIsAnErrorThatNamesTheValueAndTheRemedy(t *testing.T) {
	for args, want := range map[string][]string{
		"-workers 0":                 {`"0"`, "-workers", "from 1 to 64"},
		"-workers 65":                {`"65"`, "from 1 to 64"},
		"-workers 2.5":               {`"2.5"`, "whole number"},
		"-workers":                   {"-workers", "argument"},
		"-goroutines -1":             {`"-1"`, "from 1 to 1000"},
		"-duration 5":                {`"5"`, "with its unit"},
		"-duration 1ms":              {`"1ms"`, "100ms"},
		"-duration 25h":              {`"25h"`, "24h"},
		"-url 127.0.0.1:6379":        {"valkey://127.0.0.1:6379"},
		"-url localhost":             {"localhost", "valkey://"},
		"-url valkey://":             {"valkey://", "no host"},
		"-url http://u:hidden@h":     {"http://u:xxxxx@h", "scheme", "valkey://"},
		"-url valkey://u:hidden@h/x": {"valkey://u:xxxxx@h/x", "database number", "valkey://"},
		"-url valkey://u:hi%xden@h":  {"not a URL", "valkey://"},
		"-lock":                      {"-lock"},
		"now":                        {`"now"`, "flags"},
	} {
		_, err := parse(strings.Fields(args), nil)
		require.Error(t, err, args)
		for _, w := range want {
			require.ErrorContains(t, err, w, args)
		}
		require.NotContains(t, err.Error(), "hidden", args)
		require.NotContains(t, err.Error(), "hi%xden", args)
	}
}
